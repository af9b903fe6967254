"""Global orders of a mixture: those that ranks deal out, and one that is computed from keys."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fastpack.datasets.permutations import FeistelOrder, Indices, index_dtype
from fastpack.loading.order import Order, StraightOrder


def repeated(values: Indices, count: int) -> Indices:
    """The first `count` entries of `values` again and again."""
    if count <= len(values):
        return values[:count]
    out = np.empty(count, values.dtype)
    for start in range(0, count, len(values)):
        part = out[start : start + len(values)]
        part[:] = values[: len(part)]
    return out


def interleave(lists: Sequence[Indices]) -> Indices:
    """The global order whose place j * R + r is lists[r][j]; where lists are shorter than others, without those."""
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

    Draw m of a dataset is sample m modulo its size of the dataset's own permutation, so that no sample comes twice
    before all have come once.
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
        """The samples at places first, first + step, ..., `count` of them, all within [0, n)."""
        return self._samples(self._interleaving.take(first, step, count))

    def at(self, places: npt.NDArray[np.int64]) -> Indices:
        """The samples at these places of [0, n)."""
        return self._samples(self._interleaving.at(places))

    def _samples(self, draws: Indices) -> Indices:
        out = np.empty(len(draws), self._dtype)
        datasets = np.searchsorted(self._starts, draws, side="right") - 1
        for number, order in enumerate(self._orders):
            where = np.flatnonzero(datasets == number)
            if len(where):
                places = (draws[where].astype(np.int64) - self._starts[number]) % order.n
                out[where] = order.at(places) + self._dtype.type(self._offsets[number])
        return out
