"""Global orders of a mixture: interleaved from the lists of the ranks, or computed from keys."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fastpack import kernels
from fastpack.datasets.permutations import FeistelOrder, Indices, index_dtype
from fastpack.loading.mixture_history import MixtureHistory
from fastpack.loading.order import Order, StraightOrder

UNBOUNDED = 1 << 62  # the length of an order without an end


def repeated(values: Indices, count: int) -> Indices:
    """Return the first `count` entries of `values` repeated endlessly."""
    if count <= len(values):
        return values[:count]
    out = np.empty(count, values.dtype)
    for start in range(0, count, len(values)):
        piece = out[start : start + len(values)]
        piece[:] = values[: len(piece)]
    return out


def interleave(lists: Sequence[Indices]) -> Indices:
    """Return the global order whose position j * R + r is lists[r][j]; shorter lists leave no gap."""
    shortest, longest = min(map(len, lists)), max(map(len, lists))
    out = np.empty(sum(map(len, lists)), lists[0].dtype)
    head = out[: shortest * len(lists)].reshape(shortest, len(lists))
    for rank, one in enumerate(lists):
        head[:, rank] = one[:shortest]
    if longest > shortest:
        out[head.size :] = [one[j] for j in range(shortest, longest) for one in lists if j < len(one)]
    return out


class FeistelMixture:
    """A mixture's global order that takes no memory: the n = sum(counts) draws of all datasets, permuted.

    Draw m of a dataset is sample m modulo its size in the dataset's own permutation, so no sample is repeated before
    all were drawn.
    """

    def __init__(
        self, sizes: Sequence[int], offsets: Sequence[int], counts: Sequence[int], seed: int, epoch: int, shuffle: bool
    ) -> None:
        counts = [count if size else 0 for size, count in zip(sizes, counts, strict=True)]
        self.n = sum(counts)
        self._starts = np.cumsum([0, *counts])
        self._offsets, self._dtype = offsets, index_dtype(offsets[-1] + sizes[-1])
        numbered = enumerate([self.n, *sizes])
        orders: list[Order] = [FeistelOrder(n, seed, epoch, k) if shuffle else StraightOrder(n) for k, n in numbered]
        self._interleaving, self._orders = orders[0], orders[1:]

    def take(self, first: int, step: int, count: int) -> Indices:
        """Return the samples at positions first, first + step, ..., `count` of them, all within [0, n)."""
        return self._samples(self._interleaving.take(first, step, count))

    def at(self, positions: npt.NDArray[np.int64]) -> Indices:
        """Return the samples at these positions of [0, n)."""
        return self._samples(self._interleaving.at(positions))

    def _samples(self, draws: Indices) -> Indices:
        out = np.empty(len(draws), self._dtype)
        datasets = np.searchsorted(self._starts, draws, side="right") - 1
        for number, order in enumerate(self._orders):
            where = np.flatnonzero(datasets == number)
            if len(where):
                positions = (draws[where].astype(np.int64) - self._starts[number]) % order.n
                out[where] = order.at(positions) + self._dtype.type(self._offsets[number])
        return out


class ScheduledMixture:
    """The samples from position `start` of a mixture's run on, without end; the shares are those of its history.

    Draw d of a source with s samples is sample d % s of its pass d // s, and each pass is a permutation of its own: no
    sample is repeated before all of its source were drawn.
    """

    def __init__(
        self,
        sizes: npt.NDArray[np.int64],
        offsets: npt.NDArray[np.int64],
        history: MixtureHistory,
        start: int,
    ) -> None:
        self.n = UNBOUNDED
        self._sizes, self._offsets, self._history, self._start = sizes, offsets, history, start
        self._dtype = index_dtype(int(offsets[-1] + sizes[-1]))

    def take(self, first: int, step: int, count: int) -> Indices:
        """Return the samples at positions first, first + step, ..., `count` of them."""
        return self.at(np.arange(first, first + step * count, step, dtype=np.int64))

    def at(self, positions: npt.NDArray[np.int64]) -> Indices:
        """Return the samples at these positions."""
        out = np.empty(len(positions), self._dtype)
        sources, draws = self._history.draws(positions + self._start)
        state, shuffle = np.uint64(self._history.state), self._history.shuffle
        kernels.draw_samples(sources, draws, self._sizes, self._offsets, state, shuffle, out)
        return out
