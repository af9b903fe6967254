"""Files that are complete under their name, or absent.

Bytes are written to `.<name>.partial` in the same folder, fsynced, and renamed to the target. The partial file is
locked while it is written: a second writer of the same target fails immediately, and the next writer reuses the file of
a killed process.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import io
import os
import stat
from collections.abc import Sequence
from typing import IO

from fastpack.errors import INTERRUPTS, JobError, spoken
from fastpack.io import stores as remote
from fastpack.io.file_copy import copy_pipe, copy_range
from fastpack.io.gathered_write import Spans, write_interleaved
from fastpack.io.if_exists import CHECKSUMS, OVERWRITING, POLICIES, Bytes, ExistencePolicy, PathLike, TargetExists
from fastpack.io.mapping import libc
from fastpack.io.paths import exists, is_remote, plain_path, with_filename
from fastpack.io.store_listings import forget_listing

_fallocate = getattr(libc, "fallocate", None)  # Linux; Python's posix_fallocate writes zeros where it is unsupported
if _fallocate is not None:
    _fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long)
_KEEP_SIZE = 1
_sync_file_range = getattr(libc, "sync_file_range", None)  # Linux
if _sync_file_range is not None:
    _sync_file_range.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
_START_WRITING = 2  # SYNC_FILE_RANGE_WRITE: returns before the data is on the disk
OVERWRITE = "Pass if_exists='overwrite'"


@with_filename
def write_durably(path: PathLike, offset: int, data: Bytes) -> None:
    """Write all of `data` at `offset` of one of our files, truncate the file after it, and fsync."""
    with io.FileIO(os.fspath(path), "r+", opener=_create) as file:
        os.ftruncate(file.fileno(), offset)
        _put(file.fileno(), data, offset)
        os.fsync(file.fileno())


def _put(fd: int, data: Bytes, offset: int) -> int:
    """Write all of `data` at `offset`; return its length in bytes."""
    view = memoryview(data).cast("B")  # type: ignore[arg-type]  # typeshed's Buffer misses numpy below Python 3.12
    done = 0
    while done < len(view):
        done += os.pwrite(fd, view[done:], offset + done)
    return done


def remove(path: PathLike) -> None:
    """Remove a file or object, if it exists."""
    if is_remote(path):
        remote.delete(plain_path(path))
        return
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def may_write(path: PathLike, policy: ExistencePolicy) -> bool:
    """Return whether `path` may be written under `policy`; False if it exists and is kept ("skip").

    Raises TargetExists (a ValueError and FileExistsError) for "error", ValueError for an unknown policy.
    """
    if policy not in POLICIES:
        raise ValueError(f"if_exists: found {policy!r}, expected 'error', 'skip' or 'overwrite'")
    if is_remote(path):
        remote.check_writable(plain_path(path))
    if not exists(path):
        return True
    if policy == "error":
        raise TargetExists(f"{os.fspath(path)} exists. {spoken(OVERWRITE)} to overwrite it.")
    return policy in OVERWRITING


def partial_path(path: PathLike, *, follow: bool = True) -> str:
    """Return the path of the partial file of `path`; follow: as for `AtomicFile`.

    For an object in a store it is in the cache's folder, so a write can be resumed only on the same machine.
    """
    if is_remote(path):
        import hashlib  # takes 3 ms

        from fastpack.io.cache_folder import cache_folder

        name = hashlib.blake2b(plain_path(path).encode(), digest_size=16).hexdigest()
        return os.fspath(cache_folder() / "writing" / f".{name}.partial")
    path = plain_path(path)
    folder, name = os.path.split(os.path.realpath(path) if follow else path)
    return os.path.join(folder, f".{name}.partial")


class AtomicFile:
    """A file that gets its name on `commit()`; `abort()`, or an exception in a with block, removes it.

    keep: resume the partial file of an earlier writer (`suspend()`, or a kill) after its last byte. policy: if the
    target exists, TargetExists is raised unless this is "overwrite". follow: write through a symbolic link, as open()
    does; False replaces the link: for names that no user chose.
    A file that is replaced keeps its permissions and, if the process may set them, its owner and group; the partial
    file has them from the start. Raises JobError if another process is writing the same target (for an object in a
    store: on this machine). Missing parent folders are created. An object is uploaded on `commit()`.
    """

    def __init__(
        self, path: PathLike, *, keep: bool = False, policy: ExistencePolicy = "overwrite", follow: bool = True
    ) -> None:
        self.path = _target(path, follow)
        self.partial_path = partial_path(self.path, follow=follow)
        os.makedirs(os.path.dirname(self.partial_path), exist_ok=True)
        self._policy = policy
        self._position = 0
        self._is_new = True
        self._file: io.FileIO | None = None
        try:
            self._start(keep, policy)
        except JobError:
            raise
        except BaseException as error:  # also a signal's exception between the call and the assignment
            if keep and isinstance(error, INTERRUPTS) and self._has_earlier_bytes():
                self.suspend()
                raise
            self.abort()
            _sweep(self.partial_path)
            raise

    @with_filename
    def _start(self, keep: bool, policy: ExistencePolicy) -> None:
        self._file = _lock_partial(self.partial_path, self.path)
        self._fd = self._file.fileno()
        if not may_write(self.path, policy):
            raise self._target_exists()
        self._is_new = not self._take_permissions(0o600)  # a later writer must be able to open it after a kill
        if not keep:
            os.ftruncate(self._fd, 0)
        self._position = os.fstat(self._fd).st_size

    def _target_exists(self) -> TargetExists:
        return TargetExists(
            f"{self.path} was written by another process in the meantime. {spoken(OVERWRITE)} to replace it."
        )

    def _has_earlier_bytes(self) -> bool:
        """Return whether the partial file contains bytes of an earlier writer."""
        return self._file is None or os.fstat(self._file.fileno()).st_size > 0

    @with_filename
    def write(self, data: Bytes) -> int:
        """Append all of `data`; return its length in bytes."""
        n_bytes = _put(self._fd, data, self._position)
        self._position += n_bytes
        return n_bytes

    @with_filename
    def copy_from(self, path: PathLike, offset: int, n_bytes: int) -> int:
        """Append bytes of a local file; return their number, less than `n_bytes` only at the end of the file."""
        done = 0
        with open(plain_path(path), "rb", buffering=0) as source, copy_pipe(self._fd) as pipe:
            while done < n_bytes:
                place = self._position + done
                n_copied = copy_range(source.fileno(), offset + done, self._fd, place, n_bytes - done, pipe)
                if n_copied == 0:
                    break
                done += n_copied
        if _sync_file_range is not None:  # the disk writes while the next bytes are copied; fsync then waits less
            _sync_file_range(self._fd, self._position, done, _START_WRITING)
        self._position += done
        return done

    @with_filename
    def write_interleaved(self, spans: Sequence[Spans]) -> int:
        """Append the first piece of each array, then the second of each, and so on; return the number of bytes."""
        n_bytes = write_interleaved(self._fd, self._position, spans)
        if _sync_file_range is not None:
            _sync_file_range(self._fd, self._position, n_bytes, _START_WRITING)
        self._position += n_bytes
        return n_bytes

    @with_filename
    def reserve(self, n_bytes: int) -> None:
        """Reserve disk space for the next `n_bytes`, all of which will be written; a no-op where unsupported.

        A full disk then raises OSError before the work instead of after it, and writing is 25 % faster (ext4).
        """
        if _fallocate is not None and n_bytes > 0 and _fallocate(self._fd, _KEEP_SIZE, self._position, n_bytes):
            error = ctypes.get_errno()
            if error in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise OSError(error, os.strerror(error))

    @with_filename
    def patch(self, offset: int, data: bytes) -> None:
        """Overwrite bytes at `offset` that are already written (a header whose sizes are known at the end)."""
        if offset + len(data) > self._position:
            raise ValueError(f"patch of [{offset}, {offset + len(data)}) beyond the {self._position} bytes written")
        _put(self._fd, data, offset)

    def tell(self) -> int:
        """Bytes written so far."""
        return self._position

    @with_filename
    def truncate(self, n_bytes: int) -> None:
        """Truncate the file to `n_bytes`."""
        if n_bytes > self._position:
            raise ValueError(f"truncation to {n_bytes} of {self._position} bytes")
        os.ftruncate(self._fd, n_bytes)
        self._position = n_bytes

    @with_filename
    def sync(self) -> None:
        """Flush the bytes written so far to the disk."""
        getattr(os, "fdatasync", os.fsync)(self._fd)  # not on macOS

    def fileno(self) -> int:
        return self._fd

    @with_filename
    def set_modified(self, time_ns: int) -> None:
        """Set the modification time, after all bytes are written; no effect in a store."""
        os.utime(self._fd, ns=(time_ns, time_ns))

    @with_filename
    def set_mode(self, mode: int) -> None:
        """Set the permissions of a new file; a file that is replaced keeps its own."""
        if self._is_new:
            os.fchmod(self._fd, mode & 0o7777)

    def _take_permissions(self, added: int = 0) -> bool:
        """Copy owner and permissions, plus the bits `added`, of the replaced file; return False for a new file."""
        status = None if is_remote(self.path) else _status_of_file(self.path)
        if status is not None:
            _copy_owner(status, self._fd)
            os.fchmod(self._fd, (status.st_mode | added) & 0o7777)  # last: changing the owner clears some bits
        return status is not None

    @with_filename
    def commit(self) -> None:
        """Flush to the disk and rename to the target, replacing an existing file."""
        self._take_permissions()
        os.fsync(self._fd)
        remove(self.path + CHECKSUMS)  # checksums of the replaced file
        if is_remote(self.path):
            self._upload()
            return
        os.replace(self.partial_path, self.path)
        self.suspend()
        _sync_folder(os.path.dirname(self.path))

    def _upload(self) -> None:
        try:
            remote.upload(self.path, self.partial_path, replace=self._policy != "error")
        except FileExistsError:
            raise self._target_exists() from None
        forget_listing(self.path)
        self.abort()

    def abort(self) -> None:
        """Remove the partial file; the target is unchanged. A no-op after `commit()`."""
        if self._file is not None:
            try:
                if _same_file(self._file, self.partial_path):  # it may have been renamed just before a signal
                    os.unlink(
                        self.partial_path
                    )  # before the lock is released, so that no other writer's file is removed
            finally:
                self.suspend()

    def suspend(self) -> None:
        """Stop writing and keep the partial file for a writer with `keep`."""
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
            self.abort()  # a no-op after commit

    def __del__(self) -> None:
        if getattr(self, "_file", None) is not None:
            self.abort()


def _target(path: PathLike, follow: bool) -> str:
    if is_remote(path):
        return plain_path(path)
    path = plain_path(path)
    folder, name = os.path.split(path)
    target = os.path.realpath(path) if follow else os.path.join(os.path.realpath(folder), name)
    if os.path.exists(target) and not os.path.isfile(target):
        raise JobError(f"{target} exists and is not a regular file")
    return target


def _status_of_file(path: str) -> os.stat_result | None:
    """Return the status of a regular file; None for a missing file or a link."""
    try:
        status = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return None
    return status if stat.S_ISREG(status.st_mode) else None


def _copy_owner(status: os.stat_result, fd: int) -> None:
    mine = os.fstat(fd)
    for uid, gid in ((-1, status.st_gid), (status.st_uid, -1)):  # separately: only root may change the owner
        if (mine.st_uid, mine.st_gid) != (status.st_uid, status.st_gid):
            with contextlib.suppress(PermissionError):
                os.fchown(fd, uid, gid)


def _sync_folder(folder: str) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _lock_partial(partial_path: str, target: str) -> io.FileIO:
    """Open and lock the partial file; a file object, so that it is closed even after an exception."""
    while True:
        with contextlib.ExitStack() as stack:
            file = stack.enter_context(io.FileIO(partial_path, "r+", opener=_create))
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise JobError(f"another process is writing {target}: wait for it, or end it") from None
            # Between open and lock another writer may have renamed or removed the file: then start over.
            if _same_file(file, partial_path):
                if (status := os.fstat(file.fileno())).st_nlink > 1 or not stat.S_ISREG(status.st_mode):
                    raise JobError(f"{partial_path} has another link or is not a regular file: remove it")
                stack.pop_all()
                return file


def _create(path: str, _flags: int) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)


def _sweep(partial_path: str) -> None:
    """Remove a partial file that no process is writing."""
    with contextlib.suppress(OSError), open(partial_path, "rb+") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _same_file(file, partial_path):
            os.unlink(partial_path)


def _same_file(file: IO[bytes] | io.FileIO, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path, follow_symlinks=False))
    except FileNotFoundError:
        return False
