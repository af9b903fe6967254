"""Reading of a local file by position, and streams over bytes that are read by position."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fastpack.io.if_exists import PathLike
from fastpack.io.paths import with_filename


class FileReader:
    """A `Reader` of a local file."""

    __slots__ = ("_fd", "path")

    def __init__(self, path: PathLike) -> None:
        self._fd = -1
        self.path = os.fspath(path)
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    @with_filename
    def read_into(self, out: npt.NDArray[np.uint8], offset: int) -> int:
        """Fill `out` with the bytes from `offset` on; return their number, less than requested only at the end."""
        done = 0
        view = out.data
        while done < len(view) and (n_bytes := os.preadv(self._fd, [view[done:]], offset + done)):
            done += n_bytes
        return done

    def will_need(self, offset: int, n_bytes: int) -> None:
        """Hint the OS to prefetch these bytes. Returns immediately; a no-op where unsupported."""
        if hasattr(os, "posix_fadvise"):
            with contextlib.suppress(OSError):
                os.posix_fadvise(self._fd, offset, n_bytes, os.POSIX_FADV_WILLNEED)

    def __del__(self, _close: Callable[[int], None] = os.close) -> None:
        if self._fd >= 0:
            _close(self._fd)


def read_rows(readers: Sequence[object], offsets: Sequence[int], out: npt.NDArray[np.uint8]) -> int:
    """Fill row k of `out` from offsets[k] of readers[k] by one system call each; return the number of rows filled.

    It ends before a reader that is no `FileReader`, and before a row that `FileReader.read_into` must read.
    """
    n_bytes: int = out.shape[1]
    memory, start = out.reshape(-1).data, 0
    try:
        for reader, offset in zip(readers, offsets, strict=True):
            end = start + n_bytes
            if os.preadv(reader._fd, (memory[start:end],), offset) != n_bytes:  # type: ignore[attr-defined]
                break
            start = end
    except (AttributeError, OSError):
        pass
    return start // n_bytes


class RangeStream(io.RawIOBase):
    """A seekable stream over the bytes [start, start + n_bytes) of a file.

    read_into: as `FileReader.read_into`.
    """

    def __init__(self, read_into: Callable[[npt.NDArray[np.uint8], int], int], start: int, n_bytes: int) -> None:
        self._read_into, self._start, self._n_bytes, self._position = read_into, start, n_bytes, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        self._position = max(0, offset + (0, self._position, self._n_bytes)[whence])
        return self._position

    def readinto(self, buffer: Any) -> int:
        out = np.frombuffer(buffer, np.uint8)[: max(0, self._n_bytes - self._position)]
        n_bytes = self._read_into(out, self._start + self._position) if len(out) else 0
        self._position += n_bytes
        return n_bytes
