"""The one place that opens, maps and atomically replaces files.

A target appears under its name complete or not at all: bytes go to `.<name>.partial` in the same folder, are fsynced,
and renamed over the target. The partial file is locked while it is written, so a second writer of the same target fails
at once, and what a killed process left behind is reused by the next one.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import functools
import io
import mmap
import os
import stat
from collections.abc import Callable
from enum import StrEnum
from typing import IO, Any, Literal, TypeAlias, TypeVar, cast

import numpy as np
import numpy.typing as npt

from fastpack.errors import JobError

PathLike: TypeAlias = str | os.PathLike[str]


class FileExistencePolicy(StrEnum):
    """Modalities' name for what to do with a target that exists; the plain words do as well."""

    SKIP = "skip"
    ERROR = "error"
    OVERRIDE = "override"


ExistencePolicy: TypeAlias = Literal["skip", "error", "override"] | FileExistencePolicy
Progress: TypeAlias = Callable[[int, int], None]  # (bytes done, bytes in all)
Bytes: TypeAlias = bytes | bytearray | memoryview | npt.NDArray[Any]  # what has a C-contiguous buffer
F = TypeVar("F", bound=Callable[..., Any])

POLICIES: tuple[ExistencePolicy, ...] = ("skip", "error", "override")
CHECKSUMS = ".fpsum"  # of the file of that name without it, see formats/checksums.py


class TargetExists(FileExistsError, ValueError):
    """The target is there already and the policy is "error" (Modalities raises ValueError here)."""


_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *(ctypes.c_int,) * 3, ctypes.c_long)
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_libc.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
_MAP_FAILED = ctypes.c_void_p(-1).value
_fallocate = getattr(_libc, "fallocate", None)  # Linux; Python's posix_fallocate writes blocks where it is unsupported
if _fallocate is not None:
    _fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long)
_KEEP_SIZE = 1


class Mapping:
    """A file in memory, read-only, without a file descriptor; unmapped when the last array over it is gone.

    Python's own mmap keeps a descriptor a mapping, of which a process may have 1,024, or 256; mappings 65,530.
    """

    __slots__ = ("address", "n_bytes")

    def __init__(self, fd: int, n_bytes: int) -> None:
        self.n_bytes = 0
        address = _libc.mmap(None, n_bytes, mmap.PROT_READ, mmap.MAP_SHARED, fd, 0)
        if address == _MAP_FAILED:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        self.address, self.n_bytes = address, n_bytes

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return {"version": 3, "shape": (self.n_bytes,), "typestr": "|u1", "data": (self.address, True)}

    def __del__(self, _munmap: Any = _libc.munmap) -> None:
        if self.n_bytes:
            _munmap(self.address, self.n_bytes)


def map_bytes(path: PathLike) -> npt.NDArray[np.uint8]:
    """The whole file as a read-only uint8[n_bytes] view of a mapping; an empty file gives an empty array.

    The mapping lives as long as a view of it and needs no open file. A file that shrinks meanwhile kills the process
    with SIGBUS on access.
    """
    with open(path, "rb", buffering=0) as file:
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


def drop_pages(data: npt.NDArray[np.uint8], start: int, end: int) -> None:
    """Give back the memory of bytes [start, end) of a `map_bytes` array that was read from front to back.

    The bytes stay readable (from the page cache, or the disk again); they only stop counting as this process's own.
    """
    mapping = data.base
    first, last = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE, end // mmap.PAGESIZE * mmap.PAGESIZE
    if isinstance(mapping, Mapping) and last > first:
        _libc.madvise(mapping.address + first, last - first, mmap.MADV_DONTNEED)


def will_need(address: int, n_bytes: int) -> None:
    """Have the system read these bytes of a mapping from the disk in the background; no harm where it cannot."""
    start = address & -mmap.PAGESIZE
    _libc.madvise(start, address + n_bytes - start, mmap.MADV_WILLNEED)


def read_at_random(address: int, n_bytes: int) -> None:
    """Tell the system that a mapping is read here and there: a touched page then brings no neighbours along."""
    start = address & -mmap.PAGESIZE
    _libc.madvise(start, address + n_bytes - start, mmap.MADV_RANDOM)


def is_in_memory(address: int, n_bytes: int) -> bool:
    """Whether all these bytes of a mapping are in memory; True as well for files that are another user's, read-only."""
    start = address & -mmap.PAGESIZE
    pages = (ctypes.c_ubyte * (-(-(address + n_bytes - start) // mmap.PAGESIZE)))()
    failed = _libc.mincore(start, address + n_bytes - start, pages)
    return not failed and all(page & 1 for page in pages)


def _names_file(function: F) -> F:
    """Errors of the system then say which file they are about, which those of a descriptor do not by themselves."""

    @functools.wraps(function)
    def naming(first: Any, *others: Any) -> Any:  # a path, or an object with one
        try:
            return function(first, *others)
        except OSError as error:
            if error.errno is not None and error.filename is None:
                error.filename = os.fspath(getattr(first, "path", first))
            raise

    return cast(F, naming)


class ReadFile:
    """A file read by position; closed when the last reference is gone. Safe under threads."""

    __slots__ = ("_fd", "path")

    def __init__(self, path: PathLike) -> None:
        self._fd = -1
        self.path = os.fspath(path)
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    @_names_file
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
    """A regular file opened for reading from front to back; JobError for anything else."""
    file = open(path, "rb")  # noqa: SIM115 (the caller closes it)
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise JobError(f"{os.fspath(path)} is not a regular file")
    return file


@_names_file
def write_durably(path: PathLike, offset: int, data: Bytes) -> None:
    """Have all of `data` reach the disk at `offset` of a file of our own; what was behind it there is dropped."""
    with io.FileIO(os.fspath(path), "r+", opener=_create) as file:
        os.ftruncate(file.fileno(), offset)
        _put(file.fileno(), data, offset)
        os.fsync(file.fileno())


def _put(fd: int, data: Bytes, offset: int) -> None:
    view = memoryview(data).cast("B")  # type: ignore[arg-type]  # typeshed's Buffer misses numpy below Python 3.12
    while view:
        n_bytes = os.pwrite(fd, view, offset)
        view, offset = view[n_bytes:], offset + n_bytes


def remove(path: PathLike) -> None:
    """Remove a file, if it is there."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def may_write(path: PathLike, policy: ExistencePolicy) -> bool:
    """True when `path` may be written under `policy`; False means: it exists and is to be kept ("skip").

    Raises TargetExists (a ValueError and FileExistsError) for "error", ValueError for an unknown policy.
    """
    if policy not in POLICIES:
        raise ValueError(f"unknown file existence policy {policy!r}: choose one of {', '.join(POLICIES)}")
    if not os.path.exists(path):
        return True
    if policy == "error":
        raise TargetExists(
            f"File already exists. Delete it or specify different output folder. ({os.fspath(path)}; "
            "or choose the file existence policy skip or override)"
        )
    return policy == "override"


def partial_path(path: PathLike, *, follow: bool = True) -> str:
    """Where the bytes of the file `path` lie while it is being written; follow: as for `AtomicFile`."""
    folder, name = os.path.split(os.path.realpath(path) if follow else path)
    return os.path.join(folder, f".{name}.partial")


class AtomicFile:
    """A file being written that takes its name only on `commit()`; `abort()`, or an error in a with block, removes it.

    keep: take up what an earlier writer left behind (`suspend()`, or a kill) and go on behind its last byte. policy:
    what to do when the target exists already, now that no one else can write it: TargetExists unless "override".
    follow: write through a symbolic link of that name, as open() does; False replaces it: for names no user gave.
    Raises JobError when another process is writing the same target. Missing parent folders are made.
    """

    def __init__(
        self, path: PathLike, *, keep: bool = False, policy: ExistencePolicy = "override", follow: bool = True
    ) -> None:
        folder, name = os.path.split(path)
        self.path = os.path.realpath(path) if follow else os.path.join(os.path.realpath(folder), os.fspath(name))
        if os.path.exists(self.path) and not os.path.isfile(self.path):
            raise JobError(f"{self.path} exists and is not a regular file")
        self.partial_path = partial_path(self.path, follow=follow)
        os.makedirs(os.path.dirname(self.path), exist_ok=True)
        self._position = 0
        self._file: io.FileIO | None = None
        try:
            self._start(keep, policy)
        except JobError:
            raise
        except BaseException:  # a signal's exception, maybe between the call and the assignment
            self.abort()
            _sweep(self.partial_path)
            raise

    @_names_file
    def _start(self, keep: bool, policy: ExistencePolicy) -> None:
        self._file = _lock_partial(self.partial_path, self.path)
        self._fd = self._file.fileno()
        if not may_write(self.path, policy):
            raise TargetExists(f"{self.path} was written by another process meanwhile")
        if not keep:
            os.ftruncate(self._fd, 0)
        self._position = self._file.seek(0, os.SEEK_END)

    @_names_file
    def write(self, data: Bytes) -> int:
        """Append all of `data`; return its length in bytes."""
        view = memoryview(data).cast("B")  # type: ignore[arg-type]  # as in _put
        n_bytes, done = len(view), 0
        while done < n_bytes:
            done += os.write(self._fd, view[done:])
        self._position += n_bytes
        return n_bytes

    @_names_file
    def reserve(self, n_bytes: int) -> None:
        """Have the next `n_bytes`, all of which will be written, set aside on the disk, where the file system can.

        A full disk then raises OSError before the work and not after it, and writing is a quarter faster (ext4).
        """
        if _fallocate is not None and n_bytes > 0 and _fallocate(self._fd, _KEEP_SIZE, self._position, n_bytes):
            error = ctypes.get_errno()
            if error in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise OSError(error, os.strerror(error))

    @_names_file
    def patch(self, offset: int, data: bytes) -> None:
        """Overwrite bytes at `offset` that are already written (a header whose sizes are known at the end)."""
        if offset + len(data) > self._position:
            raise ValueError(f"patch of [{offset}, {offset + len(data)}) beyond the {self._position} bytes written")
        _put(self._fd, data, offset)

    def tell(self) -> int:
        """Bytes written so far."""
        return self._position

    @_names_file
    def truncate(self, n_bytes: int) -> None:
        """Forget all bytes from `n_bytes` on."""
        if n_bytes > self._position:
            raise ValueError(f"truncation to {n_bytes} of {self._position} bytes")
        os.ftruncate(self._fd, n_bytes)
        self._position = os.lseek(self._fd, n_bytes, os.SEEK_SET)

    @_names_file
    def sync(self) -> None:
        """Have what is written so far reach the disk."""
        getattr(os, "fdatasync", os.fsync)(self._fd)  # not on macOS

    def fileno(self) -> int:
        return self._fd

    @_names_file
    def commit(self) -> None:
        """Flush to the disk and take the target's name, replacing what was there."""
        os.fsync(self._fd)
        remove(self.path + CHECKSUMS)  # they are those of the file that goes
        os.replace(self.partial_path, self.path)
        self.suspend()
        folder = ReadFile(os.path.dirname(self.path))
        os.fsync(folder._fd)

    def abort(self) -> None:
        """Remove what was written; the target stays as it was. Harmless after `commit()`."""
        if self._file is not None:
            try:
                if _same_file(self._file, self.partial_path):  # not so when it was renamed just before a signal
                    os.unlink(self.partial_path)  # before the lock goes, so that no second writer's file is removed
            finally:
                self.suspend()

    def suspend(self) -> None:
        """Stop writing; what is written stays in the partial file, for a writer with `keep`."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def __enter__(self) -> AtomicFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self.commit()
        finally:
            self.abort()  # harmless after commit

    def __del__(self) -> None:
        if getattr(self, "_file", None) is not None:
            self.abort()


def _lock_partial(partial_path: str, target: str) -> io.FileIO:
    """The partial file, locked: a file object, so that it is closed even if an exception loses it."""
    while True:
        with contextlib.ExitStack() as stack:
            file = stack.enter_context(io.FileIO(partial_path, "r+", opener=_create))
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise JobError(f"another process is writing {target}: wait for it, or end it") from None
            # Between open and lock another writer may have renamed or removed this very file: then start over.
            if _same_file(file, partial_path):
                if (status := os.fstat(file.fileno())).st_nlink > 1 or not stat.S_ISREG(status.st_mode):
                    raise JobError(f"{partial_path} is in the way: it is another file as well, or none; remove it")
                stack.pop_all()
                return file


def _create(path: str, _flags: int) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)


def _sweep(partial_path: str) -> None:
    """Remove a partial file that nobody is writing."""
    with contextlib.suppress(OSError), open(partial_path, "rb+") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _same_file(file, partial_path):
            os.unlink(partial_path)


def _same_file(file: IO[bytes] | io.FileIO, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path, follow_symlinks=False))
    except FileNotFoundError:
        return False
