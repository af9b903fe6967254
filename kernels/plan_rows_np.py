"""The segments of rows of packing plans: the specification of the `plan_rows` kernels, in NumPy.

A column of counts is three arrays, as `fastpack.plans.count_column` describes: the counts (uint8 or uint32), int64
sums before every block of 64 items, and int64 pairs of item and count for counts that the narrow dtype cannot hold.
The arrays come from a file that may be damaged: whatever they contain, nothing outside of them is accessed.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Numbers: TypeAlias = npt.NDArray[np.int64]
Column: TypeAlias = tuple[npt.NDArray[Any], Numbers, Numbers]

BLOCK = 64
LARGEST_SUM, LARGEST_COUNT = 1 << 62, 1 << 56  # exclusive


class _DamagedError(Exception):
    pass


def bin_segments(
    stored: Numbers,
    n_full_rows: int,
    seq_length: int,
    full: npt.NDArray[np.uint8],
    full_sums: Numbers,
    full_wide: Numbers,
    counts: npt.NDArray[np.uint8],
    counts_sums: Numbers,
    counts_wide: Numbers,
    pieces: npt.NDArray[np.uint8],
    piece_bytes: int,
    length_bits: int,
    row: Numbers,
    document: Numbers,
    start: Numbers,
    end: Numbers,
) -> int:
    """Write the segments of rows of a plan of bins: position in `stored`, document, first token, end token.

    stored: int64 [k], at least 0. full: the column of full rows per document. counts: the column of pieces per other
    row. pieces: uint8 [n * piece_bytes], little-endian: document << length_bits | length. row, document, start, end:
    int64 [m].

    Returns the number of segments; if it exceeds m, only the first m are written. Returns -1 if the plan is damaged: a
    row, a piece or a document that does not exist, a segment without tokens, or more than seq_length tokens in a row.
    """
    n = 0
    try:
        for position, number in enumerate(stored.tolist()):
            if number < n_full_rows:
                item, place = _locate((full, full_sums, full_wide), number)
                found = [(item, place * seq_length, (place + 1) * seq_length)]
            else:
                places = _units((counts, counts_sums, counts_wide), number - n_full_rows)
                found = []
                for value in _pieces(pieces, piece_bytes, places):
                    item, length = value >> length_bits, value & ((1 << length_bits) - 1)
                    first = _count((full, full_sums, full_wide), item) * seq_length
                    found.append((item, first, first + length))
            n = _append(n, position, found, seq_length, (row, document, start, end))
    except _DamagedError:
        return -1
    return n


def stream_segments(
    first: Numbers,
    stop: Numbers,
    seq_length: int,
    used: npt.NDArray[np.uint32],
    used_sums: Numbers,
    used_wide: Numbers,
    row: Numbers,
    document: Numbers,
    start: Numbers,
    end: Numbers,
) -> int:
    """Write the segments of the tokens [first[k], stop[k]) of concatenated documents.

    used: the column of tokens per document. Otherwise as `bin_segments`.
    """
    if len(first) != len(stop):
        raise ValueError("first and stop must have one length")
    n = 0
    try:
        for position, (token, stop_token) in enumerate(zip(first.tolist(), stop.tolist(), strict=True)):
            left, found = stop_token - token, []
            if token < 0 or not 0 < left <= seq_length:
                return -1
            item, place = _locate((used, used_sums, used_wide), token)
            while left > 0:
                length = min(_count((used, used_sums, used_wide), item) - place, left)
                if length > 0:
                    found.append((item, place, place + length))
                left, item, place = left - length, item + 1, 0
            n = _append(n, position, found, seq_length, (row, document, start, end))
    except _DamagedError:
        return -1
    return n


def _append(n: int, position: int, found: list[tuple[int, int, int]], seq_length: int, out: tuple[Numbers, ...]) -> int:
    """Write the segments of one row after `n` others; return the number of all."""
    lengths = [end - start for _, start, end in found]
    largest = max((end for _, _, end in found), default=0)
    if not lengths or min(lengths) <= 0 or sum(lengths) > seq_length or largest >= LARGEST_SUM - seq_length:
        raise _DamagedError
    for k, segment in enumerate(found[: max(0, len(out[0]) - n)]):
        for array, value in zip(out, (position, *segment), strict=True):
            array[n + k] = value
    return n + len(found)


def _count(column: Column, item: int) -> int:
    narrow, _, wide = column
    if not 0 <= item < len(narrow):
        raise _DamagedError
    count, largest = int(narrow[item]), int(np.iinfo(narrow.dtype).max)
    if count < largest:
        return count
    items, counts = wide[::2], wide[1::2]
    place = bisect_left(items.tolist(), item)
    if place == len(counts) or items[place] != item or not largest <= counts[place] < LARGEST_COUNT:
        raise _DamagedError
    return int(counts[place])


def _sum_before(column: Column, block: int) -> int:
    sums = column[1]
    if not 0 <= block < len(sums) or not 0 <= sums[block] < LARGEST_SUM:
        raise _DamagedError
    return int(sums[block])


def _units(column: Column, item: int) -> range:
    """Return the units of an item."""
    first = _sum_before(column, item // BLOCK)
    first += sum(_count(column, other) for other in range(item // BLOCK * BLOCK, item))
    return range(first, first + _count(column, item))


def _locate(column: Column, unit: int) -> tuple[int, int]:
    """Return the item of a unit, and the number of the unit in it."""
    block = int(np.searchsorted(column[1], unit, side="right")) - 1
    place = unit - _sum_before(column, block)
    for item in range(block * BLOCK, min((block + 1) * BLOCK, len(column[0]))):
        count = _count(column, item)
        if 0 <= place < count:
            return item, place
        place -= count
    raise _DamagedError


def _pieces(pieces: npt.NDArray[np.uint8], n_bytes: int, places: range) -> list[int]:
    if places.stop * n_bytes > len(pieces):
        raise _DamagedError
    return [int.from_bytes(pieces[at * n_bytes : (at + 1) * n_bytes].tobytes(), "little") for at in places]
