"""The source of each position of a mixture, computed for any position, with every source close to its share."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from fastpack.datasets.permutations import splitmix, splitmix_array

Positions: TypeAlias = npt.NDArray[np.uint64]

MASK = np.uint64(0xFFFFFFFF)
HALF = np.uint64(32)
LAST = np.uint64(0xFFFFFFFFFFFFFFFF)
SCHEDULE_STREAM = 1 << 63  # the permutations of sources use smaller stream numbers


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
