"""The datasets of a mixture: sizes, names, which are drawn from, and the shares that weights give them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from fastpack.loading import mixing

WEIGHT_UNITS = ("samples", "tokens")


@dataclass(frozen=True)
class MixtureSources:
    """All datasets of a mixture, in the order of their samples; weights are of those that were not removed.

    Attributes
    ----------
    sizes
        The samples of each dataset.
    first
        The number of the first sample.
    names
        Unique; empty if there are none.
    active
        The numbers of the datasets that were not removed.
    tokens
        The tokens of each dataset if weights are shares of tokens, else None.
    """

    sizes: tuple[int, ...]
    first: int
    names: tuple[str, ...]
    active: tuple[int, ...]
    tokens: tuple[int, ...] | None

    @classmethod
    def of(
        cls,
        cumulative_sizes: Sequence[int],
        names: Sequence[str] | None,
        weight_by: str,
        tokens: Sequence[int] | None,
    ) -> MixtureSources:
        """Return the datasets of a new sampler; ValueError if the arguments do not fit together."""
        if weight_by not in WEIGHT_UNITS:
            raise ValueError(f"weight_by is {weight_by!r}: choose one of {', '.join(WEIGHT_UNITS)}")
        if (weight_by == "tokens") != (tokens is not None):
            raise ValueError("weight_by='tokens' and tokens=[...], the tokens of each dataset, need each other")
        sizes = [int(cumulative_sizes[k + 1] - cumulative_sizes[k]) for k in range(len(cumulative_sizes) - 1)]
        for argument, values in (("names", names), ("tokens", tokens)):
            if values is not None and len(values) != len(sizes):
                raise ValueError(f"{argument} has {len(values)} entries for {len(sizes)} datasets")
        if names is not None and len(set(names)) < len(names):
            raise ValueError(f"names must be unique, got {list(names)}")
        return cls(
            tuple(sizes),
            int(cumulative_sizes[0]),
            tuple(names or ()),
            tuple(range(len(sizes))),
            None if tokens is None else tuple(map(int, tokens)),
        )

    @property
    def offsets(self) -> list[int]:
        """The number of the first sample of each dataset."""
        return list(accumulate(self.sizes[:-1], initial=self.first))

    @cached_property
    def arrays(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The sizes and the offsets, both int64 [datasets]."""
        return np.array(self.sizes, np.int64), np.array(self.offsets, np.int64)

    @property
    def active_names(self) -> list[str]:
        """The names of the datasets that were not removed."""
        return [self.names[number] for number in self.active] if self.names else []

    def available(self, num_replicas: int, drop_last: bool) -> int:
        """Return the samples of a rank in all datasets, also in removed ones."""
        return sum(mixing.available(size, num_replicas, drop_last) for size in self.sizes)

    def place(self, name: str) -> int:
        """Return the place of a dataset among those that were not removed; ValueError if it is not there."""
        if name not in self.active_names:
            raise ValueError(
                f"unknown dataset {name!r}: the datasets are {', '.join(self.active_names) or 'without names'}"
            )
        return self.active_names.index(name)

    def by_name(self, weights: Mapping[str, float], current: Sequence[float]) -> list[float]:
        """Return `current` with the weights that are named."""
        changed = list(current)
        for name, weight in weights.items():
            changed[self.place(name)] = weight
        return changed

    def without(self, name: str) -> MixtureSources:
        """Return these datasets with one removed."""
        number = self.active[self.place(name)]
        return replace(self, active=tuple(one for one in self.active if one != number))

    def with_source(self, name: str, size: int, tokens: int | None) -> MixtureSources:
        """Return these datasets and another one, or one that was removed."""
        if name in self.active_names:
            raise ValueError(f"a dataset named {name!r} is in use")
        if size < 0:
            raise ValueError(f"dataset {name!r} has size {size}, at least 0 is needed")
        if self.tokens is not None and tokens is None and name not in self.names:
            raise ValueError(f"dataset {name!r} needs tokens=, the weights being shares of tokens")
        if name not in self.names:
            counts = None if self.tokens is None else (*self.tokens, int(tokens or 0))
            active = (*self.active, len(self.sizes))
            return replace(self, sizes=(*self.sizes, size), names=(*self.names, name), active=active, tokens=counts)
        number = self.names.index(name)
        if self.sizes[number] != size:
            raise ValueError(f"dataset {name!r} was removed with {self.sizes[number]} samples, now it has {size}")
        return replace(self, active=tuple(sorted((*self.active, number))))

    def inserted(self, weights: Sequence[float], name: str, weight: float) -> list[float]:
        """Return the weights with that of dataset `name`, which was just added, at its place."""
        place = self.place(name)
        return [*weights[:place], weight, *weights[place:]]

    def probabilities(self, weights: Sequence[float], temperature: float) -> list[float]:
        """Return the share of the samples of each dataset that was not removed."""
        shares = mixing.probabilities(weights, temperature)
        if self.tokens is None:
            return shares
        per_sample = [self.tokens[k] / self.sizes[k] if self.sizes[k] else 0.0 for k in self.active]
        if any(n <= 0 and self.sizes[k] for n, k in zip(per_sample, self.active, strict=True)):
            raise ValueError(f"weight_by='tokens' needs tokens above 0, got {list(self.tokens)}")
        samples = [share / n if n else 0.0 for share, n in zip(shares, per_sample, strict=True)]
        return [share / sum(samples) for share in samples] if any(samples) else shares

    def shares(self, probabilities: Sequence[float]) -> list[float]:
        """Return the share of every dataset, also of removed ones; 0 for those that have no samples."""
        shares = [0.0] * len(self.sizes)
        for number, share in zip(self.active, probabilities, strict=True):
            shares[number] = share if self.sizes[number] else 0.0
        if any(self.sizes) and not any(shares):
            raise ValueError(
                f"every dataset with a weight above 0 is empty: shares {list(probabilities)}, sizes {list(self.sizes)}"
            )
        return shares

    def state(self, n_original: int) -> dict[str, Any]:
        """Return what changed since construction with `n_original` datasets, as JSON values."""
        rest = range(n_original, len(self.sizes))
        added = [[self.names[k], self.sizes[k], self.tokens[k] if self.tokens else None] for k in rest]
        removed = [k for k in range(len(self.sizes)) if k not in self.active]
        return {"added": added, "removed": removed}

    def restored(self, state: Mapping[str, Any], n_original: int) -> MixtureSources:
        """Return the datasets after the changes of a state."""
        tokens = None if self.tokens is None else self.tokens[:n_original]
        sources = MixtureSources(
            self.sizes[:n_original], self.first, self.names[:n_original], tuple(range(n_original)), tokens
        )
        for name, size, n_tokens in state["added"]:
            if not sources.names and n_original:
                raise ValueError(f"the state has a dataset {name!r} that was added: give the sampler its names=[...]")
            sources = sources.with_source(name, size, n_tokens)
        removed = set(state["removed"])
        return replace(sources, active=tuple(k for k in sources.active if k not in removed))
