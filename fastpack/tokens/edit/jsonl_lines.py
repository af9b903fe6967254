"""The lines of JSON Lines files as spans, newlines included; a newline is added to an incomplete last line."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence

import numpy as np

from fastpack import kernels
from fastpack.errors import DataWarning
from fastpack.io import PathLike, drop_pages, map_bytes
from fastpack.tokens.edit.document_collection import Data, Integers
from fastpack.tokens.token_file import DocumentSpans

_NEWLINE = 10
_WINDOW = 4 << 20  # bytes scanned at once
_DROP_BYTES = 32 << 20  # bytes whose pages are dropped together


def line_spans(path: PathLike, choose: Callable[[int], tuple[int, int]] | None = None) -> DocumentSpans:
    """Return the lines of a file as `readlines()` of its bytes splits them, newlines included.

    `choose` maps the number of lines to the lines [first, end) to return; all by default.
    """
    data = map_bytes(path)
    rows = _line_rows(data)
    if choose is None:
        return DocumentSpans(data, rows)
    first, end = choose(len(rows))
    return DocumentSpans(data, rows[first:end].copy())


def _line_rows(data: Data) -> Integers:
    """Offset and length of each line in bytes, int64 [n_lines, 2]."""
    rows = np.empty((1024, 2), np.int64)
    n_lines = at = start = dropped = 0
    while at < len(data):
        if n_lines + 1 >= len(rows):  # one row is for a last line without newline
            rows = _grow(rows, n_lines, n_lines * len(data) // at)
        n_rows, consumed, start = kernels.index_lines(data[at : at + _WINDOW], at, start, rows[n_lines:-1])
        n_lines, at = n_lines + n_rows, at + consumed
        if at - dropped >= _DROP_BYTES:
            drop_pages(data, dropped, at)
            dropped = at
    drop_pages(data, dropped, at)
    rows[:n_lines, 1] += 1
    if start < len(data):
        rows[n_lines] = start, len(data) - start
        n_lines += 1
    return rows[:n_lines]


def _grow(rows: Integers, n_lines: int, expected: int) -> Integers:
    """Return a larger array, for about the expected number of lines; pages that stay unused take no memory."""
    larger = np.empty((max(2 * n_lines, min(8 * n_lines, expected + expected // 8)), 2), np.int64)
    larger[:n_lines] = rows[:n_lines]
    return larger


def complete_lines(
    sources: Sequence[DocumentSpans], paths: Sequence[PathLike], last: int | None
) -> list[DocumentSpans]:
    """Add a newline to each line without one, except the line number `last`, which is written last.

    Such a line becomes a source of its own, after that of its file, so that lines keep their numbers. Warns of each.
    """
    complete: list[DocumentSpans] = []
    number = -1
    for source, path in zip(sources, paths, strict=True):
        number += len(source.rows)
        complete.append(source)
        if not len(source.rows) or number == last:
            continue
        start, length = source.rows[-1].tolist()
        if source.data[start + length - 1] == _NEWLINE:
            continue
        warnings.warn(
            f"{os.fspath(path)}: the last line has no newline; one was added, because another line follows it now "
            '(compat="modalities-0.5" concatenates the two lines)',
            DataWarning,
            stacklevel=5,  # the caller of the function that shuffles lines
        )
        line = np.append(source.data[start : start + length], np.uint8(_NEWLINE))
        complete[-1:] = [
            DocumentSpans(source.data, source.rows[:-1]),
            DocumentSpans(line, np.array([[0, length + 1]])),
        ]
    return complete
