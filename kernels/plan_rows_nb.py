"""The `plan_rows` kernels in Numba."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fastpack.kernels.jit import jit

BLOCK = 64
LARGEST_SUM, LARGEST_COUNT = 1 << 62, 1 << 56  # exclusive


@jit
def _count(narrow, wide, item):
    """Return the count of an item, -1 if the column is damaged."""
    if item < 0 or item >= len(narrow):
        return np.int64(-1)
    count, largest = np.int64(narrow[item]), np.int64(255) if narrow.itemsize == 1 else np.int64(0xFFFFFFFF)
    if count < largest:
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
    return count if largest <= count < LARGEST_COUNT else np.int64(-1)


@jit
def _first(narrow, sums, wide, item):
    """Return the first unit of an item, -1 if the column is damaged."""
    block = item // BLOCK
    if block < 0 or block >= len(sums) or sums[block] < 0 or sums[block] >= LARGEST_SUM:
        return np.int64(-1)
    first = sums[block]
    for other in range(block * BLOCK, item):
        count = _count(narrow, wide, other)
        if count < 0:
            return np.int64(-1)
        first += count
    return first


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
def bin_segments(
    stored,
    n_full_rows,
    seq_length,
    full,
    full_sums,
    full_wide,
    counts,
    counts_sums,
    counts_wide,
    pieces,
    piece_bytes,
    length_bits,
    row,
    document,
    start,
    end,
):
    """Write the segments of rows of a plan of bins: position in `stored`, document, first token, end token.

    See `fastpack.kernels.plan_rows_np.bin_segments`.
    """
    n, room = 0, min(min(len(row), len(document)), min(len(start), len(end)))
    n_pieces = len(pieces) // piece_bytes
    mask = (np.int64(1) << length_bits) - 1
    for k in range(len(stored)):
        if stored[k] < n_full_rows:
            item, place = _locate(full, full_sums, full_wide, stored[k])
            if item < 0 or place >= LARGEST_SUM // seq_length - 1:
                return -1
            if n < room:
                row[n], document[n], start[n], end[n] = k, item, place * seq_length, (place + 1) * seq_length
            n += 1
            continue
        first = _first(counts, counts_sums, counts_wide, stored[k] - n_full_rows)
        count = _count(counts, counts_wide, stored[k] - n_full_rows)
        if first < 0 or count <= 0 or first > n_pieces - count:
            return -1
        left = np.int64(seq_length)
        for at in range(first, first + count):
            value = np.int64(0)
            for byte in range(piece_bytes):
                value |= np.int64(pieces[at * piece_bytes + byte]) << (8 * byte)
            item, length = value >> length_bits, value & mask
            whole = _count(full, full_wide, item)
            left -= length
            if whole < 0 or whole >= LARGEST_SUM // seq_length - 1 or length <= 0 or left < 0:
                return -1
            if n < room:
                row[n], document[n] = k, item
                start[n], end[n] = whole * seq_length, whole * seq_length + length
            n += 1
    return n


@jit
def stream_segments(first, stop, seq_length, used, used_sums, used_wide, row, document, start, end):
    """Write the segments of the tokens [first[k], stop[k]) of concatenated documents.

    See `fastpack.kernels.plan_rows_np.stream_segments`.
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
    narrow = np.empty(0, np.uint8)
    bin_segments(none, 0, 1, narrow, none, none, narrow, none, none, narrow, 1, 1, *out)
    stream_segments(none, none, 1, np.empty(0, np.uint32), none, none, *out)
