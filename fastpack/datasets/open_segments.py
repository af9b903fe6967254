"""The files of token segments, opened for reads by position: at most MAX_OPEN_FILES at a time."""

from __future__ import annotations

import errno
import threading
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fastpack.errors import FormatError
from fastpack.io import Reader
from fastpack.tokens.token_segment import TokenSegment

MAX_OPEN_FILES = 64  # common limits are 256 to 1024 descriptors per process


class OpenSegments:
    """Reads bytes of segments by position; FormatError where a file has become too short."""

    def __init__(self, segments: Sequence[TokenSegment]) -> None:
        self.segments = segments
        self._readers: dict[int, Reader] = {}
        self._lock = threading.Lock()

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

    def will_need(self, number: int, start: int, n_bytes: int) -> None:
        """Hint the OS, or the block cache of a store, to read bytes of segment `number`."""
        self._reader(number).will_need(self.segments[number].offset + start, n_bytes)

    def _reader(self, number: int) -> Reader:
        reader = self._readers.get(number)
        if reader is None:
            reader = self.segments[number].open_reader()
            with self._lock:
                while len(self._readers) >= MAX_OPEN_FILES:
                    del self._readers[next(iter(self._readers))]
                self._readers[number] = reader
        return reader

    def close(self) -> None:
        """Close the files; a later read opens them again."""
        with self._lock:
            self._readers = {}
