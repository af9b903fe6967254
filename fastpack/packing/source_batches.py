"""The documents of a source in batches.

The lines of JSON Lines are found by an index, by newlines, or as a compressed file is decompressed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from fastpack import io as files
from fastpack import kernels
from fastpack.documents.arrow_sources import TextTable, open_table
from fastpack.documents.compressed import is_compressed, read_lines
from fastpack.documents.json_lines import count_lines, line_start_from
from fastpack.documents.raw_index import read_raw_index
from fastpack.documents.raw_index_check import check_bounds, counts_characters
from fastpack.documents.text_columns import TextBatch
from fastpack.documents.text_files import read_text_file
from fastpack.packing.encoder import Batch
from fastpack.packing.line_numbers import Numbered, is_sorted, number_index, number_rows
from fastpack.packing.settings import Source

Rows: TypeAlias = npt.NDArray[np.int64]

MAX_BATCH_LINES = 16_384
_MAX_GAP = 1 << 20  # bytes between two lines that are read together with them


class SourceBatch(NamedTuple):
    """A batch and its position in its source.

    first_row: number of its first row in the source, from 0. done: bytes of the file read so far. lines: int64[n], the
    line number of each row, from 1. n_lines: number of lines of the source up to the end of this batch. omitted: (line,
    reason) of the lines before its rows that the index omits. base: position of the batch's `data` in the decompressed
    text.
    """

    batch: Batch
    first_row: int
    done: int
    lines: Rows
    n_lines: int
    omitted: tuple[tuple[int, str], ...] = ()
    base: int = 0

    @property
    def next_row(self) -> int:
        """The number of the row after the last one."""
        return self.first_row + len(self.batch.rows)

    def offset(self, position: int) -> int:
        """Return the byte offset of the line at `position` of the batch, in the file or its decompressed text."""
        return int(self.batch.rows[position, 0]) + self.base

    def place(self, position: int, lines_before: int = 0) -> str:
        """Return file and line, or row, at `position` for messages; lines_before: lines of the file before a chunk."""
        line = int(self.lines[position]) + lines_before
        if self.batch.is_text:
            return f"{self.batch.path}: row {line}"
        return f"{self.batch.path}: line {line} at byte {self.offset(position)}"


def _scanned_batch(batch: Batch, first_row: int, done: int, base: int = 0) -> SourceBatch:
    """Return a batch of a source without an index, in which every line is a row."""
    next_row = first_row + len(batch.rows)
    return SourceBatch(batch, first_row, done, np.arange(first_row + 1, next_row + 1), next_row, base=base)


def read_batches(source: Source, first_row: int, n_bytes: int) -> Iterator[SourceBatch]:
    """Yield the documents of `source` from row `first_row`, in batches of about `n_bytes`, at least one row each.

    Raises FormatError for an index that does not fit the source, and for files that are damaged; ValueError for an
    index that counts characters.
    """
    if source.format != "jsonl":
        return _text_batches(source.path, read_source_texts(source, first_row, None, n_bytes), 0)
    if is_compressed(source.path):
        return _decompressed(source.path, first_row, n_bytes)
    data = files.open_bytes(source.path)
    if source.index_path is None:
        return _with_bytes(data, _scanned(source.path, data, first_row, n_bytes, 0, len(data)))
    rows = read_index(source.path, source.index_path, data)
    return _with_bytes(
        data, _indexed(source.path, rows, np.cumsum(rows[:, 1]), number_index(data, rows), first_row, n_bytes)
    )


def read_index(path: str, index_path: str, data: files.ByteArray | None = None) -> Rows:
    """Return the rows of a source's index, checked against the source; data: the bytes of the source, if it is open."""
    rows = read_raw_index(index_path)  # `source_indexes` has checked that it belongs to the source
    data = files.open_bytes(path) if data is None else data
    check_bounds(rows, len(data), index_path)
    if counts_characters(data, rows):
        raise ValueError(
            f"{index_path} measures lines in characters, as Modalities did before v0.4.0, so documents would "
            f"be cut short: `fastpack index {path} --repair-legacy` restores the lengths in bytes"
        )
    return rows


def read_chunk(source: Source, chunk: int, n_chunks: int, n_bytes: int) -> Iterator[SourceBatch]:
    """Yield the batches of one of `n_chunks` chunks of about the same size; lines are numbered from the chunk's first.

    Every line belongs to exactly one chunk, by its position in the index or, without an index, by its start. A
    compressed source is one chunk. The index is read once for consecutive chunks of a source.
    """
    if source.format != "jsonl" and n_chunks > 1:
        first, end = _group_starts(source, (chunk, chunk + 1), n_chunks)
        texts = read_source_texts(source, first, end, n_bytes) if first < end else iter(())
        return _text_batches(source.path, texts, first)
    if source.index_path is not None and not is_compressed(source.path):
        rows, ends = _read_index_once(source.path, source.index_path)
        first, end = (_row_at(ends, number, n_chunks) for number in (chunk, chunk + 1))
        numbered = _number_chunk(source, chunk, n_chunks, rows, first, end)
        rows, ends = rows[first:end], ends[first:end] - (ends[first - 1] if first else 0)
        data = files.stop_at(files.open_bytes(source.path), int(rows.sum(axis=1).max(initial=0)))
        return _with_bytes(data, _indexed(source.path, rows, ends, numbered, 0, n_bytes))
    if n_chunks == 1:
        return read_batches(source, 0, n_bytes)
    data = files.open_bytes(source.path)
    start, end = (line_start_from(data, len(data) * number // n_chunks) for number in (chunk, chunk + 1))
    return _with_bytes(files.stop_at(data, end), _scanned(source.path, data, 0, n_bytes, start, end))


def _number_chunk(source: Source, chunk: int, n_chunks: int, rows: Rows, first: int, end: int) -> Numbered:
    """Return the line numbers of the rows [first, end) of an index, from the first line of the chunk.

    The lines that the index omits belong to the chunk of the next row, those at the end to the last chunk. If the rows
    are not in the order of the file, the numbers are those of the whole source.
    """
    data = files.open_bytes(source.path)
    if not is_sorted(rows):
        found = number_index(data, rows)
        return Numbered(found.lines[first:end], found.omitted if chunk == 0 else [], 0)
    stop = len(data) if chunk == n_chunks - 1 else int(rows[first:end].sum(axis=1).max(initial=0))
    return number_rows(data, rows[first:end], _chunk_start(data, rows, first), stop)


def _chunk_start(data: files.ByteArray, rows: Rows, first: int) -> int:
    """Return the byte at which the lines of a chunk with the first row `first` begin."""
    return line_start_from(data, int(rows[first - 1].sum()) + 1) if first else 0


def lines_before(source: Source, chunk: int, n_chunks: int) -> int:
    """Return the number of lines before a chunk."""
    if chunk == 0:
        return 0
    if source.format != "jsonl":
        return _group_starts(source, (chunk,), n_chunks)[0]
    data = files.open_bytes(source.path)
    if source.index_path is None:
        end = line_start_from(data, len(data) * chunk // n_chunks)
    else:
        rows, ends = _read_index_once(source.path, source.index_path)
        end = _chunk_start(data, rows, _row_at(ends, chunk, n_chunks)) if is_sorted(rows) else 0
    return count_lines(data, end=end)


def open_source_table(source: Source) -> TextTable:
    """Open a source that has columns."""
    return open_table(source.path, source.format, source.columns, as_rows=source.as_rows)


def read_source_texts(source: Source, first_row: int, stop_row: int | None, n_bytes: int) -> Iterator[TextBatch]:
    """Yield the rows [first_row, stop_row) of a source that is not JSON Lines; None: to the end."""
    if source.format == "text":
        separator = None if source.separator is None else source.separator.encode()
        return read_text_file(source.path, separator, first_row, n_bytes)
    return open_source_table(source).read(first_row, stop_row, n_bytes)


def _text_batches(path: str, texts: Iterator[TextBatch], first: int) -> Iterator[SourceBatch]:
    """Yield the batches of a source that is not JSON Lines; rows are numbered from the row `first`."""
    for found in texts:
        start = found.first_row - first
        end = start + len(found.rows)
        batch = Batch(path, found.rows, found.data, is_text=True)
        yield SourceBatch(batch, found.first_row, found.done, np.arange(start + 1, end + 1), end)


def _group_starts(source: Source, chunks: Sequence[int], n_chunks: int) -> list[int]:
    """Return the first rows of chunks of a table, which are starts of groups; for `n_chunks`, the number of rows."""
    group_rows = open_source_table(source).group_rows()
    assert group_rows is not None  # only sources that are splittable have several chunks
    starts = np.append(0, np.cumsum(group_rows))
    n_rows = int(starts[-1])
    return [int(starts[np.searchsorted(starts, n_rows * chunk // n_chunks)]) for chunk in chunks]


def _read_index_once(path: str, index_path: str) -> tuple[Rows, Rows]:
    status = files.stat_of(index_path)
    return _remembered_index(path, index_path, (status.st_size, status.st_mtime_ns, status.st_ino))


@lru_cache(maxsize=1)
def _remembered_index(path: str, index_path: str, _state: tuple[int, int, int]) -> tuple[Rows, Rows]:
    rows = read_index(path, index_path)
    return rows, np.cumsum(rows[:, 1])


def _row_at(ends: Rows, chunk: int, n_chunks: int) -> int:
    if chunk in (0, n_chunks):
        return len(ends) if chunk else 0
    return int(np.searchsorted(ends, int(ends[-1]) * chunk // n_chunks, side="right")) if len(ends) else 0


def _indexed(path: str, rows: Rows, ends: Rows, numbered: Numbered, first: int, n_bytes: int) -> Iterator[SourceBatch]:
    if not len(rows) and numbered.omitted:
        left_out = tuple((one.line, one.reason) for one in numbered.omitted)
        yield SourceBatch(Batch(path, rows, b""), 0, 0, numbered.lines, numbered.n_lines, left_out)
    borders = [one.row for one in numbered.omitted]
    while first < len(ends):
        before = int(ends[first - 1]) if first else 0
        end = int(np.searchsorted(ends, before + n_bytes, side="right"))
        end = min(max(end, first + 1), first + MAX_BATCH_LINES)
        is_last = end == len(ends)
        omitted = numbered.omitted[bisect_left(borders, first) : bisect_left(borders, end + is_last)]
        left_out = tuple((one.line, one.reason) for one in omitted)
        lines = numbered.lines[first:end]
        n_lines = numbered.n_lines if is_last else int(lines[-1])
        yield SourceBatch(Batch(path, rows[first:end]), first, int(ends[end - 1]) + end, lines, n_lines, left_out)
        first = end


def _scanned(path: str, data: files.ByteArray, skip: int, n_bytes: int, start: int, stop: int) -> Iterator[SourceBatch]:
    """Yield the lines in the bytes [start, stop), which begin and end at line borders."""
    line, line_start = 0, start
    while start < stop:
        window = data[start : min(start + n_bytes, stop)]
        rows, start, line_start = _rows(window, start, line_start, stop)
        line += len(rows)
        kept = min(len(rows), line - skip)
        if kept > 0:
            yield _scanned_batch(Batch(path, rows[-kept:]), line - kept, start)


def _with_bytes(data: files.ByteArray, pieces: Iterator[SourceBatch]) -> Iterator[SourceBatch]:
    """Add the bytes of the lines to the batches of an object in a store, which is read here once, from front to back.

    Lines that are far apart, as an index may have them, come in separate batches.
    """
    if isinstance(data, np.ndarray):
        yield from pieces
        return
    for piece in pieces:
        batch, first_row, omitted = piece.batch, piece.first_row, piece.omitted
        if not len(batch.rows):
            yield piece
            continue
        starts, ends = batch.rows[:, 0], batch.rows.sum(axis=1)
        apart = np.flatnonzero((starts[1:] < ends[:-1]) | (starts[1:] > ends[:-1] + _MAX_GAP)) + 1
        for rows, lines in zip(np.split(batch.rows, apart), np.split(piece.lines, apart), strict=True):
            base = int(rows[0, 0])
            text = data[base : int(rows[-1].sum())].tobytes()
            some = Batch(batch.path, rows - np.array([base, 0]), text)
            yield piece._replace(batch=some, first_row=first_row, lines=lines, omitted=omitted, base=base)
            first_row, omitted = first_row + len(rows), ()


def _decompressed(path: str, skip: int, n_bytes: int) -> Iterator[SourceBatch]:
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
                batch = Batch(path, rows[-kept:] - np.array([first, 0]), piece)
                yield _scanned_batch(batch, line - kept, done, base + first)
        base += len(block)


def _rows(window: npt.NDArray[np.uint8], base: int, line_start: int, end: int) -> tuple[Rows, int, int]:
    """Return the lines that end in `window`, at most MAX_BATCH_LINES, and a last line without newline at `end`.

    Arguments and results are those of the kernel `index_lines`, except that the position is the end of the bytes used.
    """
    buffer = np.empty((min(MAX_BATCH_LINES, len(window)), 2), np.int64)
    n_rows, consumed, line_start = kernels.index_lines(window, base, line_start, buffer)
    rows, base = buffer[:n_rows], base + consumed
    if base == end and line_start < end:
        rows = np.append(rows, np.array([[line_start, end - line_start]]), axis=0)
    return rows, base, line_start
