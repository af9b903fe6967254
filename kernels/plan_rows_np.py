"""Reading rows of a packing plan. The specification, in NumPy; `fastpack.plans.plan_layout` describes the file."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

BLOCK = 64  # items of a column between two sums
LARGEST = 255  # stands for a count that is stored elsewhere
OTHERWISE = -1  # of the results: read these rows in another way


def read_rows(
    rows: Integers, capacity: int, full: Bytes, full_sums: Integers, sizes: Bytes, size_sums: Integers, pieces: Bytes,
    length_bits: int, width: int, out: Integers
) -> int:  # fmt: skip
    """Write the segments of rows in the order in which a plan stores them; return their number.

    rows: int64 [k]. capacity: tokens of a row. full, full_sums: how many rows each document fills, uint8, and their
    sum before each block of 64 documents, int64. These rows come first. sizes, size_sums: the same for the number of
    pieces of the other rows. pieces: document << length_bits | length of each piece, in `width` bytes, little-endian.
    out: int64 [4, n]; receives position in `rows`, document, start and end of each segment.

    Returns OTHERWISE, -1, for counts of 255 or more, and for everything that is not valid. Returns -1 - n if `out` has
    space for less than the n segments of the rows up to the one that does not fit. Raises ValueError for another
    shape of `out`, and for pieces of more than 8 bytes.
    """
    if out.shape[0] != 4 or not 1 <= width <= 8 or not 1 <= length_bits < 63:
        raise ValueError("out must have four rows, and a piece 1 to 8 bytes")
    n_full = int(full_sums[-1]) + int(full[BLOCK * (len(full_sums) - 1) :].sum()) if len(full_sums) else 0
    done = 0
    for position, row in enumerate(rows.tolist()):
        if 0 <= row < n_full:
            found = [_full_row(row, capacity, full, full_sums)]
        else:
            found = _other_row(row - n_full, capacity, full, sizes, size_sums, pieces, length_bits, width)
        if not found or None in found:
            return OTHERWISE
        if done + len(found) > out.shape[1]:
            return -1 - done - len(found)
        for segment in found:
            out[:, done] = (position, *segment)  # type: ignore[misc]
            done += 1
    return done


def _full_row(row: int, capacity: int, full: Bytes, full_sums: Integers) -> tuple[int, int, int] | None:
    block = int(np.searchsorted(full_sums, row, "right")) - 1
    if block < 0:
        return None
    number = row - int(full_sums[block])
    for document, count in enumerate(full[BLOCK * block : BLOCK * (block + 1)].tolist(), BLOCK * block):
        if count == LARGEST:
            return None
        if number < count:
            return document, number * capacity, (number + 1) * capacity
        number -= count
    return None


def _other_row(
    row: int, capacity: int, full: Bytes, sizes: Bytes, size_sums: Integers, pieces: Bytes, length_bits: int, width: int
) -> list[Any]:
    block = row // BLOCK
    before = sizes[BLOCK * block : row + 1] if 0 <= row < len(sizes) and block < len(size_sums) else sizes[:0]
    if not len(before) or (before == LARGEST).any():
        return []
    end = int(size_sums[block]) + int(before.sum())
    start = end - int(before[-1])
    if not 0 <= start <= end <= len(pieces) // width:
        return []
    found: list[Any] = []
    left = capacity
    for place in range(start, end):
        piece = int.from_bytes(pieces[place * width : (place + 1) * width].tobytes(), "little")
        document, length = piece >> length_bits, piece & ((1 << length_bits) - 1)
        left -= length
        if document >= len(full) or full[document] == LARGEST or length == 0 or left < 0:
            return []
        first = int(full[document]) * capacity
        found.append((document, first, first + length))
    return found
