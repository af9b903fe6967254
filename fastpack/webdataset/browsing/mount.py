"""Mount a prepared WebDataset as a read-only folder with FUSE."""

from __future__ import annotations

import errno
import itertools
import os
import signal
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from fastpack.errors import FormatError, JobError, import_extra
from fastpack.io import PathLike
from fastpack.webdataset import metadata as nvmeta
from fastpack.webdataset.browsing.mount_tree import MAX_NAME_BYTES, Content, Entry, SampleTree

_T = TypeVar("_T")
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_TRUNC
_BLOCK = 512
_ENDED = ((7,), (8,))  # return codes of libfuse 3 that unmounted because of a signal


class Listing:
    """The entries of an open folder by position, listed lazily; going back starts again."""

    def __init__(self, entries: Callable[[], Iterator[Entry]]) -> None:
        self._entries = entries
        self._rest = entries()
        self._position = 0  # of the next entry
        self._last: Entry | None = None  # a full buffer may have rejected it
        self._lock = threading.Lock()

    def at(self, position: int) -> Entry | None:
        """Return the entry at `position`, None after the last one."""
        with self._lock:
            if position == self._position - 1:
                return self._last
            if position < self._position:
                self._rest, self._position = self._entries(), 0
            while self._position <= position:
                self._last = next(self._rest, None)
                self._position += 1
                if self._last is None:
                    self._rest = iter(())
            return self._last


class Operations:
    """The operations of a FUSE file system, on a `SampleTree`; paths start with a slash. Errors are OSErrors.

    complain: called with a message about a damaged shard or index; the reader gets an input/output error.
    mounted: called when the file system is mounted.
    """

    use_ns = True  # times are in nanoseconds

    def __init__(
        self,
        tree: SampleTree,
        complain: Callable[[str], None] | None = None,
        mounted: Callable[[], None] | None = None,
    ) -> None:
        self._tree, self._complain, self._mounted = tree, complain, mounted
        self._files: dict[int, Content] = {}
        self._folders: dict[int, Listing] = {}
        self._handles = itertools.count(1)
        self._status = os.stat(nvmeta.index_path(tree.folder))

    def init(self, _path: str) -> None:
        """Report that the folder is mounted; FUSE calls this method."""
        if self._mounted is not None:
            self._mounted()

    def getattr(self, path: str, _fh: int | None = None) -> dict[str, Any]:
        """Return the status of a file or folder: read-only, with the owner and times of the index."""
        entry = self._checked(lambda: self._tree.entry(path[1:]))
        times = dict.fromkeys(("st_atime", "st_mtime", "st_ctime"), self._status.st_mtime_ns)
        owner = {"st_uid": self._status.st_uid, "st_gid": self._status.st_gid}
        return {"st_mode": _mode(entry), "st_nlink": 1, "st_size": entry.n_bytes or 0, **times, **owner}

    def opendir(self, path: str) -> int:
        """Return a handle for listing a folder."""
        listing = self._checked(lambda: Listing(lambda: self._tree.entries(path[1:])))
        self._checked(lambda: listing.at(0))
        handle = next(self._handles)
        self._folders[handle] = listing
        return handle

    def readdir_with_offset(self, _path: str, offset: int, fh: int) -> Iterator[tuple[str, dict[str, int], int]]:
        """Yield (name, status, next position) of a folder's entries, from position `offset` on."""
        listing = self._folders[fh]
        for position, name in ((0, "."), (1, "..")):
            if position >= offset:
                yield name, {"st_mode": stat.S_IFDIR | 0o555}, position + 1
        position = max(offset, 2)
        while True:
            at = position - 2
            entry = self._checked(lambda at=at: listing.at(at))  # type: ignore[misc]
            if entry is None:
                return
            position += 1
            yield entry.name, {"st_mode": _mode(entry)}, position

    def releasedir(self, _path: str, fh: int) -> int:
        """Close a folder's handle."""
        del self._folders[fh]
        return 0

    def open(self, path: str, flags: int) -> int:
        """Return a handle for reading a file."""
        if flags & _WRITING:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
        content = self._checked(lambda: self._tree.open(path[1:]))
        handle = next(self._handles)
        self._files[handle] = content
        return handle

    def read(self, _path: str, size: int, offset: int, fh: int) -> bytes:
        """Read from an open file, directly from its shard."""
        content = self._files[fh]
        return self._checked(lambda: content.read(offset, size))

    def release(self, _path: str, fh: int) -> int:
        """Close a file's handle."""
        self._files.pop(fh).close()
        return 0

    def statfs(self, _path: str) -> dict[str, int]:
        """Return the size of all shards, without free space."""
        n_bytes = sum(os.stat(shard).st_size for shard in self._tree.shards if shard.is_file())
        sizes = {"f_bsize": _BLOCK, "f_frsize": _BLOCK, "f_blocks": n_bytes // _BLOCK, "f_bfree": 0, "f_bavail": 0}
        return {**sizes, "f_namemax": MAX_NAME_BYTES}

    def _checked(self, read: Callable[[], _T]) -> _T:
        """Return the result of `read`; a FormatError becomes an input/output error."""
        try:
            return read()
        except FormatError as error:
            if self._complain is not None:
                self._complain(str(error))
            raise OSError(errno.EIO, os.strerror(errno.EIO)) from error


def _mode(entry: Entry) -> int:
    return stat.S_IFDIR | 0o555 if entry.is_folder else stat.S_IFREG | 0o444


def mount(
    folder: PathLike,
    target: PathLike,
    *,
    sample_folders: bool = False,
    allow_slow: bool = False,
    detach: bool = False,
    complain: Callable[[str], None] | None = None,
    mounted: Callable[[], None] | None = None,
) -> None:
    """Show the samples of a prepared dataset as files in the empty folder `target`; return when it is unmounted.

    sample_folders: one folder per sample. allow_slow: see `SampleTree`. detach: return immediately and run in the
    background. complain, mounted: see `Operations`.
    Raises what `SampleTree` raises, MissingExtra without mfusepy, JobError without libfuse or if FUSE cannot mount.
    """
    fuse = _fuse()
    root = os.path.abspath(folder)  # libfuse changes to the root folder
    tree = SampleTree(root, sample_folders=sample_folders, allow_slow=allow_slow)
    if not os.path.isdir(target):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), os.fspath(target))
    mount_point = os.path.realpath(target)
    with _unmounted_by_sigterm():
        try:
            fuse.FUSE(
                Operations(tree, complain, mounted), mount_point, foreground=not detach, ro=True, fsname="fastpack"
            )
        except RuntimeError as error:
            if error.args[:1] in _ENDED:
                return
            reason = f"FUSE did not mount it (code {error}). Check that /dev/fuse exists and that you may use it."
            raise JobError(f"{mount_point}: {reason}") from error
        finally:
            tree.close()


def _fuse() -> Any:
    try:
        return import_extra("mfusepy", "mount", "mounting a dataset")
    except OSError as error:  # the package is installed, the library is not
        raise JobError(f"mounting a dataset needs libfuse ({error}): install your system's package fuse3") from error


@contextmanager
def _unmounted_by_sigterm() -> Iterator[None]:
    """Let libfuse unmount on SIGTERM: it handles only signals without another handler."""
    previous = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
