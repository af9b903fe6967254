"""Documents of mapped files written in any order, in bounded memory.

The output is made in windows. A window's documents are read in the order they lie in their files, whatever order they
are written in: pages are touched front to back and given back, so that memory does not grow with the files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from fastpack import kernels
from fastpack.io import Progress, drop_pages, read_at_random
from fastpack.tokens.pbin.packed_file import PackedFile

Data: TypeAlias = npt.NDArray[np.uint8]
Integers: TypeAlias = npt.NDArray[np.int64]
Write: TypeAlias = Callable[[Data, Integers], object]  # (documents back to back, their lengths in bytes)

# A window is a sixteenth of the output within these bounds: at 16 windows a page that is mapped in (16 are, at a fault)
# still serves several documents; a random gather of a gigabyte without windows is 1.2 times as fast, and keeps it all.
LEAST_WINDOW, MOST_WINDOW = 64 << 20, 256 << 20
_LEAST_ROWS, _MOST_ROWS = 1 << 18, 1 << 21  # of a window, 0.1 kB each: short documents may have smaller windows
_AT_ONCE = 1 << 15  # documents copied by one call: their rows stay in the cache
_PIECE = 32 << 20  # bytes of a file whose pages are given back together
FAULT = 1 << 16  # bytes mapped in with one that is touched
_READ_AROUND = 1 << 17  # bytes read from the disk with one that is touched, unless it is told otherwise


@dataclass(frozen=True, slots=True)
class Spans:
    """Documents of one file.

    data: the whole file; rows int64 [n_documents, 2]: start and length in bytes; base: what starts count from;
    swap: bytes of a token whose order is to be turned round, else 1.
    """

    data: Data
    rows: Integers
    base: int = 0
    swap: int = 1


def packed_spans(file: PackedFile, first: int = 0, end: int | None = None) -> Spans:
    """Documents [first, end) of a packed file, whose tokens will come out little-endian."""
    big_endian = file.generation < 4
    rows = file.index[first:end]
    return Spans(
        file.file,
        rows if len(rows) == len(file) else rows.copy(),  # a slice would keep the whole index
        file.data_offset,
        file.token_size_in_bytes if big_endian else 1,
    )


class Collection:
    """The documents of several files as one sequence. n_documents, n_bytes: in all; lengths: in bytes."""

    def __init__(self, sources: Sequence[Spans]) -> None:
        self._sources = sources
        self._firsts = np.cumsum([0, *(len(source.rows) for source in sources)])
        self._rows = sources[0].rows if len(sources) == 1 else _concatenate([source.rows for source in sources])
        self._in_file_order = [bool((rows[1:, 0] >= rows[:-1, 0]).all()) for rows in (s.rows for s in sources)]
        self.n_documents = len(self._rows)
        self.n_bytes = int(self._rows[:, 1].sum())
        self._buffer = np.empty(0, np.uint8)

    @property
    def lengths(self) -> Integers:
        return self._rows[:, 1]

    def write(self, order: npt.NDArray[np.int32], write: Write, progress: Progress | None = None) -> None:
        """Give `write` the documents in `order` (numbers below n_documents), many at a time.

        The block it gets is used again after it returned. progress(bytes done, in all).
        """
        limit = max(LEAST_WINDOW, min(MOST_WINDOW, self.n_bytes // 16))
        self._advise(-(-self.n_bytes // limit))
        if len(self._buffer) == 0:  # kept for the next call: its pages would be taken anew
            self._buffer = np.empty(min(limit, self.n_bytes), np.uint8)
        buffer = self._buffer
        done, total = 0, self.n_bytes
        for ids, rows, ends in self._windows(order, limit):
            n_bytes = int(ends[-1])
            out = buffer[:n_bytes] if n_bytes <= len(buffer) else np.empty(n_bytes, np.uint8)
            self._gather(ids, rows, ends - rows[:, 1], out)
            write(out, rows[:, 1])
            done += n_bytes
            if progress is not None:
                progress(done, total)

    def _windows(self, order: npt.NDArray[np.int32], limit: int) -> Iterator[tuple[Integers, Integers, Integers]]:
        """Numbers, rows and ends in the window of the documents that make up to `limit` bytes, one at least."""
        most = max(_LEAST_ROWS, min(_MOST_ROWS, self.n_documents // 16))
        step = min(most, rows_in(limit, self.n_bytes, self.n_documents))
        first = 0
        while first < len(order):
            ids = order[first : first + step].astype(np.int64)
            rows = self._rows.take(ids, axis=0)
            ends = np.cumsum(rows[:, 1])
            count = max(1, int(np.searchsorted(ends, limit, "right")))
            yield ids[:count], rows[:count], ends[:count]
            first += count

    def _gather(self, ids: Integers, rows: Integers, targets: Integers, out: Data) -> None:
        """Document ids[i], which lies at rows[i], to out[targets[i]:]."""
        keys = ids << 32  # plain integers sort five times as fast as argsort does
        keys += np.arange(len(ids))
        keys.sort()
        bounds = np.searchsorted(keys, self._firsts << 32)
        keys &= 0xFFFFFFFF
        for number in np.flatnonzero(np.diff(bounds)).tolist():
            source, places = self._sources[number], keys[bounds[number] : bounds[number + 1]]
            if not self._in_file_order[number]:
                places = places[np.argsort(rows[places, 0])]
            for first in range(0, len(places), _AT_ONCE):
                chosen = places[first : first + _AT_ONCE]
                _copy(source, rows.take(chosen, axis=0), targets.take(chosen), out)

    def _advise(self, n_windows: int) -> None:
        """Where a window takes so little of a file that reading around each document would read all of it, say so."""
        for source in self._sources:
            if len(source.data) * n_windows > _READ_AROUND * max(len(source.rows), 1) and n_windows > 1:
                read_at_random(source.data.ctypes.data, len(source.data))


def rows_in(limit: int, n_bytes: int, n_documents: int) -> int:
    """How many documents of the n, which are n_bytes together, are looked at to find those that fill `limit` bytes."""
    return 64 + int(1.05 * limit * n_documents / max(n_bytes, 1))


def _concatenate(parts: list[Integers]) -> Integers:
    return np.concatenate(parts) if parts else np.empty((0, 2), np.int64)


def _copy(source: Spans, rows: Integers, targets: Integers, out: Data) -> None:
    """The documents at `rows`, in the order of the file, to out[targets[i]:]."""
    starts, lengths = rows[:, 0] + source.base, np.ascontiguousarray(rows[:, 1])
    if source.swap == 1:
        _copy_pieces(source.data, starts, targets, lengths, out)
        return
    ends = np.cumsum(lengths)
    flat = np.empty(int(ends[-1]), np.uint8)
    _copy_pieces(source.data, starts, ends - lengths, lengths, flat)
    flat.view(f"u{source.swap}").byteswap(inplace=True)
    kernels.copy_spans(flat, ends - lengths, targets, lengths, out)


def _copy_pieces(data: Data, starts: Integers, targets: Integers, lengths: Integers, out: Data) -> None:
    """Copy spans whose starts ascend, giving back the pages of a piece of the file after it."""
    cuts = np.searchsorted(starts, np.arange(starts[0] + _PIECE, starts[-1] + 1, _PIECE))
    for first, end in pairwise(sorted({0, *cuts.tolist(), len(starts)})):
        piece = slice(first, end)
        kernels.copy_spans(data, starts[piece], targets[piece], lengths[piece], out)
        last = int((starts[piece] + lengths[piece]).max())
        drop_pages(data, max(0, int(starts[first]) - FAULT), min(len(data), last + FAULT))
