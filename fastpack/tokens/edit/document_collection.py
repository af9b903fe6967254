"""Writes documents of mapped files in any order, in bounded memory.

The output is produced in windows. The documents of a window are read in the order of their files, whatever order they
are written in. Pages are touched from front to back and then dropped, so memory does not grow with the files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from fastpack import kernels
from fastpack.io import Progress, drop_pages, read_at_random
from fastpack.tokens.token_file import DocumentSpans

Data: TypeAlias = npt.NDArray[np.uint8]
Integers: TypeAlias = npt.NDArray[np.int64]
Write: TypeAlias = Callable[[Data, Integers], object]  # (concatenated documents, their lengths in bytes)

# A window is 1/16 of the output, within these bounds. With 16 windows, a page fault (which maps 16 pages) still serves
# several documents. A random gather of 1 GB without windows is 1.2 times as fast, but keeps everything in memory.
MIN_WINDOW, MAX_WINDOW = 64 << 20, 256 << 20
_MIN_ROWS, _MAX_ROWS = 1 << 18, 1 << 21  # documents of a window, 0.1 kB each: short documents get smaller windows
_BLOCK_ROWS = 1 << 15  # documents copied by one call: their rows stay in the cache
_DROP_BYTES = 32 << 20  # bytes of a file whose pages are dropped together
FAULT_BYTES = 1 << 16  # bytes mapped by one page fault
_READAHEAD_BYTES = 1 << 17  # bytes read from the disk around a page fault, by default


class DocumentCollection:
    """The documents of several files as one sequence.

    Attributes
    ----------
    n_documents, n_bytes
        Number and total size of the documents.
    """

    def __init__(self, sources: Sequence[DocumentSpans]) -> None:
        self._sources = sources
        self._firsts = np.cumsum([0, *(len(source.rows) for source in sources)])
        self._rows = sources[0].rows if len(sources) == 1 else _concatenate([source.rows for source in sources])
        self._in_file_order = [bool((rows[1:, 0] >= rows[:-1, 0]).all()) for rows in (s.rows for s in sources)]
        self.n_documents = len(self._rows)
        self.n_bytes = int(self._rows[:, 1].sum())
        self._buffer = np.empty(0, np.uint8)

    @property
    def lengths(self) -> Integers:
        """The length of each document in bytes."""
        return self._rows[:, 1]

    def write(self, order: npt.NDArray[np.int32], write: Write, progress: Progress | None = None) -> None:
        """Call `write` with blocks of the documents numbered `order`.

        The memory of a block is reused after `write` returns. `progress` receives (bytes done, total bytes).
        """
        limit = max(MIN_WINDOW, min(MAX_WINDOW, self.n_bytes // 16))
        self._advise(-(-self.n_bytes // limit))
        if len(self._buffer) == 0:  # kept for the next call: new pages would cost time
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
        """Numbers, rows and ends in the window of up to `limit` bytes of documents, at least one document."""
        most = max(_MIN_ROWS, min(_MAX_ROWS, self.n_documents // 16))
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
        """Copy document ids[i], stored at rows[i], to out[targets[i]:]."""
        keys = ids << 32  # sorting plain integers is five times as fast as argsort
        keys += np.arange(len(ids))
        keys.sort()
        bounds = np.searchsorted(keys, self._firsts << 32)
        keys &= 0xFFFFFFFF
        for number in np.flatnonzero(np.diff(bounds)).tolist():
            source, places = self._sources[number], keys[bounds[number] : bounds[number + 1]]
            if not self._in_file_order[number]:
                places = places[np.argsort(rows[places, 0])]
            for first in range(0, len(places), _BLOCK_ROWS):
                chosen = places[first : first + _BLOCK_ROWS]
                _copy(source, rows.take(chosen, axis=0), targets.take(chosen), out)

    def _advise(self, n_windows: int) -> None:
        """Disable readahead for a file of which each window uses so little that readahead would read all of it."""
        for source in self._sources:
            if len(source.data) * n_windows > _READAHEAD_BYTES * max(len(source.rows), 1) and n_windows > 1:
                read_at_random(source.data.ctypes.data, len(source.data))


def rows_in(limit: int, n_bytes: int, n_documents: int) -> int:
    """Return how many documents to read to fill `limit` bytes, if `n_documents` have `n_bytes` in total."""
    return 64 + int(1.05 * limit * n_documents / max(n_bytes, 1))


def _concatenate(rows: list[Integers]) -> Integers:
    return np.concatenate(rows) if rows else np.empty((0, 2), np.int64)


def _copy(source: DocumentSpans, rows: Integers, targets: Integers, out: Data) -> None:
    """Copy the documents at `rows`, which are in file order, to out[targets[i]:]."""
    starts, lengths = rows[:, 0] + source.base, np.ascontiguousarray(rows[:, 1])
    if source.swap == 1:
        _copy_spans(source.data, starts, targets, lengths, out)
        return
    ends = np.cumsum(lengths)
    flat = np.empty(int(ends[-1]), np.uint8)
    _copy_spans(source.data, starts, ends - lengths, lengths, flat)
    flat.view(f"u{source.swap}").byteswap(inplace=True)
    kernels.copy_spans(flat, ends - lengths, targets, lengths, out)


def _copy_spans(data: Data, starts: Integers, targets: Integers, lengths: Integers, out: Data) -> None:
    """Copy spans with ascending starts, dropping the pages of the file in pieces."""
    cuts = np.searchsorted(starts, np.arange(starts[0] + _DROP_BYTES, starts[-1] + 1, _DROP_BYTES))
    for first, end in pairwise(sorted({0, *cuts.tolist(), len(starts)})):
        piece = slice(first, end)
        kernels.copy_spans(data, starts[piece], targets[piece], lengths[piece], out)
        last = int((starts[piece] + lengths[piece]).max())
        drop_pages(data, max(0, int(starts[first]) - FAULT_BYTES), min(len(data), last + FAULT_BYTES))
