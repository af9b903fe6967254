"""The files of token segments, opened for reads by position: at most MAX_OPEN_FILES at a time."""

from __future__ import annotations

import errno
import threading
import weakref
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from fastpack.datasets.window_groups import address_of
from fastpack.errors import FormatError
from fastpack.io import Reader, note_pages, open_among, page_table, read_rows
from fastpack.tokens.token_segment import TokenSegment

Numbers: TypeAlias = npt.NDArray[np.int64]

MAX_OPEN_FILES = 64  # common limits are 256 to 1024 descriptors per process


_in_use: weakref.WeakKeyDictionary[OpenSegments, tuple[str, int]] = weakref.WeakKeyDictionary()


class OpenSegments:
    """Reads bytes of segments by position; FormatError where a file has become too short."""

    def __init__(self, segments: Sequence[TokenSegment]) -> None:
        self.segments = segments
        self._readers: dict[int, Reader] = {}
        self._lock = threading.Lock()
        self._pages = page_table()
        self._first = np.empty(0, np.int64)  # the position of each segment in the table of pages, -1 before its use

    @property
    def n_open_files(self) -> int:
        """The number of files that are open."""
        return len(self._readers)

    def read(self, number: int, start: int, out: npt.NDArray[np.uint8]) -> None:
        """Fill `out` with the bytes of segment `number` from byte `start` of its tokens on."""
        offset = self.segments[number].offset + start
        try:
            n_bytes = self._reader(number).read_into(out, offset)
        except OSError as error:
            if error.errno != errno.ESTALE:  # a network file system requires the file to be reopened
                raise
            with self._lock:
                self._readers.pop(number, None)
            n_bytes = self._reader(number).read_into(out, offset)
        if n_bytes < len(out):
            end, path = offset + n_bytes, self.segments[number].path
            raise FormatError(path, end, "the end of the file", f"{offset + len(out)} bytes, as when opened")

    def read_many(self, numbers: Numbers, starts: Numbers, out: npt.NDArray[np.uint8]) -> None:
        """Fill row k of `out` with the bytes of segment numbers[k] from its byte starts[k] on. Raises as `read`."""
        shards, firsts = numbers.tolist(), starts.tolist()
        offsets = [self.segments[number].offset + first for number, first in zip(shards, firsts, strict=True)]
        done = read_rows([self._readers.get(number) for number in shards], offsets, out)
        for row in range(done, len(shards)):
            self.read(shards[row], firsts[row], out[row])

    def locate(self, numbers: Numbers, starts: Numbers, n_bytes: int) -> tuple[npt.NDArray[np.uint64], object]:
        """Return the address of `n_bytes` of segment numbers[k] from its byte starts[k] on, and what keeps them valid.

        Bytes that this process has mapped are used where they are, others are read. Raises as `read`.
        """
        positions, copies = self._positions(numbers) + starts, dict[int, npt.NDArray[np.uint8]]()

        def copy(k: int) -> None:
            copies[k] = np.empty(n_bytes, np.uint8)
            self.read(int(numbers[k]), int(starts[k]), copies[k])
            self._note(int(numbers[k]), int(starts[k]))

        addresses, owner = self._pages.find(positions, n_bytes)
        if addresses.all():
            return addresses, owner
        for k in self._one_per_page(positions, n_bytes, addresses):
            copy(k)
        addresses, owner = self._pages.find(positions, n_bytes)  # most others are in these pages
        for k in np.flatnonzero(addresses == 0).tolist():
            if k not in copies:
                copy(k)
            addresses[k] = address_of(copies[k])
        return addresses, (owner, copies)

    def _one_per_page(self, positions: Numbers, n_bytes: int, addresses: npt.NDArray[np.uint64]) -> list[int]:
        """Return one k with address 0 for each first and last page of such reads."""
        if addresses.all():
            return []
        missing, page_bytes = np.flatnonzero(addresses == 0), self._pages.page_bytes
        first, last = positions[missing] // page_bytes, (positions[missing] + n_bytes - 1) // page_bytes
        _, chosen = np.unique((first << 20) + (last - first), return_index=True)
        return list(map(int, missing[np.sort(chosen)]))

    def _positions(self, numbers: Numbers) -> Numbers:
        """Return the position of byte 0 of each segment in the table of pages."""
        if len(self._first) < len(self.segments):
            self._first = np.full(len(self.segments), -1, np.int64)
        positions = self._first[numbers]
        if positions.min(initial=0) >= 0:
            return positions
        with self._lock:
            for number in np.unique(numbers[positions < 0]).tolist():
                segment = self.segments[number]
                within = segment.offset % self._pages.page_bytes
                n_bytes = segment.length * segment.dtype.itemsize
                self._first[number] = self._pages.reserve(within + n_bytes) + within
        return self._first[numbers]

    def _note(self, number: int, start: int) -> None:
        """Remember where the pages of the block that contains this byte are mapped."""
        segment, reader = self.segments[number], self._readers.get(number)
        if reader is not None:
            end = segment.offset + segment.length * segment.dtype.itemsize
            position = int(self._first[number]) - segment.offset
            note_pages(reader, self._pages, position, segment.offset, end, segment.offset + start)

    def will_need_many(self, numbers: Numbers, starts: Numbers, n_bytes: int) -> None:
        """Hint as `will_need` for `n_bytes` of segment numbers[k] from its byte starts[k] on."""
        positions = self._positions(numbers) + starts
        addresses, _ = self._pages.find(positions, n_bytes)
        for k in self._one_per_page(positions, n_bytes, addresses):
            self.will_need(int(numbers[k]), int(starts[k]), n_bytes)

    def will_need(self, number: int, start: int, n_bytes: int) -> None:
        """Hint the OS, or the block cache of a store, to read bytes of segment `number`."""
        self._reader(number).will_need(self.segments[number].offset + start, n_bytes)

    def _reader(self, number: int) -> Reader:
        reader = self._readers.get(number)
        if reader is None:
            reader = open_among(self.segments[number].open_reader, self._bytes_in_use)
            with self._lock:
                while len(self._readers) >= MAX_OPEN_FILES:
                    del self._readers[next(iter(self._readers))]
                self._readers[number] = reader
        return reader

    def _bytes_in_use(self) -> int:
        """Return the bytes of all objects that this process reads at random; the same objects count once."""
        if self not in _in_use:
            ends = {one.path: one.offset + one.length * one.dtype.itemsize for one in self.segments}
            _in_use[self] = next(iter(ends)), sum(ends.values())
        owners = [ref() for ref in _in_use.keyrefs()]  # a list, since another thread may add an entry meanwhile
        return sum(n_bytes for _, n_bytes in {_in_use.get(owner, ("", 0)) for owner in owners if owner is not None})

    def close(self) -> None:
        """Close the files; a later read opens them again."""
        with self._lock:
            self._readers = {}
            self._pages.clear()
        _in_use.pop(self, None)
