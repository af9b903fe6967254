"""Physical line numbers of the rows of an index, and the lines that the index omits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from fastpack import kernels
from fastpack.documents.json_lines import Data, Rows, json_fault, line_start_from, scan_lines


class Omitted(NamedTuple):
    """A line without a row: the row after it, its number, and why it is not indexed."""

    row: int
    line: int
    reason: str


class Numbered(NamedTuple):
    """Line numbers: `lines` int64[n] of each row, from 1; `n_lines`: number of all lines, including blank ones."""

    lines: Rows
    omitted: list[Omitted]
    n_lines: int


def is_sorted(rows: Rows) -> bool:
    """Return whether the rows are in the order of the file."""
    return bool((rows[1:, 0] >= rows[:-1, 0]).all())


def number_index(data: Data, rows: Rows) -> Numbered:
    """Return the line numbers of the rows int64[n, 2] of a whole index, in any order."""
    if is_sorted(rows):
        return number_rows(data, rows, 0, len(data))
    order = np.argsort(rows[:, 0], kind="stable")
    found = number_rows(data, rows[order], 0, len(data))
    lines = np.empty(len(rows), np.int64)
    lines[order] = found.lines
    return Numbered(lines, [one._replace(row=0) for one in found.omitted], found.n_lines)


def number_rows(data: Data, rows: Rows, start: int, stop: int) -> Numbered:
    """Return the line numbers of rows int64[n, 2] in the order of the file, of the bytes [start, stop).

    A line begins at `start`. Only the bytes between rows that are not adjacent are read.
    """
    starts, ends = rows[:, 0], rows.sum(axis=1)
    steps = np.ones(len(rows), np.int64)
    gaps: list[tuple[int, list[str]]] = []
    for row in np.flatnonzero(starts != np.append([start], ends[:-1] + 1)[: len(starts)]).tolist():
        first = line_start_from(data, int(ends[row - 1]) + 1) if row else start
        if first > starts[row]:  # overlapping rows
            steps[row] = kernels.count_newlines(data[int(starts[row - 1]) : int(starts[row])]) if row else 1
            continue
        gaps.append((row, _reasons(data, first, int(starts[row]))))
        steps[row] += len(gaps[-1][1])
    lines = np.cumsum(steps)
    last = line_start_from(data, int(ends.max()) + 1) if len(rows) else start
    tail = _reasons(data, last, stop) if last < stop else []
    n_lines = (int(lines[-1]) if len(rows) else 0) + len(tail)
    omitted = [
        Omitted(row, int(lines[row]) - len(reasons) + i, reason)
        for row, reasons in gaps
        for i, reason in enumerate(reasons)
    ]
    omitted += [Omitted(len(rows), n_lines - len(tail) + 1 + i, reason) for i, reason in enumerate(tail)]
    return Numbered(lines, omitted, n_lines)


def _reasons(data: Data, start: int, end: int) -> list[str]:
    """Return why the lines in [start, end) are not indexed, except a last line in which a row begins."""
    reasons = list(_reasons_of(data, start, end))
    if reasons and end < len(data) and data[end - 1 : end].tobytes() != b"\n":
        reasons.pop()
    return reasons


def _reasons_of(data: Data, start: int, end: int) -> Iterator[str]:
    for rows in scan_lines(data, start=start, end=end):
        for offset, length in rows.tolist():
            yield omission_reason(data[offset : offset + length].tobytes())


def omission_reason(line: bytes) -> str:
    """Return why an index has no row for this line."""
    if not line.strip():
        return "blank line"
    error = json_fault(line)
    return "not in the index" if error is None else omission_reason_of(error)


def omission_reason_of(error: BaseException | None) -> str:
    """Return the error of `json.loads` as a phrase without its own line numbers."""
    if isinstance(error, json.JSONDecodeError):
        return f"not JSON: {error.msg} at character {error.pos}"
    return f"not JSON: {str(error)[:200]}"
