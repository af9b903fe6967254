"""The lines of a JSON lines file, and which of them are no JSON, as `json.loads` judges them."""

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
Faults: TypeAlias = list[tuple[int, Exception]]  # (row, what json.loads said)

_WINDOW = 4 << 20  # bytes scanned at once: lines just scanned are validated while they are in the cache
_CHUNK = 32_768  # rows at once: fewer make the calls between kernels felt, more leave the second-level cache
_LOOK = 64 << 10  # bytes in which a newline is looked for at once
_DROP = 32 << 20  # pages are given back in pieces of this size


def scan_lines(
    data: Data, progress: Progress | None = None, *, start: int = 0, end: int | None = None
) -> Generator[Rows]:
    """The rows int64[k, 2], (offset, length without the newline), of all lines of a file, a chunk at a time.

    They are in one buffer that is used again for the next chunk. A last line without a newline is a line as well. The
    pages of lines that the caller has seen are given back. progress(bytes scanned, in all). start, end: of the part
    that is looked at, where lines begin.
    """
    buffer = np.empty((_CHUNK, 2), np.int64)
    n_bytes, line_start = len(data) if end is None else end, start
    dropped = unused = start  # pages given back up to here; no line from `unused` on was judged before that
    for first in range(start, n_bytes, _WINDOW):
        window = data[first : min(first + _WINDOW, n_bytes)]
        base = first
        while len(window):
            n_rows, consumed, line_start = kernels.index_lines(window, base, line_start, buffer)
            window, base = window[consumed:], base + consumed
            if n_rows:
                yield buffer[:n_rows]
        if base - dropped >= _DROP:
            drop_pages(data, unused, base)
            dropped, unused = base, line_start
        if progress is not None:
            progress(base, n_bytes)
    if line_start < n_bytes:  # the last line has no newline
        yield np.array([[line_start, n_bytes - line_start]])


def line_start_from(data: Data, offset: int) -> int:
    """Where the first line begins that begins at `offset` or behind it; the end of the data where there is none."""
    for first in range(max(0, offset - 1), len(data), _LOOK) if offset else ():
        found = peek(data, first, first + _LOOK).tobytes().find(b"\n")
        if found >= 0:
            return first + found + 1
    return len(data) if offset else 0


def faulty_lines(data: Data, rows: Rows) -> Faults:
    """The rows of int64[n, 2], (offset, length) in `data`, that are no JSON, each with the reason.

    The kernel accepts most lines at a glance, json.loads has the last word.
    """
    text, rows = _together(data, rows)
    verdict = np.empty(len(rows), np.uint8)
    kernels.validate_json_rows(text, rows, verdict)
    faults: Faults = []
    for i in np.flatnonzero(verdict == 0).tolist():
        offset, length = rows[i].tolist()
        error = json_fault(text[offset : offset + length].tobytes())
        if error is not None:
            faults.append((i, error))
    return faults


def _together(data: Data, rows: Rows) -> tuple[npt.NDArray[np.uint8], Rows]:
    """What has the lines `rows` as an array, and the rows in that: of what is far away, it is read as one piece."""
    if isinstance(data, np.ndarray):
        return data, rows
    first = int(rows[:, 0].min(initial=len(data)))
    return data[first : int(rows.sum(axis=1).max(initial=0))], rows - np.array([first, 0])


def json_fault(line: bytes) -> Exception | None:
    """What `json.loads` raises for a line, None where it takes it."""
    try:
        json.loads(line)
    except MemoryError:  # says nothing of the line
        raise
    except Exception as error:  # any: also RecursionError, and ValueError of huge integers
        return error.with_traceback(None)  # its frames would hold the mapping, and themselves, in a cycle
    return None
