"""The source of each position of a mixture, computed for any position, with every source close to its share."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count, pairwise
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from fastpack.datasets.permutations import FeistelOrder, Indices, feistel_keys, index_dtype, splitmix, splitmix_array
from fastpack.loading.order import Order, StraightOrder

Positions: TypeAlias = npt.NDArray[np.uint64]
Segment: TypeAlias = tuple[int, Sequence[float]]  # (first position, share of each source from there on)

MASK = np.uint64(0xFFFFFFFF)
HALF = np.uint64(32)
LAST = np.uint64(0xFFFFFFFFFFFFFFFF)
SCHEDULE_STREAM = 1 << 63  # the permutations of sources use smaller stream numbers
PASS_STREAM = 1 << 20  # streams per pass, one per source


@dataclass(frozen=True)
class _Split:
    """Divides positions between two sides: `few`, whose share is at most 1/2, gets one position of every 1/share.

    Parameters
    ----------
    share
        In units of 2**-64.
    key
        Selects the position at random; None selects the middle one.
    """

    share: np.uint64
    key: int | None
    few: _Split | int
    many: _Split | int

    def divide(self, positions: Positions) -> tuple[npt.NDArray[np.bool_], Positions]:
        """Return whether each position belongs to `few`, and how many of the positions before it do."""
        number, rest = _product(positions, self.share)  # one position of each number belongs to `few`
        before, after = rest // self.share, (LAST - rest) // self.share  # positions of the group
        length = before + after + np.uint64(1)
        chosen = length >> np.uint64(1) if self.key is None else splitmix_array(number ^ np.uint64(self.key)) % length
        return before == chosen, number + (before > chosen)


def _product(values: Positions, factor: np.uint64) -> tuple[Positions, Positions]:
    """Return the upper and the lower 64 bits of values * factor."""
    low, high = values & MASK, values >> HALF
    factor_low, factor_high = factor & MASK, factor >> HALF
    first, second = low * factor_high, high * factor_low
    carry = (low * factor_low >> HALF) + (first & MASK) + (second & MASK)
    return high * factor_high + (first >> HALF) + (second >> HALF) + (carry >> HALF), values * factor


class ShareSchedule:
    """An endless sequence of sources in which each source has its share of every prefix, with a bounded error.

    Splits pairs of sources recursively, the smallest shares first (a Huffman tree). The error of one split is below
    1 position, and so is that of two sources. A split's error reaches a source multiplied by its share of that split,
    which the tree keeps below 2/3 for pairs, so with any number of sources the error is below 4 positions. After the
    shares themselves only integers are used, so every machine computes the same sequence.

    Parameters
    ----------
    shares
        The share of each source, >= 0 and not all 0; a source with share 0 has no position.
    key
        Selects the sequence; None selects the most regular one.
    """

    def __init__(self, shares: Sequence[float], key: int | None) -> None:
        self._n_sources = len(shares)
        numbers = count()
        heap: list[tuple[float, int, _Split | int]] = []
        for source, share in enumerate(shares):
            if share > 0:
                heapq.heappush(heap, (share, next(numbers), source))
        while len(heap) > 1:
            (small, _, few), (large, _, many) = heapq.heappop(heap), heapq.heappop(heap)
            node = next(numbers)
            units = np.uint64(min(1 << 63, max(1, round(small / (small + large) * 2.0**64))))
            split = _Split(units, None if key is None else splitmix(key ^ node), few, many)
            heapq.heappush(heap, (small + large, node, split))
        self._root = heap[0][2]

    def assign(self, positions: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the source of each position, and how many positions before it have the same source: both int64."""
        sources, numbers = np.empty(len(positions), np.int64), np.empty(len(positions), np.int64)
        todo = [(self._root, np.arange(len(positions)), positions.astype(np.uint64))]
        while todo:
            node, where, own = todo.pop()
            if isinstance(node, int):
                sources[where], numbers[where] = node, own
            elif len(own):
                is_few, few_before = node.divide(own)
                is_many = ~is_few
                todo.append((node.few, where[is_few], few_before[is_few]))
                todo.append((node.many, where[is_many], own[is_many] - few_before[is_many]))
        return sources, numbers

    def counts(self, n: int) -> npt.NDArray[np.int64]:
        """Return how many of the first `n` positions each source has: int64 [sources]."""
        counts = np.zeros(self._n_sources, np.int64)
        todo = [(self._root, np.array([n], np.uint64))]
        while todo:
            node, own = todo.pop()
            if isinstance(node, int):
                counts[node] = own[0]
            else:
                few = node.divide(own)[1]
                todo += [(node.few, few), (node.many, own - few)]
        return counts


class ScheduledMixture:
    """A mixture's global order of `n` samples whose shares may change at any position; nothing is stored.

    The draws of a source are counted through all segments. Draw d of a source with s samples is sample d % s of its
    pass d // s, and each pass is a permutation of its own: no sample is repeated before all of its source were drawn.

    Parameters
    ----------
    segments
        Sorted by first position, the first of which is 0. Sources without samples must have share 0.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        offsets: Sequence[int],
        n: int,
        segments: Sequence[Segment],
        seed: int,
        epoch: int,
        shuffle: bool,
    ) -> None:
        self.n = n
        self._sizes, self._offsets, self._dtype = sizes, offsets, index_dtype(offsets[-1] + sizes[-1])
        self._seed, self._epoch, self._shuffle = seed, epoch, shuffle
        self._starts = [position for position, _ in segments]
        keys = [int(feistel_keys(seed, epoch, SCHEDULE_STREAM + n)[0]) if shuffle else None for n in self._starts]
        self._schedules = [ShareSchedule(shares, key) for (_, shares), key in zip(segments, keys, strict=True)]
        self._drawn = [np.zeros(len(sizes), np.int64)]  # of each source before each segment
        for schedule, (start, end) in zip(self._schedules, pairwise(self._starts), strict=False):
            self._drawn.append(self._drawn[-1] + schedule.counts(end - start))

    def take(self, first: int, step: int, count: int) -> Indices:
        """Return the samples at positions first, first + step, ..., `count` of them, all within [0, n)."""
        return self.at(np.arange(first, first + step * count, step, dtype=np.int64))

    def at(self, positions: npt.NDArray[np.int64]) -> Indices:
        """Return the samples at these positions of [0, n)."""
        out = np.empty(len(positions), self._dtype)
        segments = np.searchsorted(self._starts, positions, side="right") - 1
        for segment in np.flatnonzero(np.bincount(segments)).tolist():
            where = np.flatnonzero(segments == segment)
            sources, draws = self._schedules[segment].assign(positions[where] - self._starts[segment])
            draws += self._drawn[segment][sources]
            for source in np.flatnonzero(np.bincount(sources)).tolist():
                own = np.flatnonzero(sources == source)
                out[where[own]] = self._samples(source, draws[own])
        return out

    def counts(self, position: int) -> npt.NDArray[np.int64]:
        """Return how many of the first `position` samples are of each source: int64 [sources]."""
        segment = int(np.searchsorted(self._starts, position, side="right")) - 1
        return self._drawn[segment] + self._schedules[segment].counts(position - self._starts[segment])

    def _samples(self, source: int, draws: npt.NDArray[np.int64]) -> Indices:
        """Return the samples of these draws of a source."""
        size, out = self._sizes[source], np.empty(len(draws), self._dtype)
        passes, positions = np.divmod(draws, size)
        for number in np.unique(passes).tolist():
            stream = source + 1 + number * PASS_STREAM
            order: Order = FeistelOrder(size, self._seed, self._epoch, stream) if self._shuffle else StraightOrder(size)
            own = np.flatnonzero(passes == number)
            out[own] = order.at(positions[own])
        out += self._dtype.type(self._offsets[source])
        return out
