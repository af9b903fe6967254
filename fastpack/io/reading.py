"""Opening files to read them: mapped whole, by position, or from front to back."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import stat
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from fastpack.errors import JobError
from fastpack.io import stores as remote
from fastpack.io.checksum_blocks import have_sums
from fastpack.io.if_exists import PathLike
from fastpack.io.mapping import Mapping
from fastpack.io.paths import is_remote, plain_path, with_filename

_FETCHES = 3  # of one object, until it can be opened
STREAMED = 1 << 20  # bytes of an object read from the cache at once
S = TypeVar("S", bound=PathLike)
T = TypeVar("T")


def map_bytes(path: PathLike) -> npt.NDArray[np.uint8]:
    """The whole file as a read-only uint8[n_bytes] view of a mapping; an empty file gives an empty array.

    The mapping lives as long as a view of it and needs no open file. A file that shrinks meanwhile kills the process
    with SIGBUS on access. An object in a store is fetched into the cache first (`fetch`).
    """
    with _open_local(path) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise JobError(f"{os.fspath(path)} is not a regular file: it cannot be mapped")
        if status.st_size == 0:
            return np.empty(0, np.uint8)
        try:
            return np.asarray(Mapping(file.fileno(), status.st_size))
        except OSError as error:
            hint = "; more mappings than vm.max_map_count allows?" if error.errno == errno.ENOMEM else ""
            raise OSError(error.errno, f"{error.strerror}: the file cannot be mapped{hint}", os.fspath(path)) from None


def _open_local(path: PathLike) -> io.FileIO:
    """A file opened; a copy of an object that gave way to others before it could be opened is fetched again."""
    for _ in range(_FETCHES):
        copy = local_file(path)
        try:
            return open(copy, "rb", buffering=0)
        except FileNotFoundError:
            if not is_remote(path):
                raise
    raise JobError(f"{os.fspath(path)}: the cache cannot keep it: set FASTPACK_CACHE_BYTES to more")


def local_file(path: PathLike) -> str:
    """The path of a local file; of an object in a store, that of its copy, fetched unless it is there."""
    if is_remote(path):
        from fastpack.io.remote_files import fetch

        return os.fspath(fetch(path))
    return plain_path(path)


class Reader(Protocol):
    """A file, or an object in a store, read by position; closed when the last reference is gone. Safe under threads."""

    path: str

    def read_into(self, out: npt.NDArray[np.uint8], offset: int) -> int:
        """Fill `out` with the bytes from `offset` on; returns how many there were, fewer only at the file's end."""
        ...

    def will_need(self, offset: int, n_bytes: int) -> None:
        """Have these bytes read in the background."""
        ...


def open_reader(
    path: PathLike, status: os.stat_result | remote.Status | None = None, *, checked: bool = True
) -> Reader:
    """A file, or an object in a store, to be read by position; status: of the version of an object that is meant.

    checked: compare what comes from a store with the checksums next to the object, if there are any.
    """
    if is_remote(path):
        from fastpack.io.remote_files import ObjectReader

        return ObjectReader(plain_path(path), status if isinstance(status, remote.Status) else None, checked=checked)
    return FileReader(plain_path(path))


class ByteArray(Protocol):
    """The bytes of a file: a uint8 array, or what is sliced like one and reads what it is asked for."""

    def __len__(self) -> int: ...

    def __getitem__(self, part: slice, /) -> npt.NDArray[np.uint8]: ...


def open_bytes(path: PathLike, status: remote.Status | None = None) -> ByteArray:
    """`map_bytes` of a file; of an object in a store (of this `status`), its bytes as they are asked for, by slices."""
    if is_remote(path):
        from fastpack.io.remote_files import ObjectBytes

        return ObjectBytes(plain_path(path), status)
    return map_bytes(path)


def mapped(data: ByteArray) -> npt.NDArray[np.uint8]:
    """What `open_bytes` gave as an array: an object is fetched whole into the cache for it."""
    if isinstance(data, np.ndarray):
        return data
    from fastpack.io.remote_files import ObjectBytes

    assert isinstance(data, ObjectBytes)
    return map_bytes(data.whole())


def bytes_behind(data: ByteArray, start: int) -> ByteArray:
    """`data[start:]`; of an object, none of them is read for it."""
    if isinstance(data, np.ndarray):
        return data[start:]
    from fastpack.io.remote_files import ObjectBytes

    assert isinstance(data, ObjectBytes)
    return data.behind(start)


def peek(data: ByteArray, start: int, end: int) -> npt.NDArray[np.uint8]:
    """`data[start:end]`; of an object just these bytes are asked for, not the blocks they lie in."""
    if isinstance(data, np.ndarray):
        return data[start:end]
    from fastpack.io.remote_files import ObjectBytes

    assert isinstance(data, ObjectBytes)
    return data.peek(start, end)


def stop_at(data: ByteArray, end: int) -> ByteArray:
    """`data`, of which nothing from `end` on is fetched ahead: whoever reads it from front to back stops there."""
    if not isinstance(data, np.ndarray):
        from fastpack.io.remote_files import ObjectBytes

        assert isinstance(data, ObjectBytes)
        data.stop_at(end)
    return data


def on_stores(function: Callable[[S], T], items: Sequence[S]) -> list[T]:
    """What a function returns for each of `items`, paths or URLs, in order: URLs are asked about several at a time."""
    if items and is_remote(items[0]):
        from fastpack.io.threads import in_parallel

        return in_parallel(function, items)
    return list(map(function, items))


class FileReader:
    """A `Reader` of a local file."""

    __slots__ = ("_fd", "path")

    def __init__(self, path: PathLike) -> None:
        self._fd = -1
        self.path = os.fspath(path)
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    @with_filename
    def read_into(self, out: npt.NDArray[np.uint8], offset: int) -> int:
        """Fill `out` with the bytes from `offset` on; returns how many there were, fewer only at the file's end."""
        done = 0
        view = out.data
        while done < len(view) and (n_bytes := os.preadv(self._fd, [view[done:]], offset + done)):
            done += n_bytes
        return done

    def will_need(self, offset: int, n_bytes: int) -> None:
        """Have the system read these bytes in the background."""
        if hasattr(os, "posix_fadvise"):
            with contextlib.suppress(OSError):
                os.posix_fadvise(self._fd, offset, n_bytes, os.POSIX_FADV_WILLNEED)

    def __del__(self, _close: Callable[[int], None] = os.close) -> None:
        if self._fd >= 0:
            _close(self._fd)


def open_stream(path: PathLike) -> io.BufferedReader:
    """A regular file, or an object, opened for reading from front to back; JobError for anything else."""
    if is_remote(path):
        from fastpack.io.remote_files import ObjectReader, ObjectStream

        return io.BufferedReader(ObjectStream(ObjectReader(plain_path(path))), STREAMED)
    file = open(plain_path(path), "rb")  # noqa: SIM115 (the caller closes it)
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise JobError(f"{os.fspath(path)} is not a regular file")
    return file


def read_start(path: PathLike, n_bytes: int) -> bytes:
    """The first bytes of a file or object, at most `n_bytes`; of a pipe as many as come."""
    if is_remote(path):
        return _remote_head(path, n_bytes)[0]
    with open(plain_path(path), "rb") as file:
        return file.read(n_bytes)


def _remote_head(path: PathLike, n_bytes: int) -> tuple[bytes, remote.Status]:
    """With one request; where a listing told of checksums, compared with them."""
    url = plain_path(path)
    if not have_sums(url):
        return remote.read_head(url, n_bytes)
    from fastpack.io.remote_files import ObjectReader

    reader = ObjectReader(url)
    head = np.empty(min(n_bytes, reader.status.st_size), np.uint8)
    reader.read_into(head, 0)
    return head.tobytes(), reader.status


def read_head(path: PathLike, n_bytes: int) -> tuple[bytes, os.stat_result | remote.Status]:
    """The first bytes of a regular file or object, at most `n_bytes`, and its status at that time."""
    if is_remote(path):
        return _remote_head(path, n_bytes)
    fd = os.open(plain_path(path), os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, n_bytes), os.fstat(fd)
    finally:
        os.close(fd)
