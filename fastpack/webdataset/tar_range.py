"""Read the files in a byte range of a tar, such as one sample, without walking what precedes it."""

from __future__ import annotations

import errno
import os
import tarfile
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fastpack import kernels
from fastpack.errors import FormatError
from fastpack.io import PathLike, Status, is_in_memory, map_bytes, open_reader, read_at_random, stat_of, will_need
from fastpack.io.file_reader import RangeStream
from fastpack.kernels.codecs.tar_errors import Fault, Outcome, State, TarSyntaxError

WINDOW = 1 << 18  # bytes per read: a range up to this size needs one system call
HEADER_WINDOW = 1 << 13  # beyond it, headers are read in chunks of this size, and contents as a whole
MAX_SPARSE_BYTES = 1 << 30  # a sparse file of a few blocks can claim any size
MAX_CACHED_NAMES = 64  # cached from sample to sample; most datasets have a handful

# Plain integers: an enumeration member costs 0.1 us per use as an index.
_POSITION, _WANTED, _N_ROWS, _N_NEW = map(int, (State.POSITION, State.WANTED, State.N_ROWS, State.N_NEW))
_N_NAMES, _LAST_NAME, _END, _FULL = map(int, (State.N_PARTS, State.LAST_PART, Outcome.END, Outcome.FULL))
_FRESH = np.zeros(_N_NAMES, np.int64)
_FRESH[State.MAX_MEMBERS], _FRESH[State.KEY_END] = 1 << 62, -1
_REACHES_BEYOND = (Fault.SHORT_HEADER, Fault.DATA_END)

Bytes = npt.NDArray[np.uint8]


class _OpenTar:
    """What `check_unchanged` compares with."""

    def __init__(self, path: PathLike) -> None:
        self.path = os.fspath(path)
        self.status = stat_of(self.path)

    def check_unchanged(self) -> None:
        """Raise FormatError if the file has another size, modification time or inode than when it was opened."""
        now = stat_of(self.path)
        for name, what in (("st_size", "size"), ("st_mtime_ns", "modification time"), ("st_ino", "inode")):
            if getattr(now, name) != getattr(self.status, name):
                raise FormatError(self.path, 0, f"a file whose {what} has changed", "the file that was opened")


class MappedTar(_OpenTar):
    """A memory-mapped tar. Accessing a file that has shrunk kills the process."""

    def __init__(self, path: PathLike) -> None:
        super().__init__(path)
        self._data = map_bytes(path)
        self.n_bytes = len(self._data)
        self._address = self._data.ctypes.data
        self._at_random = False

    def window(self, start: int, end: int, most: int) -> Bytes:
        """Return bytes [start, end); `most` of them are needed first."""
        del most
        return self._data[start:end]

    def read(self, start: int, n_bytes: int) -> bytes:
        """Return these bytes, fewer only at the end of the file."""
        return self._data[start : start + n_bytes].tobytes()

    def will_need(self, start: int, n_bytes: int) -> None:
        """Hint the system to prefetch these bytes, and from now on to read no neighbouring pages."""
        if not self._at_random:
            self._at_random = True
            read_at_random(self._address, self.n_bytes)
        will_need(self._address + start, n_bytes)

    def is_in_memory(self, start: int, n_bytes: int) -> bool:
        """Return whether these bytes are in memory."""
        return is_in_memory(self._address + start, n_bytes)


class ReadTar(_OpenTar):
    """A tar read with pread: a file that has shrunk is an error, not a crash."""

    def __init__(self, path: PathLike) -> None:
        super().__init__(path)
        self._file = open_reader(path, self.status)
        self.n_bytes = self.status.st_size

    def check_unchanged(self) -> None:
        """Do as `MappedTar`, unless each request to the store names the version that was opened."""
        if not isinstance(self.status, Status) or self.status.tag is None:
            super().check_unchanged()

    def window(self, start: int, end: int, most: int) -> Bytes:
        """Return at most `most` of the bytes [start, end), fewer only at the end of the file."""
        out = np.empty(min(end - start, most), np.uint8)
        return out[: self._read_into(out, start)]

    def read(self, start: int, n_bytes: int) -> bytes:
        """Return these bytes, fewer only at the end of the file."""
        out = np.empty(n_bytes, np.uint8)
        return out[: self._read_into(out, start)].tobytes()

    def _read_into(self, out: Bytes, start: int) -> int:
        try:
            return self._file.read_into(out, start)
        except OSError as error:
            if error.errno != errno.ESTALE:  # the file must be reopened (network file systems)
                raise
        self._file = open_reader(self.path)
        return self._file.read_into(out, start)

    def will_need(self, start: int, n_bytes: int) -> None:
        """Hint the system to prefetch these bytes."""
        self._file.will_need(start, n_bytes)

    def is_in_memory(self, start: int, n_bytes: int) -> bool:
        """Return False: unknown for a file that is not mapped."""
        del start, n_bytes
        return False


Tar = MappedTar | ReadTar


class Member(NamedTuple):
    """A file of a sample: its field name, and the offset in the tar and the size of its content.

    The size of a sparse file includes its holes, which the tar does not store.
    """

    field: str
    offset: int
    size: int
    is_sparse: int


class Walker:
    """Reusable outputs of a walk; for one thread at a time."""

    def __init__(self) -> None:
        self._state = np.zeros(len(State), np.int64)
        self._rows = np.empty((16, 5), np.int64)
        self._samples = np.empty((2, 3), np.int64)
        self._text = np.empty(1024, np.uint8)
        self._name_text = np.empty(1024, np.uint8)
        self._name_ends = np.empty(MAX_CACHED_NAMES, np.int64)
        self._names: list[str] = []

    def begin(self, start: int) -> None:
        """Reset to offset `start` of a tar."""
        state = self._state
        state[:_N_NAMES] = _FRESH
        state[_POSITION] = start
        if len(self._names) >= MAX_CACHED_NAMES:
            state[_N_NAMES] = state[_LAST_NAME] = 0
            self._names.clear()

    def walk(self, window: Bytes, base: int, end: int) -> tuple[bool, int, int]:
        """Continue through the members in `window`, the bytes from `base` on.

        Returns (whether `end` was reached, the position, the bytes from it on that the next window must contain).
        Raises TarSyntaxError.
        """
        while True:
            outcome = kernels.walk_tar(
                window, base, end, self._state, self._rows, self._samples, self._text, self._name_text, self._name_ends
            )
            if outcome != _FULL:
                break
            for name in ("_rows", "_samples", "_text", "_name_text", "_name_ends"):
                array = getattr(self, name)
                setattr(self, name, np.concatenate([array, array]))
        return outcome == _END, int(self._state[_POSITION]), int(self._state[_WANTED])

    def keys(self) -> list[str]:
        """Return the keys of the samples found, in order."""
        spans = self._samples[: self._state[_N_NEW]].tolist()
        return [_decoded(self._text[start:end]) for _, start, end in spans]

    def members(self) -> list[Member]:
        """Return the members of samples found, in order."""
        names = self._names
        while len(names) < self._state[_N_NAMES]:
            start = int(self._name_ends[len(names) - 1]) if names else 0
            names.append(_decoded(self._name_text[start : self._name_ends[len(names)]]))
        rows = self._rows[: self._state[_N_ROWS]].tolist()
        return [Member(names[number], offset, size, is_sparse) for _, number, offset, size, is_sparse in rows]


def _decoded(name: Bytes) -> str:
    return name.tobytes().decode("utf-8", "surrogateescape")


class SampleRange:
    """The sample in bytes [start, end) of a tar, from a header to the end of a member's padding.

    key: the sample's key. members: its files in order. window: size of the first read in bytes.

    Raises FormatError if the range is damaged or truncated, or does not contain exactly one sample.
    """

    def __init__(self, tar: Tar, start: int, end: int, walker: Walker, window: int = WINDOW) -> None:
        self._tar, self.start, self.end = tar, start, end
        self._at, self._held = start, self._window(start, window)
        walker.begin(start)
        self._walk(walker)
        keys = walker.keys()
        if len(keys) != 1:
            found = f"the samples {', '.join(map(repr, keys[:3]))}" if keys else "no sample"
            raise FormatError(tar.path, start, found, f"one in the bytes up to {end}, as the index says")
        self.key = keys[0]
        self.members = walker.members()

    def _window(self, start: int, most: int) -> Bytes:
        held = self._tar.window(start, self.end, most)
        if len(held) < min(self.end - start, most):
            raise self._too_short(start + len(held))
        return held

    def _too_short(self, offset: int) -> FormatError:
        expected = f"a sample up to byte {self.end}, as the index says"
        return FormatError(self._tar.path, offset, "the end of the file", expected)

    def _walk(self, walker: Walker) -> None:
        try:
            while True:
                done, position, wanted = walker.walk(self._held, self._at, self.end)
                if done:
                    break
                self._at, self._held = position, self._window(position, max(wanted, HEADER_WINDOW))
        except TarSyntaxError as error:
            found, expected = error.found, error.expected
            if error.fault in _REACHES_BEYOND:
                found = "a member that extends beyond it"
                expected = f"the sample's end at {self.end}, as the index says"
            raise FormatError(self._tar.path, error.offset, found, expected) from None
        if position != self.end:
            expected = f"members up to byte {self.end}, as the index says"
            raise FormatError(self._tar.path, position, "the end of the archive", expected)

    def content(self, member: Member) -> bytes:
        """Return the content of one of `members`, with the holes of a sparse file as zeros."""
        return self._sparse_content(member) if member.is_sparse else self._read(member.offset, member.size)

    def _read(self, start: int, n_bytes: int) -> bytes:
        first = start - self._at
        if first >= 0 and first + n_bytes <= len(self._held):
            return self._held[first : first + n_bytes].tobytes()
        data = self._tar.read(start, n_bytes)
        if len(data) < n_bytes:
            raise self._too_short(start + len(data))
        return data

    def _read_into(self, out: Bytes, start: int) -> int:
        out[:] = np.frombuffer(self._read(start, len(out)), np.uint8)
        return len(out)

    def _sparse_content(self, member: Member) -> bytes:
        """Read a sparse file with Python's tarfile, which supports all kinds."""
        path, offset = self._tar.path, member.offset
        if member.size > MAX_SPARSE_BYTES:
            raise FormatError(path, offset, f"a sparse file of {member.size} bytes", f"at most {MAX_SPARSE_BYTES}")
        try:
            stream = RangeStream(self._read_into, self.start, self.end - self.start)
            with tarfile.open(fileobj=stream, mode="r:", encoding="utf-8", errors="surrogateescape") as tar:
                info = next((info for info in tar if self.start + info.offset_data == offset), None)
                file = None if info is None else tar.extractfile(info)
                data = b"" if file is None else file.read(member.size + 1)
        except FormatError:
            raise
        except (tarfile.TarError, ValueError, OverflowError, IndexError) as error:
            raise FormatError(path, offset, f"a damaged sparse file ({error})", "a complete one") from error
        if len(data) != member.size:
            raise FormatError(path, offset, f"{len(data)} bytes of a sparse file", member.size)
        return data
