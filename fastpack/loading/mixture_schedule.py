"""Which source each place of a mixture belongs to, computed for any place, with every source close to its share."""

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

Places: TypeAlias = npt.NDArray[np.uint64]
Segment: TypeAlias = tuple[int, Sequence[float]]  # (first place, share of each source from there on)

MASK = np.uint64(0xFFFFFFFF)
HALF = np.uint64(32)
LAST = np.uint64(0xFFFFFFFFFFFFFFFF)
SCHEDULE_STREAM = 1 << 63  # permutations of sources use the streams below
PASS_STREAM = 1 << 20  # sources that a pass has streams for


@dataclass(frozen=True)
class _Split:
    """Divides places between two sides: `few`, whose share is at most 1/2, gets one place of every 1/share.

    share: in units of 2**-64. key: selects the place at random; None selects the middle one.
    """

    share: np.uint64
    key: int | None
    few: _Split | int
    many: _Split | int

    def divide(self, places: Places) -> tuple[npt.NDArray[np.bool_], Places]:
        """Whether each place belongs to `few`, and how many of the places before it do."""
        number, rest = _product(places, self.share)  # places with the same number are a group: one of them is `few`'s
        before, after = rest // self.share, (LAST - rest) // self.share  # places of the group
        length = before + after + np.uint64(1)
        chosen = length >> np.uint64(1) if self.key is None else splitmix_array(number ^ np.uint64(self.key)) % length
        return before == chosen, number + (before > chosen)


def _product(values: Places, factor: np.uint64) -> tuple[Places, Places]:
    """The upper and the lower 64 bits of values * factor."""
    low, high = values & MASK, values >> HALF
    factor_low, factor_high = factor & MASK, factor >> HALF
    first, second = low * factor_high, high * factor_low
    carry = (low * factor_low >> HALF) + (first & MASK) + (second & MASK)
    return high * factor_high + (first >> HALF) + (second >> HALF) + (carry >> HALF), values * factor


class ShareSchedule:
    """An endless sequence of sources in which each one has its share of every prefix, within one or two places.

    Pairs of sources are split again and again, the smallest shares first (a Huffman tree). One split is off by less
    than one place, so two sources are too; the error of a split reaches a source multiplied by its share of that split,
    which the tree keeps below 2/3 for pairs, so with any number of sources no one is off by 4 places. Only integers
    are used after the shares themselves, so that every machine computes the same sequence.

    Parameters
    ----------
    shares : of each source, >= 0 and not all 0; a source with share 0 has no place.
    key : selects the sequence; None for the most regular one.
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

    def assign(self, places: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The source of each place, and how many of the places before it have the same source: both int64."""
        sources, numbers = np.empty(len(places), np.int64), np.empty(len(places), np.int64)
        todo = [(self._root, np.arange(len(places)), places.astype(np.uint64))]
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
        """How many of the first `n` places each source has: int64 [sources]."""
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
    """A mixture's global order of `n` samples whose shares may change at any place; nothing of it is stored.

    The draws of a source are counted through all segments. Draw d of a source with s samples is sample d % s of its
    pass d // s, and each pass is a permutation of its own: no sample comes again before all of its source have come.

    Parameters
    ----------
    segments : by first place, the first of which is 0. Sources without samples must have share 0.
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
        self._starts = [place for place, _ in segments]
        keys = [int(feistel_keys(seed, epoch, SCHEDULE_STREAM + n)[0]) if shuffle else None for n in self._starts]
        self._schedules = [ShareSchedule(shares, key) for (_, shares), key in zip(segments, keys, strict=True)]
        self._drawn = [np.zeros(len(sizes), np.int64)]  # of each source before each segment
        for schedule, (start, end) in zip(self._schedules, pairwise(self._starts), strict=False):
            self._drawn.append(self._drawn[-1] + schedule.counts(end - start))

    def take(self, first: int, step: int, count: int) -> Indices:
        """The samples at places first, first + step, ..., `count` of them, all within [0, n)."""
        return self.at(np.arange(first, first + step * count, step, dtype=np.int64))

    def at(self, places: npt.NDArray[np.int64]) -> Indices:
        """The samples at these places of [0, n)."""
        out = np.empty(len(places), self._dtype)
        segments = np.searchsorted(self._starts, places, side="right") - 1
        for segment in np.flatnonzero(np.bincount(segments)).tolist():
            where = np.flatnonzero(segments == segment)
            sources, draws = self._schedules[segment].assign(places[where] - self._starts[segment])
            draws += self._drawn[segment][sources]
            for source in np.flatnonzero(np.bincount(sources)).tolist():
                own = np.flatnonzero(sources == source)
                out[where[own]] = self._samples(source, draws[own])
        return out

    def counts(self, place: int) -> npt.NDArray[np.int64]:
        """How many of the first `place` samples are of each source: int64 [sources]."""
        segment = int(np.searchsorted(self._starts, place, side="right")) - 1
        return self._drawn[segment] + self._schedules[segment].counts(place - self._starts[segment])

    def _samples(self, source: int, draws: npt.NDArray[np.int64]) -> Indices:
        """The samples that are these draws of a source."""
        size, out = self._sizes[source], np.empty(len(draws), self._dtype)
        passes, places = np.divmod(draws, size)
        for number in np.unique(passes).tolist():
            stream = source + 1 + number * PASS_STREAM
            order: Order = FeistelOrder(size, self._seed, self._epoch, stream) if self._shuffle else StraightOrder(size)
            own = np.flatnonzero(passes == number)
            out[own] = order.at(places[own])
        out += self._dtype.type(self._offsets[source])
        return out
