"""The `shares` kernels in Numba."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fastpack.kernels.jit import jit

NODE = np.uint64(1 << 63)
LAST = np.uint64(0xFFFFFFFFFFFFFFFF)


@jit
def _splitmix(state):
    value = state + np.uint64(0x9E3779B97F4A7C15)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


@jit
def _take_smallest(sums, n):
    """Return the number of the smallest sum of the first n, and mark it as taken."""
    found, smallest = np.int64(-1), np.inf
    for i in range(n):
        if 0.0 < sums[i] < smallest:
            found, smallest = np.int64(i), sums[i]
    if found < 0:
        raise ValueError("shares must be above 0 and finite")
    sums[found] = -1.0
    return found, smallest


@jit
def _side(sources, i):
    return np.uint64(sources[i]) if i < len(sources) else NODE + np.uint64(i - len(sources))


@jit
def share_tree(sources, sums, key, tree):
    """Write the tree of k shares.

    See `fastpack.kernels.shares_np.share_tree`.
    """
    k = len(sources)
    if not k or len(sums) != 2 * k - 1 or tree.shape[0] != k or tree.shape[1] != 4:
        raise ValueError("k sources need 2 k - 1 sums and a tree [k, 4]")
    for row in range(k - 1):
        few, small = _take_smallest(sums, k + row)
        many, large = _take_smallest(sums, k + row)
        units = np.rint(small / (small + large) * 18446744073709551616.0)
        tree[row, 0] = np.uint64(min(9223372036854775808.0, max(2.0, units)))
        tree[row, 1] = _splitmix(np.uint64(key) ^ np.uint64(k + row))
        tree[row, 2], tree[row, 3] = _side(sources, few), _side(sources, many)
        sums[k + row] = small + large
    last, _ = _take_smallest(sums, 2 * k - 1)
    tree[k - 1, 0], tree[k - 1, 1], tree[k - 1, 3] = np.uint64(0), np.uint64(0), np.uint64(0)
    tree[k - 1, 2] = _side(sources, last)


@jit
def _product(value, factor):
    """Return the upper and the lower 64 bits of value * factor."""
    mask, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    low, high = value & mask, value >> half
    factor_low, factor_high = factor & mask, factor >> half
    first, second = low * factor_high, high * factor_low
    carry = ((low * factor_low) >> half) + (first & mask) + (second & mask)
    return high * factor_high + (first >> half) + (second >> half) + (carry >> half), value * factor


@jit
def _divide(position, units, key, mixed):
    """Return whether a position belongs to `few`, and how many of the positions before it do."""
    if units < np.uint64(2):
        raise ValueError("the tree has a share below 2 units")
    number, rest = _product(position, units)
    before, after = rest // units, (LAST - rest) // units
    length = before + after + np.uint64(1)
    chosen = _splitmix(number ^ key) % length if mixed else length >> np.uint64(1)
    return before == chosen, number + np.uint64(before > chosen)


@jit
def _give(side, row, number, below, counts):
    if side >= NODE + np.uint64(row) or np.uint64(len(counts)) <= side < NODE:
        raise ValueError("the tree has a side that is neither a source nor a row before it")
    if side < NODE:
        counts[np.int64(side)] = number
    else:
        below[np.int64(side - NODE)] = number


@jit
def share_counts(tree, mixed, positions, below, counts):
    """Write how many of the positions before each of some positions each source has.

    See `fastpack.kernels.shares_np.share_counts`.
    """
    k = len(tree)
    if not k or len(below) != k or tree.shape[1] != 4 or len(counts) != len(positions):
        raise ValueError("a tree [k, 4] of k > 0 rows, room for k numbers, and counts [n, sources] are needed")
    for i in range(len(positions)):
        _give(tree[k - 1, 2], k - 1, np.uint64(positions[i]), below, counts[i])
        for row in range(k - 2, -1, -1):
            own = below[row]
            _, before = _divide(own, tree[row, 0], tree[row, 1], mixed)
            _give(tree[row, 2], row, before, below, counts[i])
            _give(tree[row, 3], row, own - before, below, counts[i])


@jit
def share_sources(tree, mixed, positions, sources, draws):
    """Write the source of each position, and how many positions before it have the same source.

    See `fastpack.kernels.shares_np.share_sources`.
    """
    if not len(tree) or tree.shape[1] != 4 or not len(positions) == len(sources) == len(draws):
        raise ValueError("a tree [k, 4] of k > 0 rows, and arrays of one length, are needed")
    for i in range(len(positions)):
        position, row = np.uint64(positions[i]), np.int64(len(tree) - 1)
        side = tree[row, 2]
        while side >= NODE:
            if side >= NODE + np.uint64(row):
                raise ValueError("the tree has a side that is neither a source nor a row before it")
            row = np.int64(side - NODE)
            is_few, before = _divide(position, tree[row, 0], tree[row, 1], mixed)
            position, side = (before, tree[row, 2]) if is_few else (position - before, tree[row, 3])
        sources[i], draws[i] = np.int64(side), np.int64(position)


def compile_all(_token_dtypes: Sequence[str], _out_dtypes: Sequence[str]) -> None:
    """Compile; the arguments do not matter here."""
    tree, one = np.empty((1, 4), np.uint64), np.zeros(1, np.int64)
    share_tree(one, np.ones(1), np.uint64(0), tree)
    share_counts(tree, True, one, np.empty(1, np.uint64), np.zeros((1, 1), np.int64))
    share_sources(tree, True, one, one.copy(), one.copy())
