"""The `plan_rows` kernel in Numba."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fastpack.kernels.jit import jit

BLOCK, LARGEST, OTHERWISE = 64, 255, -1


@jit
def _full_row(row, capacity, full, full_sums, out, done):
    """Write the segment of a row that one document fills; return whether it is valid."""
    low, high = np.int64(0), np.int64(len(full_sums))
    while low < high:
        middle = (low + high) >> 1
        if full_sums[middle] <= row:
            low = middle + 1
        else:
            high = middle
    if low == 0:
        return False
    number = row - full_sums[low - 1]
    for document in range(BLOCK * (low - 1), min(BLOCK * low, np.int64(len(full)))):
        count = np.int64(full[document])
        if count == LARGEST or number < 0:
            return False
        if number < count:
            out[1, done], out[2, done], out[3, done] = document, number * capacity, (number + 1) * capacity
            return True
        number -= count
    return False


@jit
def _other_row(row, start, end, capacity, full, pieces, length_bits, width, out, done):
    """Write the segments of pieces [start, end); return whether they are valid."""
    left, mask = np.int64(capacity), (np.uint64(1) << np.uint64(length_bits)) - np.uint64(1)
    for place in range(start, end):
        piece = np.uint64(0)
        for k in range(width):
            piece |= np.uint64(pieces[place * width + k]) << np.uint64(8 * k)
        document, length = np.int64(piece >> np.uint64(length_bits)), np.int64(piece & mask)
        left -= length
        if document < 0 or document >= len(full) or length == 0 or left < 0:
            return False
        count = np.int64(full[document])
        if count == LARGEST:
            return False
        out[0, done], out[1, done] = row, document
        out[2, done], out[3, done] = count * capacity, count * capacity + length
        done += 1
    return True


@jit
def read_rows(rows, capacity, full, full_sums, sizes, size_sums, pieces, length_bits, width, out):
    """Write the segments of rows in the order in which a plan stores them; return their number.

    See `fastpack.kernels.plan_rows_np.read_rows`.
    """
    if len(out) != 4:
        raise ValueError("out must have four rows")
    if width < 1 or width > 8 or length_bits < 1 or length_bits > 62:
        raise ValueError("a piece has 1 to 8 bytes")
    n_full, done, n_pieces = np.int64(0), np.int64(0), np.int64(len(pieces) // width)
    if len(full_sums):
        n_full = full_sums[len(full_sums) - 1]
        for k in range(BLOCK * (len(full_sums) - 1), len(full)):
            n_full += full[k]
    for position in range(len(rows)):
        row = rows[position]
        start, end = np.int64(0), np.int64(1)
        if row < 0 or row >= n_full:
            other = row - n_full
            if row < 0 or other >= len(sizes) or other // BLOCK >= len(size_sums):
                return OTHERWISE
            end = size_sums[other // BLOCK]
            for k in range(other // BLOCK * BLOCK, other + 1):
                if sizes[k] == LARGEST:
                    return OTHERWISE
                start = end
                end += sizes[k]
            if start < 0 or end > n_pieces or start >= end:
                return OTHERWISE
        if done + (end - start) > out.shape[1]:
            return -1 - done - (end - start)
        if row < n_full:
            out[0, done] = position
            valid = _full_row(row, capacity, full, full_sums, out, done)
        else:
            valid = _other_row(position, start, end, capacity, full, pieces, length_bits, width, out, done)
        if not valid:
            return OTHERWISE
        done += end - start
    return done


def compile_all(_token_dtypes: Sequence[str], _out_dtypes: Sequence[str]) -> None:
    """Compile for the read-only arrays of a mapped plan; the arguments do not matter here."""
    data, sums = np.zeros(1, np.uint8), np.zeros(1, np.int64)
    data.flags.writeable = sums.flags.writeable = False
    read_rows(np.zeros(1, np.int64), 2, data, sums, data, sums, data, 1, 1, np.zeros((4, 1), np.int64))
