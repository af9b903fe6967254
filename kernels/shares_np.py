"""The source of each position of a mixture, with every source close to its share of any prefix. The specification.

The shares are the leaves of a Huffman tree: two sides are joined at a time, those with the smallest shares. A split
divides positions between its sides: `few`, whose share is at most 1/2, gets one position of each group of 1 / share
consecutive ones. After the shares themselves only integers are used, so every machine computes the same sequence.

tree: uint64 [k, 4] for k sources. Row j < k - 1 is a split: the share of `few` in units of 2^-64, a key, and the two
sides, `few` and `many`. The last row has the whole tree as `few`. A side is a source, or NODE + the number of a row.
"""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np
import numpy.typing as npt

NODE = 1 << 63
MASK = (1 << 64) - 1
Tree = npt.NDArray[np.uint64]


def share_tree(sources: npt.NDArray[np.int64], sums: npt.NDArray[np.float64], key: int | np.uint64, tree: Tree) -> None:
    """Write the tree of k shares.

    sources: int64 [k], the number of each. sums: float64 [2 k - 1], the shares (> 0) and room; it is overwritten. key:
    the seed of the keys. tree: uint64 [k, 4]. Raises ValueError if the lengths do not fit, or for other shares.
    """
    k = len(sources)
    if not k or len(sums) != 2 * k - 1 or tree.shape != (k, 4):
        raise ValueError("k sources need 2 k - 1 sums and a tree [k, 4]")
    if not (sums[:k] > 0).all() or not np.isfinite(sums[:k]).all():
        raise ValueError("shares must be above 0 and finite")
    heap: list[Any] = [(sums[i], i, int(sources[i])) for i in range(k)]
    heapq.heapify(heap)
    for row in range(k - 1):
        (small, _, few), (large, _, many) = heapq.heappop(heap), heapq.heappop(heap)
        units = min(1 << 63, max(2, round(float(small / (small + large)) * 2.0**64)))
        tree[row] = units, _splitmix(int(key) ^ (k + row)), few, many
        heapq.heappush(heap, (small + large, k + row, NODE + row))
    tree[k - 1] = 0, 0, heap[0][2], 0


def share_counts(
    tree: Tree,
    mixed: bool,
    positions: npt.NDArray[np.int64],
    below: npt.NDArray[np.uint64],
    counts: npt.NDArray[np.int64],
) -> None:
    """Write how many of the positions before each of some positions each source has.

    mixed: select a position of each group by the keys; otherwise the middle one. positions: int64 [n]. below: uint64
    [k], room. counts: int64 [n, sources]; those of sources that the tree lacks are kept. Raises ValueError for a tree
    with other sides.
    """

    def give(side: int, row: int, number: int, own_counts: npt.NDArray[np.int64]) -> None:
        _check_side(side, row, len(own_counts))
        if side < NODE:
            own_counts[side] = number
        else:
            below[side - NODE] = number

    if not len(tree) or len(below) != len(tree) or len(counts) != len(positions):
        raise ValueError("a tree [k, 4] of k > 0 rows, room for k numbers, and counts [n, sources] are needed")
    for position, own_counts in zip(positions.tolist(), counts, strict=True):
        give(int(tree[-1, 2]), len(tree) - 1, position, own_counts)
        for row in range(len(tree) - 2, -1, -1):
            units, key, few, many = tree[row].tolist()
            before = _divide(int(below[row]), units, key, mixed)[1]
            give(few, row, before, own_counts)
            give(many, row, int(below[row]) - before, own_counts)


def share_sources(
    tree: Tree,
    mixed: bool,
    positions: npt.NDArray[np.int64],
    sources: npt.NDArray[np.int64],
    draws: npt.NDArray[np.int64],
) -> None:
    """Write the source of each position, and how many positions before it have the same source.

    mixed: as for `share_counts`. positions, sources, draws: int64 [n]. Raises ValueError for a tree with other sides.
    """
    if not len(tree) or not len(positions) == len(sources) == len(draws):
        raise ValueError("a tree [k, 4] of k > 0 rows, and arrays of one length, are needed")
    for i, position in enumerate(positions.tolist()):
        row = len(tree) - 1
        side = int(tree[row, 2])
        while side >= NODE:
            _check_side(side, row, 0)
            row = side - NODE
            units, key, few, many = tree[row].tolist()
            is_few, before = _divide(position, units, key, mixed)
            position, side = (before, few) if is_few else (position - before, many)
        sources[i], draws[i] = side, position


def _check_side(side: int, row: int, n_sources: int) -> None:
    """Raise ValueError for a side that is neither a source nor a row before `row`."""
    if side >= NODE + row or n_sources <= side < NODE:
        raise ValueError("the tree has a side that is neither a source nor a row before it")


def _divide(position: int, units: int, key: int, mixed: bool) -> tuple[bool, int]:
    """Return whether a position belongs to `few`, and how many of the positions before it do."""
    if units < 2:
        raise ValueError("the tree has a share below 2 units")
    number, rest = divmod(position * units, 1 << 64)  # one position of each number belongs to `few`
    before, after = rest // units, (MASK - rest) // units  # positions of the group
    length = before + after + 1
    chosen = _splitmix(number ^ key) % length if mixed else length >> 1
    return before == chosen, number + (before > chosen)


def _splitmix(state: int) -> int:
    value = (state + 0x9E3779B97F4A7C15) & MASK
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & MASK
    value = (value ^ value >> 27) * 0x94D049BB133111EB & MASK
    return value ^ value >> 31
