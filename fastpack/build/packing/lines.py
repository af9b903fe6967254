"""The lines of a source, in batches: by its index, by its newlines, or as they come out of a compressed file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from fastpack import files, kernels
from fastpack.build.packing.config import Source
from fastpack.build.packing.encode import Batch
from fastpack.formats.compressed import is_compressed, read_lines
from fastpack.formats.jsonl import check_bounds, counts_characters, read_raw_index

Rows: TypeAlias = npt.NDArray[np.int64]

MAX_BATCH_LINES = 16_384


class Piece(NamedTuple):
    """A batch; the number of its first line in the source, from 0; how many bytes of the file are read behind it; and
    where its `data` starts in what the file unpacks to.
    """

    batch: Batch
    first_line: int
    done: int
    base: int = 0

    def offset(self, position: int) -> int:
        """Where the line at `position` of the batch starts: bytes of the file, or of what it unpacks to."""
        return int(self.batch.rows[position, 0]) + self.base


def read_pieces(source: Source, first_line: int, n_bytes: int) -> Iterator[Piece]:
    """The lines of `source` from `first_line` on, in batches of about `n_bytes`, at least one line each.

    Raises FormatError for an index that does not fit the source, and for compressed files that are damaged; ValueError
    for an index that counts characters.
    """
    if is_compressed(source.path):
        return _unpacked(source.path, first_line, n_bytes)
    if source.index_path is None:
        return _scanned(source.path, first_line, n_bytes)
    return _indexed(source.path, source.index_path, first_line, n_bytes)


def read_index(path: str, index_path: str) -> Rows:
    """The rows of a source's index, which fits it."""
    rows = read_raw_index(index_path)
    data = files.map_bytes(path)
    check_bounds(rows, len(data), index_path)
    if counts_characters(data, rows):
        raise ValueError(
            f"{index_path} measures lines in characters, as Modalities did before v0.4.0, so documents would "
            f"be cut short: `fastpack index {path} --repair-legacy` restores the lengths in bytes"
        )
    return rows


def _indexed(path: str, index_path: str, first: int, n_bytes: int) -> Iterator[Piece]:
    rows = read_index(path, index_path)
    ends = np.cumsum(rows[:, 1])
    while first < len(ends):
        before = int(ends[first - 1]) if first else 0
        end = int(np.searchsorted(ends, before + n_bytes, side="right"))
        end = min(max(end, first + 1), first + MAX_BATCH_LINES)
        yield Piece(Batch(path, rows[first:end]), first, int(ends[end - 1]) + end)
        first = end


def _scanned(path: str, skip: int, n_bytes: int) -> Iterator[Piece]:
    data = files.map_bytes(path)
    line = start = line_start = 0
    while start < len(data):
        window = data[start : start + n_bytes]
        rows, start, line_start = _rows(window, start, line_start, len(data))
        line += len(rows)
        kept = min(len(rows), line - skip)
        if kept > 0:
            yield Piece(Batch(path, rows[-kept:]), line - kept, start)


def _unpacked(path: str, skip: int, n_bytes: int) -> Iterator[Piece]:
    line = base = 0
    for block, done in read_lines(path, n_bytes):
        data = np.frombuffer(block, np.uint8)
        start = line_start = 0
        while start < len(data):
            first = line_start
            rows, start, line_start = _rows(data[start:], start, line_start, len(data))
            line += len(rows)
            kept = min(len(rows), line - skip)
            if kept > 0:
                end = int(rows[-1].sum())
                piece = block if first == 0 and end >= len(block) - 1 else block[first:end]
                yield Piece(Batch(path, rows[-kept:] - np.array([first, 0]), piece), line - kept, done, base + first)
        base += len(block)


def _rows(window: npt.NDArray[np.uint8], base: int, line_start: int, end: int) -> tuple[Rows, int, int]:
    """The lines that end in `window`, at most MAX_BATCH_LINES, and one without a newline if the text ends (at `end`).

    Arguments and results as of the kernel `index_lines`, but for the position behind the window's used part.
    """
    buffer = np.empty((min(MAX_BATCH_LINES, len(window)), 2), np.int64)
    n_rows, consumed, line_start = kernels.index_lines(window, base, line_start, buffer)
    rows, base = buffer[:n_rows], base + consumed
    if base == end and line_start < end:
        rows = np.append(rows, np.array([[line_start, end - line_start]]), axis=0)
    return rows, base, line_start
