"""A cache on the local disk of data from stores: blocks of objects, and whole objects.

All processes of a user on a machine share one folder of limited size; the least recently used entries are evicted
first. An entry is written to a temporary name and renamed, so it is complete or absent. Its name is a hash of the
object's URL, size, time and tag, so another version is another entry. Blocks contain a CRC-32 for each page of 64 KiB,
which every process except the block's writer checks when it first reads the page, and again after the block's file was
modified; damaged blocks are fetched again. After each 1/32 of the limit that all processes have written, one of them
evicts entries beyond the limit and removes unfinished files of killed processes.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import io
import os
import threading
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from fastpack.errors import JobError
from fastpack.io.cache_folder import cache_folder
from fastpack.io.mapping import Mapping
from fastpack.io.store_clients import logger
from fastpack.io.stores import Status

Version: TypeAlias = tuple[int, int, int]  # inode, size and modification time of a block's file

PAGE = 1 << 16
BLOCK = 4 << 20
DEFAULT_LIMIT = 20 << 30
_SWEEP_SHARE = 32  # the limit is enforced each time this fraction of it was written
_TOUCH_SECONDS = 60.0
SAY_AFTER, LOCK_SECONDS = 10.0, 600.0  # of waiting for another process: until it is logged, and until it is an error
_HELD_SHARE = 4  # a process maps blocks of up to this fraction of the limit, and at most _MOST_HELD
_MOST_HELD = 16_384
_KEPT_SECONDS = 7 * 86_400.0  # unfinished uploads of killed processes, which `--resume` continues


def cache_limit() -> int:
    """Return the limit in bytes: FASTPACK_CACHE_BYTES, else 20 GiB; ValueError if it is not a number."""
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
    """Return the name in the cache of one version of an object."""
    text = f"{url}\n{status.st_size}\n{status.st_mtime_ns}\n{status.tag}"
    import hashlib  # takes 3 ms

    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


class Cache:
    """Named entries below a folder; safe for concurrent threads and processes."""

    def __init__(self, folder: Path, limit: int) -> None:
        self.folder, self.limit = folder, limit
        self._held: dict[str, Block] = {}  # in the order in which they were mapped
        self._written: dict[str, Version] = {}  # blocks that this process wrote and has not mapped yet

    def path(self, name: str) -> Path:
        """Return the path of an entry, which may not exist."""
        return Path(self._path(name))

    def _path(self, name: str) -> str:
        return f"{self.folder}/{name[:2]}/{name}"

    def read_block(self, name: str, out: npt.NDArray[np.uint8], offset: int, n_bytes: int) -> bool:
        """Fill `out` with a block's bytes from `offset` on; return False if the block is missing or damaged.

        n_bytes: size of the whole block.
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

    def _hold(self, name: str, path: str, n_bytes: int) -> Block | None:
        """Map a block, and release the oldest maps; return None for a block of the wrong size."""
        with open(path, "rb", buffering=0) as file:
            status = os.fstat(file.fileno())
            if status.st_size != n_bytes + 4 * _n_pages(n_bytes):
                return None
            try:
                data = np.asarray(Mapping(file.fileno(), status.st_size))
            except OSError:  # the process has reached the limit of maps
                self._held.clear()
                data = np.asarray(Mapping(file.fileno(), status.st_size))
        version = _version(status)
        held = self._held[name] = Block(
            path, data, n_bytes, version, is_checked=self._written.pop(name, None) == version
        )
        for _ in range(len(self._held) - self.most_held(n_bytes)):
            with contextlib.suppress(KeyError, RuntimeError, StopIteration):  # another thread removes it
                del self._held[next(iter(self._held))]
        return held

    def is_held(self, name: str) -> bool:
        """Return whether this process has mapped a block, which may have been evicted since."""
        return name in self._held

    def hold(self, name: str, n_bytes: int) -> Block | None:
        """Return a block that this process has mapped, or maps now; None if it is missing or has another size."""
        try:
            return self._held.get(name) or self._hold(name, self._path(name), n_bytes)
        except FileNotFoundError:
            return None

    def most_held(self, n_bytes: int) -> int:
        """Return how many blocks of this size a process maps."""
        return min(max(1, self.limit // (_HELD_SHARE * n_bytes)), _MOST_HELD)

    def has(self, name: str) -> bool:
        return os.path.exists(self._path(name))

    def write_block(self, name: str, data: bytes | memoryview) -> None:
        """Store a block; another process may store it at the same time, and a full disk is ignored."""
        view = memoryview(data)
        pages = [view[start : start + PAGE] for start in range(0, len(view), PAGE)]
        with contextlib.suppress(OSError):
            self._put(name, pages)

    def _put(self, name: str, pages: list[memoryview]) -> None:
        path = self.path(name)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        temporary = path.with_name(f".{name}.{os.getpid()}.{threading.get_ident()}")
        try:
            with open(temporary, "wb", buffering=0) as file:
                fcntl.flock(file, fcntl.LOCK_EX)  # marks the file as being written
                sums = bytearray()
                for page in pages:  # a write of a whole block costs ext4 seven times as much
                    sums += zlib.crc32(page).to_bytes(4, "little")
                    _write(file, page)
                _write(file, sums)
                status = os.fstat(file.fileno())
                os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
        if len(self._written) >= _MOST_HELD:
            self._written.clear()
        self._written[name] = _version(status)
        self.note_written(status.st_size)

    def note_written(self, n_bytes: int) -> None:
        """Count the bytes written by all processes; enforce the limit from time to time."""
        with open(self._locks() / "written", "ab", buffering=0) as file:  # one byte per page: appending needs no lock
            file.write(b"." * _n_pages(n_bytes))
            n_pages = os.fstat(file.fileno()).st_size
        if n_pages * PAGE >= self.limit // _SWEEP_SHARE:
            self.sweep()

    def _locks(self) -> Path:
        locks = self.folder / "locks"
        locks.mkdir(parents=True, exist_ok=True, mode=0o700)
        return locks

    def sweep(self) -> None:
        """Evict the least recently used entries beyond the limit, unless another process does so."""
        with self._exclusively("sweep") as is_locked:
            if not is_locked:
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
            self._remove_old_uploads()
            (self._locks() / "written").write_bytes(b"")

    def _remove_unfinished(self, path: Path) -> bool:
        """Remove an unfinished file of a killed process; return False if a process is writing it."""
        if path.name.endswith(".partial"):  # a whole object, which is fetched under this lock
            with self._exclusively(f"{path.parent.name}.fetch") as is_locked:
                if is_locked:
                    path.unlink(missing_ok=True)
                return is_locked
        return _remove_unlocked(path)

    def _remove_old_uploads(self) -> None:
        """Remove unfinished uploads that are older than a week."""
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
        """Hold the lock under which one process and thread at a time fetches a whole entry.

        Waiting is logged. Raises JobError if the holder has written nothing for `LOCK_SECONDS`.
        """
        pause, waited, unchanged, before = 0.01, 0.0, 0.0, self._unfinished(name)
        with contextlib.ExitStack() as stack:
            while not stack.enter_context(self._exclusively(f"{name[:2]}.fetch")):
                stack.pop_all().close()
                time.sleep(pause)
                if waited < SAY_AFTER <= waited + pause:
                    logger().warning("waiting for another process that fetches into %s", self.folder)
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
        """Return the files being fetched under the lock of an entry, and their sizes."""
        found = []
        for path in self.path(name).parent.glob(".*.partial"):
            with contextlib.suppress(FileNotFoundError):
                found.append((path.name, path.stat().st_size))
        return found

    @contextlib.contextmanager
    def _exclusively(self, name: str) -> Iterator[bool]:
        """Try to hold a lock; yields False if another process or thread holds it."""
        with open(self._locks() / name, "ab") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            yield True


def _remove_unlocked(path: Path) -> bool:
    """Remove a file unless it is locked. A process that locks it too late fails to rename it."""
    try:
        with open(path, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink(missing_ok=True)
    except FileNotFoundError:
        return True
    except BlockingIOError:
        return False
    return True


def _write(file: io.FileIO, data: memoryview | bytearray) -> None:
    """Write all bytes; OSError if the disk is full."""
    if (done := file.write(data) or 0) < len(data):
        _write(file, memoryview(data)[done:])


def _n_pages(n_bytes: int) -> int:
    return -(-n_bytes // PAGE)


def _version(status: os.stat_result) -> Version:
    return status.st_ino, status.st_size, status.st_mtime_ns


class Block:
    """A mapped block; its pages are checked when they are first read."""

    __slots__ = ("_checked", "_data", "_sums", "path", "version")

    def __init__(
        self, path: str, data: npt.NDArray[np.uint8], n_bytes: int, version: Version, *, is_checked: bool
    ) -> None:
        self.path, self.version = path, version
        self._data, self._sums = data[:n_bytes], data[n_bytes:].view("<u4")
        self._checked = bytearray([is_checked]) * len(self._sums)

    def read_into(self, out: npt.NDArray[np.uint8], offset: int) -> bool:
        """Fill `out` with the bytes from `offset` on; return False if they are damaged."""
        for page in range(offset // PAGE, _n_pages(offset + len(out))):
            if not self._checked[page]:
                if zlib.crc32(self._data[page * PAGE : (page + 1) * PAGE].data) != int(self._sums[page]):
                    return False
                self._checked[page] = 1
        out[:] = self._data[offset : offset + len(out)]
        return True

    def page_addresses(self, page_bytes: int) -> npt.NDArray[np.uint64]:
        """Return the address of each page of this size (a divisor of `PAGE`) that was checked, 0 for the others."""
        n_pages = -(-len(self._data) // page_bytes)
        is_checked = np.repeat(np.frombuffer(self._checked, np.uint8), PAGE // page_bytes)[:n_pages]
        address = np.uint64(self._data.__array_interface__["data"][0])
        return (address + np.arange(n_pages, dtype=np.uint64) * np.uint64(page_bytes)) * is_checked


_cache = functools.lru_cache(maxsize=4)(Cache)


def cache() -> Cache:
    """Return the cache that the environment configures."""
    return _cache(cache_folder(), cache_limit())
