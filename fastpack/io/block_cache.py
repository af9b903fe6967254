"""What was read from stores, kept on the local disk: blocks of objects, and whole objects that were fetched.

One folder for all processes of a machine (and user), bounded: what was used longest ago goes first. An entry is written
aside and renamed, so it is there whole or not at all; its name holds the object's URL, size, time and tag, so another
version is another entry. Blocks carry a CRC-32 for each page of 64 KiB, looked at by every process that reads the page,
and again when the block's file was written to; what does not fit is fetched anew. Once a good part of the limit was
written, by whichever processes, one of them removes what is too much, and what killed processes have left unfinished.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import logging
import os
import stat
import threading
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fastpack.errors import JobError
from fastpack.io.mapping import Mapping
from fastpack.io.stores import Status

PAGE = 1 << 16
BLOCK = 4 << 20
DEFAULT_LIMIT = 20 << 30
_SWEEP_SHARE = 32  # the limit is looked after each time this part of it was written
_TOUCH_SECONDS = 60.0
SAY_AFTER, LOCK_SECONDS = 10.0, 600.0  # of waiting for another process: until it is said, and until it is an error
_HELD_SHARE = 4  # a process maps blocks of up to this part of the limit, and not more than so many
_MOST_HELD = 16_384
_log = logging.getLogger("fastpack")
_KEPT_SECONDS = 7 * 86_400.0  # what a killed process was writing for a store: `--resume` goes on with it


def cache_folder() -> Path:
    """FASTPACK_CACHE_DIR, else `fastpack` in XDG_CACHE_HOME or ~/.cache; made for this user only.

    JobError for a folder that others can write: what lies there would be trusted.
    """
    named = os.environ.get("FASTPACK_CACHE_DIR")
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    folder = Path(named or os.path.join(home, "fastpack"))
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    status = folder.stat()
    if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise JobError(f"{folder} can be written by others: chmod go-w it, or name another in FASTPACK_CACHE_DIR")
    return folder


def cache_limit() -> int:
    """Bytes the cache may hold: FASTPACK_CACHE_BYTES, else 20 GiB. ValueError for a text that is no number."""
    text = os.environ.get("FASTPACK_CACHE_BYTES")
    if text is None:
        return DEFAULT_LIMIT
    try:
        limit = int(text)
    except ValueError:
        limit = -1
    if limit < 0:
        raise ValueError(f"FASTPACK_CACHE_BYTES is {text!r}: give a number of bytes")
    return limit


def identity(url: str, status: Status) -> str:
    """The name of one version of an object in the cache."""
    text = f"{url}\n{status.st_size}\n{status.st_mtime_ns}\n{status.tag}"
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


class Cache:
    """Entries below a folder, by names; safe under threads and for many processes."""

    def __init__(self, folder: Path, limit: int) -> None:
        self.folder, self.limit = folder, limit
        self._held: dict[str, _Block] = {}  # in the order in which they were mapped

    def path(self, name: str) -> Path:
        """Where the entry of that name is, or would be."""
        return Path(self._path(name))

    def _path(self, name: str) -> str:
        return f"{self.folder}/{name[:2]}/{name}"

    def read_block(self, name: str, out: npt.NDArray[np.uint8], offset: int, n_bytes: int) -> bool:
        """Fill `out` with a block's bytes from `offset` on; False where it is not there, or not as it was written.

        n_bytes: of the whole block.
        """
        held = self._held.get(name)
        path = self._path(name) if held is None else held.path
        try:
            status = os.stat(path)
            if time.time() - status.st_mtime > _TOUCH_SECONDS:
                with contextlib.suppress(PermissionError):
                    os.utime(path)
                status = os.stat(path)
            if held is None or held.version != _version(status):
                held = self._hold(name, path, n_bytes)
        except FileNotFoundError:
            self._held.pop(name, None)
            return False
        return held is not None and held.read_into(out, offset)

    def _hold(self, name: str, path: str, n_bytes: int) -> _Block | None:
        """Map a block, and let go of those that were mapped long ago; None for one that is not as it was written."""
        with open(path, "rb", buffering=0) as file:
            status = os.fstat(file.fileno())
            if status.st_size != n_bytes + 4 * _n_pages(n_bytes):
                return None
            try:
                data = np.asarray(Mapping(file.fileno(), status.st_size))
            except OSError:  # the rest of the process took what the system allows
                self._held.clear()
                data = np.asarray(Mapping(file.fileno(), status.st_size))
        held = self._held[name] = _Block(path, data, n_bytes, _version(status))
        most = max(1, self.limit // (_HELD_SHARE * n_bytes))
        for _ in range(len(self._held) - min(most, _MOST_HELD)):
            with contextlib.suppress(KeyError, RuntimeError, StopIteration):  # another thread is at it
                del self._held[next(iter(self._held))]
        return held

    def is_held(self, name: str) -> bool:
        """Whether this process has mapped a block; it may have been removed since."""
        return name in self._held

    def has(self, name: str) -> bool:
        return os.path.exists(self._path(name))

    def write_block(self, name: str, data: bytes | memoryview) -> None:
        """Keep a block; harmless where another process keeps it at the same time, or where the disk is full."""
        view = memoryview(data)
        sums = b"".join(
            zlib.crc32(view[start : start + PAGE]).to_bytes(4, "little") for start in range(0, len(view), PAGE)
        )
        with contextlib.suppress(OSError):
            self._put(name, view, sums)

    def _put(self, name: str, *parts: bytes | memoryview) -> None:
        path = self.path(name)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        aside = path.with_name(f".{name}.{os.getpid()}.{threading.get_ident()}")
        try:
            with open(aside, "wb") as file:
                fcntl.flock(file, fcntl.LOCK_EX)  # says that somebody is at it
                for part in parts:
                    file.write(part)
                file.flush()
                os.replace(aside, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(aside)
            raise
        self.note_written(sum(map(len, parts)))

    def note_written(self, n_bytes: int) -> None:
        """Count what was added, for all processes together; from time to time, remove what is too much."""
        with open(self._locks() / "written", "ab", buffering=0) as file:  # a byte a page: appending needs no lock
            file.write(b"." * _n_pages(n_bytes))
            n_pages = os.fstat(file.fileno()).st_size
        if n_pages * PAGE >= self.limit // _SWEEP_SHARE:
            self.sweep()

    def _locks(self) -> Path:
        locks = self.folder / "locks"
        locks.mkdir(parents=True, exist_ok=True, mode=0o700)
        return locks

    def sweep(self) -> None:
        """Remove what was used longest ago until the limit is kept; nothing where another process is at it."""
        with self._exclusively("sweep") as mine:
            if not mine:
                return
            entries, total = [], 0
            for path, status in self._entries():
                if not path.name.startswith("."):
                    entries.append((status.st_mtime_ns, status.st_size, path))
                elif self._remove_unfinished(path):
                    continue
                total += status.st_size
            entries.sort(key=lambda entry: entry[:2])
            for _, size, path in entries:
                if total <= self.limit:
                    break
                path.unlink(missing_ok=True)
                total -= size
            self._remove_forgotten()
            (self._locks() / "written").write_bytes(b"")

    def _remove_unfinished(self, path: Path) -> bool:
        """Remove what a killed process has left of an entry; False where somebody is writing it."""
        if path.name.endswith(".partial"):  # an object that is fetched whole, under this lock
            with self._exclusively(f"{path.parent.name}.fetch") as mine:
                if mine:
                    path.unlink(missing_ok=True)
                return mine
        return _remove_unlocked(path)

    def _remove_forgotten(self) -> None:
        """Remove what was to go to a store a week ago."""
        for path in (self.folder / "writing").glob(".*"):
            with contextlib.suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime > _KEPT_SECONDS:
                    _remove_unlocked(path)

    def _entries(self) -> Iterator[tuple[Path, os.stat_result]]:
        for folder in self.folder.iterdir():
            if len(folder.name) == 2 and folder.is_dir():
                for path in folder.iterdir():
                    with contextlib.suppress(FileNotFoundError):
                        yield path, path.stat()

    @contextlib.contextmanager
    def fetching(self, name: str) -> Iterator[None]:
        """While an entry is fetched whole: one process and thread at a time, waiting for the others.

        Waiting is logged. Raises JobError where the others have written nothing for `LOCK_SECONDS`.
        """
        pause, waited, unchanged, before = 0.01, 0.0, 0.0, self._unfinished(name)
        with contextlib.ExitStack() as stack:
            while not stack.enter_context(self._exclusively(f"{name[:2]}.fetch")):
                stack.pop_all().close()
                time.sleep(pause)
                if waited < SAY_AFTER <= waited + pause:
                    _log.warning("waiting for another process that fetches into %s", self.folder)
                now = self._unfinished(name)
                unchanged = unchanged + pause if now == before else 0.0
                waited, pause, before = waited + pause, min(2 * pause, 0.5), now
                if unchanged > LOCK_SECONDS:
                    raise JobError(
                        f"another process has held {self._locks() / name[:2]}.fetch for {waited:.0f} s and written "
                        f"nothing for {unchanged:.0f} s: end it (`fuser` names it), or set another FASTPACK_CACHE_DIR"
                    )
            yield

    def _unfinished(self, name: str) -> list[tuple[str, int]]:
        """What is being fetched under the lock of an entry, and how much of it is there."""
        found = []
        for path in self.path(name).parent.glob(".*.partial"):
            with contextlib.suppress(FileNotFoundError):
                found.append((path.name, path.stat().st_size))
        return found

    @contextlib.contextmanager
    def _exclusively(self, name: str) -> Iterator[bool]:
        """Hold a lock, or not (False) where somebody else does."""
        with open(self._locks() / name, "ab") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            yield True


def _remove_unlocked(path: Path) -> bool:
    """Remove a file unless somebody has locked it. Who locks it a moment too late finds it gone when renaming."""
    try:
        with open(path, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink(missing_ok=True)
    except FileNotFoundError:
        return True
    except BlockingIOError:
        return False
    return True


def _n_pages(n_bytes: int) -> int:
    return -(-n_bytes // PAGE)


def _version(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_ino, status.st_size, status.st_mtime_ns


class _Block:
    """A block in memory, whose pages are compared with their sums when they are first read."""

    __slots__ = ("_data", "_seen", "_sums", "path", "version")

    def __init__(self, path: str, data: npt.NDArray[np.uint8], n_bytes: int, version: tuple[int, int, int]) -> None:
        self.path, self.version = path, version
        self._data, self._sums = data[:n_bytes], data[n_bytes:].view("<u4")
        self._seen = bytearray(len(self._sums))

    def read_into(self, out: npt.NDArray[np.uint8], offset: int) -> bool:
        """Fill `out` with the bytes from `offset` on; False where they are not those that were written."""
        for page in range(offset // PAGE, _n_pages(offset + len(out))):
            if not self._seen[page]:
                if zlib.crc32(self._data[page * PAGE : (page + 1) * PAGE].data) != int(self._sums[page]):
                    return False
                self._seen[page] = 1
        out[:] = self._data[offset : offset + len(out)]
        return True


@functools.lru_cache(maxsize=4)
def _cache(folder: Path, limit: int) -> Cache:
    return Cache(folder, limit)


def cache() -> Cache:
    """The cache that the environment names."""
    return _cache(cache_folder(), cache_limit())
