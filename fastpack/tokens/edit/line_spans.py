"""The lines of JSONL files as spans, their newlines included; a last line without one is completed where it must be."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence

import numpy as np

from fastpack import kernels
from fastpack.errors import DataWarning
from fastpack.io import PathLike, drop_pages, map_bytes
from fastpack.tokens.edit.document_spans import Data, Integers, Spans

_NEWLINE = 10
_WINDOW = 4 << 20  # bytes scanned at once
_DROP = 32 << 20  # pages are given back in pieces of this size


def line_spans(path: PathLike, share: Callable[[int], tuple[int, int]] | None = None) -> Spans:
    """The lines of a file as `readlines()` of its bytes splits them: at newlines only, which belong to their line.

    share: from the number of lines to the lines [first, end) that are wanted; default is all.
    """
    data = map_bytes(path)
    rows = _rows(data)
    if share is None:
        return Spans(data, rows)
    first, end = share(len(rows))
    return Spans(data, rows[first:end].copy())


def _rows(data: Data) -> Integers:
    """int64 [n_lines, 2]: offset and length in bytes of each line."""
    rows = np.empty((1024, 2), np.int64)
    n_lines = at = start = dropped = 0
    while at < len(data):
        if n_lines + 1 >= len(rows):  # one is for a last line without newline
            rows = _grown(rows, n_lines, n_lines * len(data) // at)
        n_rows, consumed, start = kernels.index_lines(data[at : at + _WINDOW], at, start, rows[n_lines:-1])
        n_lines, at = n_lines + n_rows, at + consumed
        if at - dropped >= _DROP:
            drop_pages(data, dropped, at)
            dropped = at
    drop_pages(data, dropped, at)
    rows[:n_lines, 1] += 1
    if start < len(data):
        rows[n_lines] = start, len(data) - start
        n_lines += 1
    return rows[:n_lines]


def _grown(rows: Integers, n_lines: int, expected: int) -> Integers:
    """The rows with room for about as many as are expected in all; room that stays empty takes no memory."""
    larger = np.empty((max(2 * n_lines, min(8 * n_lines, expected + expected // 8)), 2), np.int64)
    larger[:n_lines] = rows[:n_lines]
    return larger


def complete_lines(sources: Sequence[Spans], paths: Sequence[PathLike], last: int | None) -> list[Spans]:
    """`sources` with a newline behind each line that has none, except the one that will be written last.

    Each such line becomes a source of its own, behind that of its file, so that the lines keep their numbers. last: the
    number of the line that is written last. Warns of each file it does this for.
    """
    complete: list[Spans] = []
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
            f"{os.fspath(path)}: the last line has no newline; it got one, because another line follows it now "
            '(compat="modalities-0.5" joins the two)',
            DataWarning,
            stacklevel=4,  # who called what wants the lines shuffled
        )
        line = np.append(source.data[start : start + length], np.uint8(_NEWLINE))
        complete[-1:] = [Spans(source.data, source.rows[:-1]), Spans(line, np.array([[0, length + 1]]))]
    return complete
