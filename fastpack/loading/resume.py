"""Where in an epoch a job is, and how to go on there with another number of ranks or another batch size.

Ranks take the global order strided (rank r of R: positions r, r + R, ...), so after k batches of b samples on R ranks
exactly the first k * b * R samples of the order laid out for R ranks are consumed. A place is therefore (consumed,
base): the order as `base` ranks lay it out, and how many of its samples are done; any number of ranks can share what is
left of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

VERSION = 1
# What decides the order of a sampler that has no fingerprint() of its own, beside its epoch.
ORDER_ATTRIBUTES = ("seed", "shuffle", "drop_last")


@dataclass(frozen=True)
class Place:
    """`consumed` samples of the epoch's global order, laid out for `base` ranks, are done by all ranks together."""

    consumed: int
    base: int

    def batches(self, num_replicas: int, batch_size: int) -> int:
        """How many batches a rank would have yielded to come here (rounded down, which repeats and never loses)."""
        return self.consumed // (num_replicas * batch_size)

    def skip(self, num_replicas: int) -> int | None:
        """How many samples of its own list each of the ranks has done; None when their lists are not base's."""
        same = self.base == num_replicas and self.consumed % num_replicas == 0
        return self.consumed // num_replicas if same else None


def fingerprint(sampler: Any) -> dict[str, Any]:
    """What decides the order of `sampler`, as JSON has it."""
    if hasattr(sampler, "fingerprint"):
        found: Mapping[str, Any] = sampler.fingerprint()
    else:
        found = {name: getattr(sampler, name) for name in ORDER_ATTRIBUTES if hasattr(sampler, name)}
    return {name: _plain(value) for name, value in found.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    return [_plain(one) for one in value] if isinstance(value, (list, tuple, np.ndarray)) else value


@dataclass(frozen=True)
class Job:
    """What is fixed while a loader lives: ranks, batch size, the dataset's length."""

    num_replicas: int
    batch_size: int
    dataset_length: int | None

    def extra(self, place: Place, sampler: Any) -> dict[str, Any]:
        """The keys of a state that KempnerForge does not have, and ignores."""
        return {
            "version": VERSION,
            "consumed": place.consumed,
            "base_num_replicas": place.base,
            "num_replicas": self.num_replicas,
            "batch_size": self.batch_size,
            "dataset_length": self.dataset_length,
            "order": fingerprint(sampler),
        }

    def place(self, state: Mapping[str, Any], order: Mapping[str, Any]) -> Place:
        """Where the state says the job was; ValueError when going on from there would lose or repeat samples.

        order: the sampler's fingerprint. A state without extra keys is KempnerForge's own: its batch size must be this
        one's, and its order is the one that both systems have.
        """
        batches = state.get("batches_yielded", 0)
        if batches == 0 and not state.get("elastic", {}).get("consumed"):
            return Place(0, self.num_replicas)  # between two epochs nothing can be lost
        sampler, extra = state.get("sampler", {}), state.get("elastic")
        if extra is None:
            self._refuse_changes(sampler, order)
            return Place(batches * self.batch_size * self.num_replicas, self.num_replicas)
        if extra["version"] != VERSION:
            raise ValueError(f"the loader's state is of version {extra['version']}, this fastpack reads {VERSION}")
        if extra["dataset_length"] != self.dataset_length:
            raise ValueError(
                f"the state was saved {batches} batches into an epoch of a dataset of {extra['dataset_length']} "
                f"samples, this one has {self.dataset_length}: the rest of that epoch cannot be found in it. "
                + HOW_TO_GO_ON
            )
        return Place(extra["consumed"], extra["base_num_replicas"])

    def _refuse_changes(self, saved: Mapping[str, Any], order: Mapping[str, Any]) -> None:
        num_replicas = saved.get("num_replicas", self.num_replicas)
        if num_replicas != self.num_replicas:
            raise ValueError(
                f"the state was saved in the middle of an epoch by {num_replicas} ranks, these are "
                f"{self.num_replicas}, and it does not say which samples were done (KempnerForge's states do not): "
                f"resume on {num_replicas} ranks. " + HOW_TO_GO_ON
            )
        theirs = {"seed": saved.get("seed", order.get("seed")), "order": "torch"}
        if any(order.get(name, value) != value for name, value in theirs.items()):
            raise ValueError(_order_differs(theirs, {**theirs, **order}) + HOW_TO_GO_ON)


def check_order(saved: Mapping[str, Any], sampler: Any, advice: str = "") -> None:
    """ValueError when the order that `saved` (a fingerprint) speaks of is not the sampler's."""
    now = fingerprint(sampler)
    if any(now.get(name) != value for name, value in saved.items()):
        raise ValueError(_order_differs(saved, now) + advice)


def _order_differs(saved: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    changes = [f"{name} was {saved[name]}, is {now.get(name)}" for name in saved if saved[name] != now.get(name)]
    return (
        f"the state was saved in the middle of an epoch of another order ({'; '.join(changes)}): set "
        f"{'it' if len(changes) == 1 else 'them'} back until the epoch's end. "
    )


HOW_TO_GO_ON = (
    "Or give the loader elastic=False, which goes on as KempnerForge does: at the same batch number, samples lost or "
    "repeated without a word"
)
