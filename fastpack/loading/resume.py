"""The position in an epoch, and how to continue there on another number of ranks or with another batch size.

Ranks take the global order strided (rank r of R: positions r, r + R, ...), so after k batches of b samples on R ranks
exactly the first k * b * R samples of the order for R ranks are consumed. A position is therefore (consumed, base): the
order as `base` ranks lay it out, and how many of its samples are consumed. Any number of ranks can share the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

VERSION = 1


@dataclass(frozen=True)
class EpochPosition:
    """All ranks together have consumed `consumed` samples of the epoch's global order for `base` ranks."""

    consumed: int
    base: int

    def batches(self, num_replicas: int, batch_size: int) -> int:
        """Return the batches of a rank up to this position, rounded down: that may repeat samples, never lose any."""
        return self.consumed // (num_replicas * batch_size)

    def skip(self, num_replicas: int) -> int | None:
        """Return the samples that each rank has consumed of its own list; None if the lists are not those of base."""
        same = self.base == num_replicas and self.consumed % num_replicas == 0
        return self.consumed // num_replicas if same else None


def json_fingerprint(fingerprint: Mapping[str, Any]) -> dict[str, Any]:
    """Return a sampler's fingerprint as JSON values."""
    return {name: _json_value(value) for name, value in fingerprint.items()}


def _json_value(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    return [_json_value(one) for one in value] if isinstance(value, (list, tuple, np.ndarray)) else value


@dataclass(frozen=True)
class LoaderShape:
    """What stays the same while a loader lives: ranks, batch size, the length of the dataset."""

    num_replicas: int
    batch_size: int
    dataset_length: int | None

    def elastic_state(self, position: EpochPosition, order: Mapping[str, Any]) -> dict[str, Any]:
        """Return the part of a state that KempnerForge does not have, and ignores."""
        return {
            "version": VERSION,
            "consumed": position.consumed,
            "base_num_replicas": position.base,
            "num_replicas": self.num_replicas,
            "batch_size": self.batch_size,
            "dataset_length": self.dataset_length,
            "order": order,
        }

    def position(self, state: Mapping[str, Any], order: Mapping[str, Any]) -> EpochPosition:
        """Return the position that a state was saved at.

        A state without an elastic part is KempnerForge's: its batch size must be this one, and its order is the one
        that both systems have.

        Parameters
        ----------
        order
            The fingerprint of the sampler.

        Raises
        ------
        ValueError
            If continuing there would lose or repeat samples.
        """
        batches = state.get("batches_yielded", 0)
        if batches == 0 and not state.get("elastic", {}).get("consumed"):
            return EpochPosition(0, self.num_replicas)  # between two epochs nothing can be lost
        sampler, elastic = state.get("sampler", {}), state.get("elastic")
        if elastic is None:
            self._check_unchanged(sampler, order)
            return EpochPosition(batches * self.batch_size * self.num_replicas, self.num_replicas)
        if elastic["version"] != VERSION:
            raise ValueError(f"the loader's state is of version {elastic['version']}, this fastpack reads {VERSION}")
        if elastic["dataset_length"] != self.dataset_length:
            raise ValueError(
                f"the state was saved {batches} batches into an epoch of a dataset of {elastic['dataset_length']} "
                f"samples, this one has {self.dataset_length}: the rest of that epoch cannot be found in it. "
                + HOW_TO_CONTINUE
            )
        return EpochPosition(elastic["consumed"], elastic["base_num_replicas"])

    def _check_unchanged(self, saved: Mapping[str, Any], order: Mapping[str, Any]) -> None:
        num_replicas = saved.get("num_replicas", self.num_replicas)
        if num_replicas != self.num_replicas:
            raise ValueError(
                f"the state was saved in the middle of an epoch by {num_replicas} ranks, these are "
                f"{self.num_replicas}, and it does not say which samples were consumed (KempnerForge's states do not): "
                f"resume on {num_replicas} ranks. " + HOW_TO_CONTINUE
            )
        theirs = {"seed": saved.get("seed", order.get("seed")), "order": "torch"}
        if any(order.get(name, value) != value for name, value in theirs.items()):
            raise ValueError(_order_differs(theirs, {**theirs, **order}) + HOW_TO_CONTINUE)


def check_order(saved: Mapping[str, Any], current: Mapping[str, Any], advice: str = "") -> None:
    """Raise ValueError if two fingerprints, the saved and the current one, are of different orders."""
    if any(current.get(name) != value for name, value in saved.items()):
        raise ValueError(_order_differs(saved, current) + advice)


def _order_differs(saved: Mapping[str, Any], current: Mapping[str, Any]) -> str:
    changes = [
        f"{name} was {saved[name]}, is {current.get(name)}" for name in saved if saved[name] != current.get(name)
    ]
    return (
        f"the state was saved in the middle of an epoch of another order ({'; '.join(changes)}): set "
        f"{'it' if len(changes) == 1 else 'them'} back until the epoch's end. "
    )


HOW_TO_CONTINUE = (
    "Or give the loader elastic=False, which continues as KempnerForge does: at the same batch number, with samples "
    "lost or repeated silently"
)
