"""The `stream_rows` kernel in Numba."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fastpack.kernels.jit import jit

BLOCK = 64
LARGEST = 0xFFFFFFFF  # stands for a count that is stored elsewhere
LARGEST_COUNT = 1 << 56  # exclusive


@jit
def _count(narrow, wide, item):
    """Return the count of an item, -1 if the column is damaged."""
    if item < 0 or item >= len(narrow):
        return np.int64(-1)
    count = np.int64(narrow[item])
    if count < LARGEST:
        return count
    low, high = 0, len(wide) // 2
    while low < high:
        middle = (low + high) // 2
        if wide[2 * middle] < item:
            low = middle + 1
        else:
            high = middle
    if low >= len(wide) // 2 or wide[2 * low] != item:
        return np.int64(-1)
    count = wide[2 * low + 1]
    return count if LARGEST <= count < LARGEST_COUNT else np.int64(-1)


@jit
def _locate(narrow, sums, wide, unit):
    """Return the item of a unit, and the number of the unit in it; item -1 if the column is damaged."""
    low, high = 0, len(sums)
    while low < high:
        middle = (low + high) // 2
        if sums[middle] <= unit:
            low = middle + 1
        else:
            high = middle
    block = low - 1
    if block < 0 or sums[block] < 0:
        return np.int64(-1), np.int64(0)
    place = unit - sums[block]
    for item in range(block * BLOCK, min((block + 1) * BLOCK, len(narrow))):
        count = _count(narrow, wide, item)
        if count < 0 or place < 0:
            break
        if place < count:
            return np.int64(item), place
        place -= count
    return np.int64(-1), np.int64(0)


@jit
def stream_segments(first, stop, seq_length, used, used_sums, used_wide, row, document, start, end):
    """Write the segments of the tokens [first[k], stop[k]) of concatenated documents.

    See `fastpack.kernels.stream_rows_np.stream_segments`.
    """
    if len(stop) != len(first):
        raise ValueError("first and stop must have one length")
    n, room = 0, min(min(len(row), len(document)), min(len(start), len(end)))
    for k in range(len(first)):
        left = stop[k] - first[k]
        if first[k] < 0 or left <= 0 or left > seq_length:
            return -1
        item, place = _locate(used, used_sums, used_wide, first[k])
        if item < 0:
            return -1
        while left > 0:
            count = _count(used, used_wide, item)
            if count < 0:
                return -1
            length = min(count - place, left)
            if length > 0:
                if n < room:
                    row[n], document[n], start[n], end[n] = k, item, place, place + length
                n += 1
            left -= length
            item, place = item + 1, np.int64(0)
    return n


def compile_all(token_dtypes: Sequence[str], out_dtypes: Sequence[str]) -> None:
    """Compile; the dtypes of tokens and outputs have no effect."""
    del token_dtypes, out_dtypes
    none, out = np.empty(0, np.int64), [np.empty(0, np.int64) for _ in range(4)]
    stream_segments(none, none, 1, np.empty(0, np.uint32), none, none, *out)
