"""Rows that divide concatenated documents: the specification of the `stream_rows` kernel, in NumPy.

The tokens of documents are three arrays, as `fastpack.plans.count_column` describes: the counts (uint32), int64 sums
before every block of 64 documents, and int64 pairs of document and count for counts that uint32 cannot hold.
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

    Each segment is k, the number of its document, and its tokens [start, end) there.

    first, stop: int64 [k]. used, used_sums, used_wide: the tokens per document. row, document, start, end: int64 [m].

    Returns the number of segments; if it exceeds m, only the first m are written. Returns -1 for tokens that do not
    exist, and for more than seq_length of them.
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
            for segment in found:
                if n < min(map(len, (row, document, start, end))):
                    row[n], document[n], start[n], end[n] = position, *segment
                n += 1
    except _DamagedError:
        return -1
    return n


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
