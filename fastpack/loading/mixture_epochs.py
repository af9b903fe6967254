"""The orders of the epochs of a mixture: KempnerForge's, a computed one, and one sequence for the whole run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fastpack.datasets.permutations import Indices
from fastpack.loading import mixing
from fastpack.loading.base_sampler import EpochSampler
from fastpack.loading.mixture_history import Counts, MixtureHistory, Shares
from fastpack.loading.mixture_orders import UNBOUNDED, FeistelMixture, ScheduledMixture, interleave
from fastpack.loading.mixture_sources import MixtureSources
from fastpack.loading.order import HeldOrder, Order, Steps, StraightOrder
from fastpack.loading.rank_lists import RankLists, slice_length
from fastpack.loading.resume import EpochPosition

# The name of the order of no_repeat=True in a saved state. Another schedule needs another name.
NO_REPEAT_ORDER = "passes-2"


class MixtureEpochs(EpochSampler):
    """Base class of `MixtureSampler`: the order of an epoch for the current datasets and weights."""

    no_repeat: bool
    revision = 0  # counts the changes that the next batch of a loader must follow
    weights: list[float]
    temperature: float
    probs: list[float]
    _sources: MixtureSources
    _n_original: int
    _shares: Shares  # of the current weights
    _history: MixtureHistory | None  # from the first iteration on
    _epoch_start: tuple[int, int]  # an epoch, and the samples of the run before it

    @property
    def sizes(self) -> list[int]:
        """The samples of each dataset, also of removed ones."""
        return list(self._sources.sizes)

    @property
    def all_names(self) -> list[str]:
        """The names of the datasets, also of removed ones; empty if they have none."""
        return list(self._sources.names)

    @property
    def offsets(self) -> list[int]:
        """The number of the first sample of each dataset."""
        return self._sources.offsets

    @property
    def target_counts(self) -> list[int]:
        """The samples of each dataset in an epoch of this rank."""
        return self._targets(self.probs, self.num_replicas)

    def _targets(self, shares: Sequence[float], num_replicas: int) -> list[int]:
        return mixing.targets(shares, self._sources.available(num_replicas, self.drop_last))

    def _length_of(self, rank: int, num_replicas: int, counts: Sequence[int]) -> int:
        drawn = [(size, n) for size, n in zip(self.sizes, counts, strict=True) if n > 0 and size]
        if self._computed:
            return sum(n for _, n in drawn)
        return sum(n for size, n in drawn if slice_length(size, rank, num_replicas, self.drop_last))

    def global_order_length(self, base_num_replicas: int) -> int:
        """Return the samples of all ranks in an epoch for this number of ranks.

        Parameters
        ----------
        base_num_replicas
            The number of ranks.

        Returns
        -------
        int
            Number of samples.
        """
        if self.no_repeat:
            return base_num_replicas * self._sources.available(base_num_replicas, self.drop_last)
        counts = self._targets(self.probs, base_num_replicas)
        return sum(self._length_of(rank, base_num_replicas, counts) for rank in range(base_num_replicas))

    @property
    def _computed(self) -> bool:
        """Whether any position of the order can be computed."""
        return self.no_repeat or self.order == "feistel"

    def at(self, position: int, epoch: int | None = None) -> int:
        """Return the sample at a position of the global order of an epoch, for the current ranks and weights.

        Rank r of R has the positions r, r + R, ...

        Parameters
        ----------
        position
            Counted from 0.
        epoch
            By default the current one.

        Returns
        -------
        int
            The sample number.

        Raises
        ------
        ValueError
            Unless order="feistel" or no_repeat=True: torch's order is only known as a whole.
        IndexError
            If the position is out of range.
        """
        if not self._computed:
            raise ValueError("torch's order is only known as a whole: at() needs order='feistel' or no_repeat=True")
        order = self._computed_order(self.num_replicas, self._epoch if epoch is None else epoch)
        n = self.global_order_length(self.num_replicas) if self.no_repeat else order.n
        if not 0 <= position < n:
            raise IndexError(f"position {position} out of range [0, {n})")
        return int(order.take(position, 1, 1)[0])

    def fingerprint(self) -> dict[str, Any]:
        """Return what the global order depends on, in addition to the epoch and the number of ranks.

        Returns
        -------
        dict
            JSON values by name. Equal values mean equal orders, for the same epoch and number of ranks.
        """
        common = {**super().fingerprint(), "no_repeat": self.no_repeat}
        if self.no_repeat:  # the state holds the weights, and the datasets that were added
            return {**common, "order": NO_REPEAT_ORDER, "sizes": self.sizes[: self._n_original]}
        return {**common, "sizes": self.sizes, "weights": self.weights, "temperature": self.temperature}

    def end_epoch(self, epoch: int, consumed: int) -> None:
        """Let the next epoch begin after `consumed` samples of this one, so that those after them are not lost.

        A `StatefulDataLoader` calls this at the end of an epoch, where samples that fill no batch are left. Without
        `no_repeat` it has no effect.

        Parameters
        ----------
        epoch
            The epoch that ends.
        consumed
            Samples of its global order that all ranks together have consumed.
        """
        self._epoch_start = (epoch + 1, self.run_position(epoch, consumed))

    def run_position(self, epoch: int, consumed: int) -> int:
        """Return how many samples of the run all ranks have drawn after `consumed` samples of an epoch.

        With `no_repeat`, the order is one sequence over all epochs, and this is the position in it.

        Parameters
        ----------
        epoch
            The epoch.
        consumed
            Samples of the epoch's global order.

        Returns
        -------
        int
            Number of samples. Epochs that were not iterated count with their whole length.
        """
        known, start = self._epoch_start
        return max(0, start + (epoch - known) * self.global_order_length(self.num_replicas)) + consumed

    def drawn(self, positions: npt.NDArray[np.int64]) -> Counts:
        """Return how many of the samples before positions of the run are of each dataset; needs no_repeat=True.

        Parameters
        ----------
        positions
            As `run_position` returns them, ascending: int64 [n].

        Returns
        -------
        array
            int64 [n, datasets], with the removed ones.
        """
        found, n_sources = self._known_history().counts_at(positions), len(self._sources.sizes)
        if found.shape[1] < n_sources:
            found = np.pad(found, ((0, 0), (0, n_sources - found.shape[1])))
        return found[:, :n_sources]

    def _known_history(self) -> MixtureHistory:
        return self._history or MixtureHistory(self._shares, self.seed, self.shuffle)

    def run_order(self) -> Order:
        """Return the order of the whole run, from its first sample on; needs no_repeat=True.

        Returns
        -------
        Order
            The sample at each position of the run.
        """
        return ScheduledMixture(*self._sources.arrays, self._known_history(), 0)

    def _computed_order(self, num_replicas: int, epoch: int) -> Order:
        sizes, offsets = self.sizes, self.offsets
        if not self.no_repeat:
            counts = [max(0, n) * num_replicas for n in self._targets(self.probs, num_replicas)]
            return FeistelMixture(sizes, offsets, counts, self.seed, epoch, self.shuffle)
        if not any(sizes):
            return StraightOrder(0)
        return ScheduledMixture(*self._sources.arrays, self._known_history(), self.run_position(epoch, 0))

    def _lists(self, ranks: Sequence[int], num_replicas: int, counts: Sequence[int]) -> list[Indices]:
        draw = RankLists(self.sizes, self.offsets, self.shuffle, self.drop_last, self.seed + self._epoch)
        return draw.of(ranks, num_replicas, counts)

    def batches(self, size: int, n_batches: int) -> Iterator[Indices]:
        """Return the sample numbers of the next iteration, which starts now, in whole batches of `size`.

        They are computed for one batch at first, then for 2, 4, ..., `n_batches` at a time: weights that change at
        every step cost little.

        Parameters
        ----------
        size
            Samples of a batch.
        n_batches
            The most batches whose numbers are in memory.

        Returns
        -------
        iterator
            Arrays of int32 or int64 [size].
        """
        steps, first = self._open()
        return _growing_batches(steps.settled(), first, size, n_batches)

    def _layout(self, base_num_replicas: int) -> tuple[Order, int]:
        if self._computed:
            order = self._computed_order(base_num_replicas, self._epoch)
            return order, self.global_order_length(base_num_replicas) if self.no_repeat else order.n
        counts = self._targets(self.probs, base_num_replicas)
        held = HeldOrder(interleave(self._lists(range(base_num_replicas), base_num_replicas, counts)))
        return held, held.n

    def _steps(self) -> Steps:
        if not self.no_repeat or not any(self._sources.sizes):
            return super()._steps()
        start = self._resume or EpochPosition(0, self.num_replicas)
        self._epoch_start = (self._epoch, self.run_position(self._epoch, 0))
        position = self._epoch_start[1] + start.consumed + max(0, self._skip) * self.num_replicas
        self._history = self._known_history()
        self._history.change(position, self._shares)
        order = ScheduledMixture(*self._sources.arrays, self._history, self._epoch_start[1])
        left = max(0, self.global_order_length(start.base) - start.consumed)
        count = left // self.num_replicas if self.drop_last else -(-left // self.num_replicas)
        # Without an end, so that no sample is repeated to fill the last batch.
        return Steps(order, UNBOUNDED, start.consumed + self.rank, self.num_replicas, count)

    def _own_steps(self) -> Steps:
        if self._computed:
            order, length = self._layout(self.num_replicas)
            return Steps(order, max(1, length), self.rank, self.num_replicas, length // self.num_replicas)
        (own,) = self._lists([self.rank], self.num_replicas, self.target_counts)
        return Steps(HeldOrder(own), max(1, len(own)), 0, 1, len(own))


def _growing_batches(steps: Steps, first: int, size: int, most: int) -> Iterator[Indices]:
    n_batches = 1
    while len(block := steps.take(first, size * n_batches)) >= size:
        for start in range(0, len(block) - size + 1, size):
            yield block[start : start + size]
        first += size * n_batches
        n_batches = min(2 * n_batches, most)
