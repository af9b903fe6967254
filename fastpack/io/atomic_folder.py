"""Folders that are complete under their name, or absent."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Sequence

from fastpack.errors import JobError
from fastpack.io.atomic import AtomicFile, may_write
from fastpack.io.if_exists import ExistencePolicy, PathLike, TargetExists
from fastpack.io.paths import is_remote, plain_path

INDEX = "index.json"


class AtomicFolder:
    """A folder of files with an `index.json` that gets its name on `commit()`; `abort()` removes it.

    The files are written to `.<name>.partial` next to the target, which is locked, so that a second writer of the same
    target fails. An existing target is replaced under the policy "override" only if it contains nothing but files, one
    of which is `index.json`, or nothing at all. Local folders only.
    """

    def __init__(self, path: PathLike, *, policy: ExistencePolicy = "override") -> None:
        if is_remote(path):
            raise JobError(f"{os.fspath(path)}: a folder is written to a local disk first: upload it afterwards")
        self.path = os.path.realpath(plain_path(path))
        parent, name = os.path.split(self.path)
        self.partial_path = os.path.join(parent, f".{name}.partial")
        self._policy: ExistencePolicy = policy
        self._lock = -1
        self._check_target()
        os.makedirs(self.partial_path, exist_ok=True)
        self._lock = _locked(self.partial_path, self.path)
        try:
            _empty(self.partial_path)  # of a writer that was killed
        except BaseException:
            self.abort()
            raise

    def _check_target(self) -> None:
        if not may_write(self.path, self._policy):
            raise TargetExists(f"{self.path} exists and is to be kept: nothing to write")
        if not os.path.lexists(self.path):
            return
        if not os.path.isdir(self.path):
            raise JobError(f"{self.path} exists and is not a folder")
        with os.scandir(self.path) as found:
            entries = list(found)
        others = [entry.name for entry in entries if not entry.is_file(follow_symlinks=False)]
        if others or (entries and INDEX not in (entry.name for entry in entries)):
            found_text = f"it contains {others[0]}" if others else f"it has no {INDEX}"
            raise JobError(f"{self.path} is not a folder that can be replaced: {found_text}. Remove it first")

    def create(self, name: str) -> AtomicFile:
        """Start a file of the folder; `commit` it before the folder."""
        return AtomicFile(os.path.join(self.partial_path, name))

    def commit(self) -> None:
        """Give the folder its name, replacing an existing one."""
        self._check_target()
        replaced = f"{self.partial_path}.replaced"
        if os.path.lexists(self.path):
            shutil.rmtree(replaced, ignore_errors=True)
            os.rename(self.path, replaced)
        os.rename(self.partial_path, self.path)
        self._unlock()
        _sync(os.path.dirname(self.path))
        shutil.rmtree(replaced, ignore_errors=True)

    def abort(self) -> None:
        """Remove what was written; the target is unchanged. A no-op after `commit()`."""
        if self._lock >= 0:
            shutil.rmtree(self.partial_path, ignore_errors=True)
            self._unlock()

    def _unlock(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def __del__(self) -> None:
        if getattr(self, "_lock", -1) >= 0:
            self.abort()


class AtomicSet:
    """Files in one folder that get their names together on `commit()`; `abort()` removes them.

    They are written to the folder `.<name>.set.partial`, which is locked, under their names. `commit` moves the files
    that they replace into it, and moves them back if it fails. A kill in between leaves some of the new files, never an
    old one next to a new one. Local files only.
    """

    def __init__(self, path: PathLike) -> None:
        self.path = os.path.realpath(plain_path(path))
        self._folder, name = os.path.split(self.path)
        self.partial_path = os.path.join(self._folder, f".{name}.set.partial")
        os.makedirs(self.partial_path, exist_ok=True)
        self._lock = _locked(self.partial_path, self.path)
        self._replaced = os.path.join(self.partial_path, ".replaced")
        try:
            shutil.rmtree(self._replaced, ignore_errors=True)
            _empty(self.partial_path)  # of a writer that was killed
            os.mkdir(self._replaced)
        except BaseException:
            self.abort()
            raise

    def staged(self, path: PathLike) -> str:
        """Return where a file is written until `commit`."""
        return os.path.join(self.partial_path, os.path.basename(os.fspath(path)))

    def commit(self, names: Sequence[str], replaced: Sequence[str]) -> None:
        """Give the files their names, in this order, after removing the files `replaced`, in this order."""
        moves = [(os.path.join(self._folder, name), os.path.join(self._replaced, name)) for name in replaced]
        moves += [(self.staged(name), os.path.join(self._folder, name)) for name in names]
        done: list[tuple[str, str]] = []
        try:
            for source, target in moves:
                if os.path.lexists(source):
                    os.replace(source, target)
                    done.append((source, target))
            _sync(self._folder)
        except BaseException:
            for source, target in reversed(done):
                os.replace(target, source)
            raise
        self.abort()

    def abort(self) -> None:
        """Remove what was written; the targets are unchanged. A no-op after `commit()`."""
        if self._lock >= 0:
            shutil.rmtree(self.partial_path, ignore_errors=True)
            os.close(self._lock)
            self._lock = -1

    def __del__(self) -> None:
        if getattr(self, "_lock", -1) >= 0:
            self.abort()


def _locked(folder: str, target: str) -> int:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(os.fstat(fd), os.stat(folder, follow_symlinks=False)):
            raise BlockingIOError
    except BlockingIOError:
        os.close(fd)
        raise JobError(f"another process is writing {target}: wait for it, or end it") from None
    except BaseException:
        os.close(fd)
        raise
    return fd


def _empty(folder: str) -> None:
    for name in os.listdir(folder):
        os.unlink(os.path.join(folder, name))


def _sync(folder: str) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):  # some file systems cannot sync a folder
            os.fsync(fd)
    finally:
        os.close(fd)
