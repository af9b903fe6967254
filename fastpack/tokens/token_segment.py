"""A run of tokens in one file, the unit that windows, checks and kernels work on."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fastpack.analysis.trailing_zeros import used_bytes
from fastpack.errors import FormatError
from fastpack.io import Reader, Status, is_remote, mapped, open_bytes, open_reader, stat_of
from fastpack.tokens.npy_array import load_npy_array

# Size in bytes, modification time in ns, and inode (of a file) or tag (of an object in a store).
Stamp: TypeAlias = tuple[int, int, int | str | None]


@dataclass(frozen=True, slots=True)
class TokenSegment:
    """`length` tokens of `dtype` from byte `offset` of a file.

    Attributes
    ----------
    path
        The file.
    dtype
        The dtype of the stored tokens.
    length
        Number of tokens; number of rows if the array is not flat.
    offset
        Start of the first token, in bytes from the start of the file.
    plain
        Whether the tokens are a flat array that can be mapped at `offset`.
    stamp
        Size, modification time in ns, and inode or object tag of the file when it was scanned. None is not compared.
    """

    path: str
    dtype: np.dtype[Any]
    length: int
    offset: int
    plain: bool = True
    stamp: tuple[int, int | None, int | str | None] | None = None

    def open(self) -> npt.NDArray[Any]:
        """Map the tokens read-only: [length], or the shape of the array if it is not flat.

        Raises FormatError if the file changed since it was scanned.
        """
        if self.version is None or not self.plain:  # else the store detects a change
            self.check_unchanged()
        if not self.plain:
            return np.asarray(load_npy_array(self.path))
        if self.length == 0:
            return np.empty(0, self.dtype)
        data = mapped(open_bytes(self.path, self.version))
        end = self.offset + self.length * self.dtype.itemsize
        if end > data.nbytes:
            raise FormatError(self.path, data.nbytes, f"a file of {data.nbytes} bytes", f"{end} bytes, as when opened")
        return data[self.offset : end].view(self.dtype)

    @property
    def version(self) -> Status | None:
        """The version of the object in a store; None for files and for stores without tags.

        Requests carry the tag, so the store itself detects a change.
        """
        return version_of(self.stamp)

    def open_reader(self) -> Reader:
        """Open the file for reads by position. Raises FormatError if the file changed since it was scanned."""
        if self.version is None:
            self.check_unchanged()
        return open_reader(self.path, self.version)

    def check_unchanged(self) -> None:
        """Raise FormatError if the size, modification time or inode of the file changed since it was scanned."""
        if self.stamp is None:
            return
        found = stamp_of(stat_of(self.path))
        if found[0] != self.stamp[0]:
            raise FormatError(
                self.path,
                min(found[0], self.stamp[0]),
                f"a file of {found[0]} bytes",
                f"{self.stamp[0]} bytes, as when opened",
            )
        if found != self.stamp:
            what = "another file of that name" if found[2] != self.stamp[2] else "a file that was modified since"
            raise FormatError(self.path, 0, what, "the file as when opened (reopen the dataset to use the new file)")

    def trimmed(self, keep: int = 0) -> TokenSegment:
        """Return this segment without its trailing zero tokens, except the first `keep` of them."""
        if not self.plain or self.length == 0:
            return self
        data = open_bytes(self.path, self.version)
        end = min(self.offset + self.length * self.dtype.itemsize, _start_of_final_hole(self.path, len(data)))
        length = min(self.length, -(-used_bytes(data, self.offset, end) // self.dtype.itemsize) + keep)
        return self if length == self.length else replace(self, length=length)


class SegmentPaths(Sequence[str]):
    """The paths of segments, each read on access."""

    def __init__(self, segments: Sequence[TokenSegment]) -> None:
        self.segments = segments

    def __len__(self) -> int:
        return len(self.segments)

    def __getitem__(self, number: Any) -> Any:
        return self.segments[number].path


def version_of(stamp: tuple[int, int | None, int | str | None] | None) -> Status | None:
    """Return the version of an object in a store that a stamp describes; None for files and stores without tags."""
    if stamp is None or stamp[1] is None or not isinstance(stamp[2], str):
        return None
    return Status(stamp[0], stamp[1], stamp[2])


def stamp_of(status: os.stat_result | Status) -> Stamp:
    """Return what distinguishes a file, or an object in a store, from a later version of it."""
    return status.st_size, status.st_mtime_ns, status.tag if isinstance(status, Status) else status.st_ino


def _start_of_final_hole(path: str, size: int) -> int:
    """Where the hole (never written, so zeros) at the end of a file begins, as far as the file system reports it.

    tatm allocates files of 2^30 tokens and fills what it needs; the rest need not be read.
    """
    if is_remote(path):
        return size
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    end = 0
    try:
        for _ in range(1000):  # a file with more extents is read instead
            end = os.lseek(fd, os.lseek(fd, end, os.SEEK_DATA), os.SEEK_HOLE)
        return size
    except OSError as error:
        return end if error.errno == errno.ENXIO else size
    finally:
        os.close(fd)
