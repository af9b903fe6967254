"""Opening files for reading: mapped, by position, or as a stream."""

from __future__ import annotations

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
from fastpack.io.file_reader import FileReader, RangeStream
from fastpack.io.held_pages import HeldPages
from fastpack.io.if_exists import CHECKSUMS, PathLike
from fastpack.io.mapping import Mapping
from fastpack.io.paths import is_remote, plain_path
from fastpack.io.remote_files import ObjectBytes, ObjectReader, fetch
from fastpack.io.store_listings import is_listed
from fastpack.io.threads import in_parallel

_FETCHES = 3  # attempts to fetch an object until it can be opened
STREAMED = 1 << 20  # bytes per read of an object from the cache
S = TypeVar("S", bound=PathLike)
T = TypeVar("T")


def map_bytes(path: PathLike) -> npt.NDArray[np.uint8]:
    """Map a file as a read-only uint8 array [n_bytes]; an empty file gives an empty array.

    The map lives as long as a view of it and needs no open file. If the file shrinks, access kills the process with
    SIGBUS. An object in a store is first fetched into the cache (`fetch`).
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
    """Open a file; a copy of an object that was evicted before it could be opened is fetched again."""
    for _ in range(_FETCHES):
        copy = local_file(path)
        try:
            return open(copy, "rb", buffering=0)
        except FileNotFoundError:
            if not is_remote(path):
                raise
    raise JobError(f"{os.fspath(path)}: it does not fit into the cache: increase FASTPACK_CACHE_BYTES")


def local_file(path: PathLike) -> str:
    """Return the path of a local file, or of the local copy of an object, which is fetched if necessary."""
    return os.fspath(fetch(path)) if is_remote(path) else plain_path(path)


class Reader(Protocol):
    """A file or object that is read by position; closed with its last reference. Thread-safe."""

    path: str

    def read_into(self, out: npt.NDArray[np.uint8], offset: int) -> int:
        """Fill `out` with the bytes from `offset` on; return their number, less than requested only at the end."""
        ...

    def will_need(self, offset: int, n_bytes: int) -> None:
        """Hint that these bytes are needed soon. Returns immediately."""
        ...


def open_reader(
    path: PathLike, status: os.stat_result | remote.Status | None = None, *, checked: bool = True
) -> Reader:
    """Open a file or object for reading by position; status: of the expected version of an object.

    checked: compare data from a store with the checksums of the object, if it has any.
    """
    if is_remote(path):
        return ObjectReader(plain_path(path), status if isinstance(status, remote.Status) else None, checked=checked)
    return FileReader(plain_path(path))


def open_among(open_one: Callable[[], Reader], n_bytes: Callable[[], int]) -> Reader:
    """Open a file or object that is read at random; n_bytes: of all such objects, see `ObjectReader.read_among`."""
    reader = open_one()
    if isinstance(reader, ObjectReader):
        reader.read_among(n_bytes())
    return reader


def note_pages(reader: Reader, pages: HeldPages, position: int, start: int, end: int, at: int) -> None:
    """Call `ObjectReader.note_pages` for an object in a store."""
    if isinstance(reader, ObjectReader):
        reader.note_pages(pages, position, start, end, at)


class ByteArray(Protocol):
    """The bytes of a file: a uint8 array, or an object that is sliced like one and reads on access."""

    def __len__(self) -> int: ...

    def __getitem__(self, selection: slice, /) -> npt.NDArray[np.uint8]: ...


def open_bytes(path: PathLike, status: remote.Status | None = None) -> ByteArray:
    """Map a file; for an object in a store (of this `status`), return an array-like that reads slices on access."""
    return ObjectBytes(plain_path(path), status) if is_remote(path) else map_bytes(path)


def mapped(data: ByteArray) -> npt.NDArray[np.uint8]:
    """Return the result of `open_bytes` as an array; an object is fetched completely into the cache."""
    if isinstance(data, ObjectBytes):
        return map_bytes(data.whole())
    assert isinstance(data, np.ndarray)
    return data


def bytes_behind(data: ByteArray, start: int) -> ByteArray:
    """Return `data[start:]`; no bytes of an object are read."""
    return data.behind(start) if isinstance(data, ObjectBytes) else data[start:]


def peek(data: ByteArray, start: int, end: int) -> npt.NDArray[np.uint8]:
    """Return `data[start:end]`; for an object only these bytes are requested, not whole blocks."""
    return data.peek(start, end) if isinstance(data, ObjectBytes) else data[start:end]


def stop_at(data: ByteArray, end: int) -> ByteArray:
    """Return `data` with prefetching limited to bytes before `end`, for a reader that stops there."""
    if isinstance(data, ObjectBytes):
        data.stop_at(end)
    return data


def on_stores(function: Callable[[S], T], items: Sequence[S]) -> list[T]:
    """Call a function for each path or URL, several URLs at a time; return the results in order."""
    if items and is_remote(items[0]):
        return in_parallel(function, items)
    return list(map(function, items))


def open_stream(path: PathLike) -> io.BufferedReader:
    """Open a regular file or an object as a stream; JobError for anything else."""
    if is_remote(path):
        reader = ObjectReader(plain_path(path))
        return io.BufferedReader(RangeStream(reader.read_into, 0, reader.status.st_size), STREAMED)
    file = open(plain_path(path), "rb")  # noqa: SIM115 (the caller closes it)
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise JobError(f"{os.fspath(path)} is not a regular file")
    return file


def read_start(path: PathLike, n_bytes: int) -> bytes:
    """Read at most the first `n_bytes` of a file, object or pipe."""
    if is_remote(path):
        return _remote_head(path, n_bytes)[0]
    with open(plain_path(path), "rb") as file:
        return file.read(n_bytes)


def _remote_head(path: PathLike, n_bytes: int) -> tuple[bytes, remote.Status]:
    """Read the start of an object with one request; check it if a listing showed checksums."""
    url = plain_path(path)
    if not is_listed(url + CHECKSUMS):
        return remote.read_head(url, n_bytes)
    reader = ObjectReader(url)
    head = np.empty(min(n_bytes, reader.status.st_size), np.uint8)
    reader.read_into(head, 0)
    return head.tobytes(), reader.status


def read_head(path: PathLike, n_bytes: int) -> tuple[bytes, os.stat_result | remote.Status]:
    """Read at most the first `n_bytes` of a regular file or object; return them and its status at that time."""
    if is_remote(path):
        return _remote_head(path, n_bytes)
    fd = os.open(plain_path(path), os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, n_bytes), os.fstat(fd)
    finally:
        os.close(fd)
