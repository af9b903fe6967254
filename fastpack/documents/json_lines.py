"""Finds the lines of a JSON Lines file, and those that `json.loads` rejects."""

from __future__ import annotations

import json
from collections.abc import Generator
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from fastpack import kernels
from fastpack.io import ByteArray, Progress, drop_pages, peek

Data: TypeAlias = ByteArray
Rows: TypeAlias = npt.NDArray[np.int64]
Faults: TypeAlias = list[tuple[int, Exception]]  # (row, error of json.loads)

_WINDOW = 4 << 20  # bytes scanned at once: lines are validated while they are in the cache
_CHUNK = 32_768  # rows at once: with fewer, kernel calls cost time; more do not fit the second-level cache
_SEARCH_BYTES = 64 << 10  # bytes searched for a newline at once
_DROP_BYTES = 32 << 20  # bytes whose pages are dropped together
_COUNT_BYTES = 64 << 20  # bytes whose newlines are counted at once


def scan_lines(
    data: Data, progress: Progress | None = None, *, start: int = 0, end: int | None = None
) -> Generator[Rows]:
    """Yield the rows int64 [k, 2], (offset, length without the newline), of all lines of a file, in chunks.

    The buffer of a chunk is reused for the next one. A last line without a newline counts as a line. Pages of lines
    that the caller has processed are dropped. `progress` receives (bytes scanned, total bytes). `start` and `end` limit
    the scan to a range; both are starts of lines.
    """
    buffer = np.empty((_CHUNK, 2), np.int64)
    n_bytes, line_start = len(data) if end is None else end, start
    dropped = unused = start  # pages are dropped up to here; no line from `unused` on has been yielded before
    for first in range(start, n_bytes, _WINDOW):
        window = data[first : min(first + _WINDOW, n_bytes)]
        base = first
        while len(window):
            n_rows, consumed, line_start = kernels.index_lines(window, base, line_start, buffer)
            window, base = window[consumed:], base + consumed
            if n_rows:
                yield buffer[:n_rows]
        if base - dropped >= _DROP_BYTES:
            drop_pages(data, unused, base)
            dropped, unused = base, line_start
        if progress is not None:
            progress(base, n_bytes)
    if line_start < n_bytes:  # the last line has no newline
        yield np.array([[line_start, n_bytes - line_start]])


def count_lines(data: Data, progress: Progress | None = None, *, end: int | None = None) -> int:
    """Return the number of lines before `end`, including a last one without a newline; counted pages are dropped.

    `progress` receives (bytes counted, total bytes).
    """
    n_bytes, n_lines = len(data) if end is None else end, 0
    for first in range(0, n_bytes, _COUNT_BYTES):
        last = min(first + _COUNT_BYTES, n_bytes)
        n_lines += kernels.count_newlines(data[first:last])
        drop_pages(data, first, last)
        if progress is not None:
            progress(last, n_bytes)
    return n_lines + bool(n_bytes and data[n_bytes - 1 : n_bytes][0] != ord("\n"))


def line_start_from(data: Data, offset: int) -> int:
    """Return the first start of a line at or after `offset`; the end of the data if there is none."""
    for first in range(max(0, offset - 1), len(data), _SEARCH_BYTES) if offset else ():
        found = peek(data, first, first + _SEARCH_BYTES).tobytes().find(b"\n")
        if found >= 0:
            return first + found + 1
    return len(data) if offset else 0


def faulty_lines(data: Data, rows: Rows) -> Faults:
    """Return the rows of int64 [n, 2], (offset, length) in `data`, that are not JSON, each with the error.

    The kernel accepts most lines; json.loads decides about the others.
    """
    text, rows = _contiguous(data, rows)
    verdict = np.empty(len(rows), np.uint8)
    kernels.validate_json_rows(text, rows, verdict)
    faults: Faults = []
    for i in np.flatnonzero(verdict == 0).tolist():
        offset, length = rows[i].tolist()
        error = json_fault(text[offset : offset + length].tobytes())
        if error is not None:
            faults.append((i, error))
    return faults


def _contiguous(data: Data, rows: Rows) -> tuple[npt.NDArray[np.uint8], Rows]:
    """Return an array with the lines, and their rows in it; of an object in a store, one range is read."""
    if isinstance(data, np.ndarray):
        return data, rows
    first = int(rows[:, 0].min(initial=len(data)))
    return data[first : int(rows.sum(axis=1).max(initial=0))], rows - np.array([first, 0])


def json_fault(line: bytes) -> Exception | None:
    """Return the error that `json.loads` raises for a line; None if it accepts it."""
    try:
        json.loads(line)
    except MemoryError:  # not a property of the line
        raise
    except Exception as error:  # including RecursionError, and ValueError for huge integers
        return error.with_traceback(None)  # its frames would keep the mapping alive in a reference cycle
    return None
