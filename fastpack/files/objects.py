"""Objects in stores, read as files are: by position through the block cache, or fetched whole and mapped."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fastpack.errors import JobError
from fastpack.files import remote
from fastpack.files.cache import BLOCK, Cache, cache, identity
from fastpack.files.policy import PathLike, Progress

MAX_READ = 64 << 20  # bytes asked for at once
READERS = 16  # requests at a time
PART = 16 << 20  # of an object that is fetched whole


class ObjectReader:
    """An object read by position; see `ReadFile`, whose methods it has. Raises as `remote.status` does.

    What is read comes in whole blocks and stays in the cache; blocks beside each other come with one request. All of
    them are of the version that was there at the start: JobError when it has changed since.
    """

    def __init__(self, path: PathLike) -> None:
        self.path = os.fspath(path)
        self.status = remote.status(self.path)
        self._name = identity(self.path, self.status)
        self._cache = cache()
        self._copy = self._open_copy()
        self._coming: dict[int, Future[None]] = {}
        self._lock = threading.Lock()
        self._pid = os.getpid()

    def _open_copy(self) -> int:
        """A descriptor of the copy that `fetch` made, else -1."""
        try:
            return os.open(self._cache.path(self._name), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return -1

    def read_into(self, out: npt.NDArray[np.uint8], offset: int) -> int:
        """Fill `out` with the bytes from `offset` on; returns how many there were, fewer only at the object's end."""
        n_bytes = max(0, min(len(out), self.status.st_size - offset))
        if n_bytes == 0:
            return 0
        if self._copy >= 0:
            return _read_all(self._copy, out[:n_bytes], offset)
        first, last = offset // BLOCK, -(-(offset + n_bytes) // BLOCK)
        missing: list[int] = []
        for block in range(first, last):
            self._wait_for(block)
            into, at = self._within(block, out[:n_bytes], offset)
            if not self._cache.read_block(f"{self._name}-{block:x}", into, at, self._size(block)):
                missing.append(block)
        for run in _runs(missing):
            self._fetch(run, out[:n_bytes], offset)
        return n_bytes

    def _size(self, block: int) -> int:
        return min(BLOCK, self.status.st_size - block * BLOCK)

    def _within(self, block: int, out: npt.NDArray[np.uint8], offset: int) -> tuple[npt.NDArray[np.uint8], int]:
        """The part of `out` that a block fills, and where in the block it begins."""
        start = max(offset, block * BLOCK)
        end = min(offset + len(out), block * BLOCK + self._size(block))
        return out[start - offset : end - offset], start - block * BLOCK

    def _fetch(self, blocks: range, out: npt.NDArray[np.uint8] | None = None, offset: int = 0) -> None:
        start = blocks[0] * BLOCK
        end = min((blocks[-1] + 1) * BLOCK, self.status.st_size)
        data = memoryview(remote.read_range(self.path, start, end, self.status.tag))
        for block in blocks:
            content = data[block * BLOCK - start : block * BLOCK - start + self._size(block)]
            self._cache.write_block(f"{self._name}-{block:x}", content)
            if out is not None:
                into, at = self._within(block, out, offset)
                into[:] = np.frombuffer(content, np.uint8)[at : at + len(into)]

    def _wait_for(self, block: int) -> None:
        with self._lock:
            coming = self._coming.get(block) if self._pid == os.getpid() else None
        if coming is not None:
            coming.exception()  # what failed is asked for again, by whoever needs it

    def will_need(self, offset: int, n_bytes: int) -> None:
        """Have these bytes fetched in the background."""
        if self._copy >= 0 or n_bytes <= 0:
            return
        end = min(offset + n_bytes, self.status.st_size)
        with self._lock:
            if self._pid != os.getpid():
                self._coming, self._pid = {}, os.getpid()
            blocks = [
                block
                for block in range(offset // BLOCK, -(-end // BLOCK))
                if block not in self._coming and not self._cache.path(f"{self._name}-{block:x}").exists()
            ]
            for run in _runs(blocks):
                future = _pool().submit(self._fetch, run)
                for block in run:
                    self._coming[block] = future
                future.add_done_callback(self._forget(run))

    def _forget(self, run: range) -> Callable[[Future[None]], None]:
        def forget(_: Future[None]) -> None:
            with self._lock:
                for block in run:
                    self._coming.pop(block, None)

        return forget

    def __del__(self, _close: Callable[[int], None] = os.close) -> None:
        if getattr(self, "_copy", -1) >= 0:
            _close(self._copy)


def _read_all(fd: int, out: npt.NDArray[np.uint8], offset: int) -> int:
    done, view = 0, out.data
    while done < len(view) and (n_bytes := os.preadv(fd, [view[done:]], offset + done)):
        done += n_bytes
    return done


def _runs(blocks: list[int]) -> Iterator[range]:
    """Blocks beside each other, as many as one request may ask for."""
    start = 0
    for k in range(1, len(blocks) + 1):
        if k == len(blocks) or blocks[k] != blocks[k - 1] + 1 or k - start >= MAX_READ // BLOCK:
            yield range(blocks[start], blocks[k - 1] + 1)
            start = k


_pools: dict[int, ThreadPoolExecutor] = {}


def _pool() -> ThreadPoolExecutor:
    """This process's threads that wait for stores."""
    pool = _pools.get(os.getpid())
    if pool is None:
        pool = _pools[os.getpid()] = ThreadPoolExecutor(READERS, "fastpack-remote")
    return pool


def fetch(path: PathLike, *, progress: Progress | None = None) -> Path:
    """A whole object as a local file in the cache, fetched unless it is there; read-only, and removed when others need
    the room. One process fetches, others wait for it. Raises JobError for an object beyond the cache's limit.
    """
    url = os.fspath(path)
    return _fetched(url, remote.status(url), progress)


def _fetched(url: str, status: remote.Status, progress: Progress | None = None) -> Path:
    store = cache()
    name = identity(url, status)
    target = store.path(name)
    if status.st_size > store.limit:
        raise JobError(
            f"{url} has {status.st_size:,} bytes, the cache takes {store.limit:,}: set FASTPACK_CACHE_BYTES to more"
        )
    with store.exclusively(f"{name[:2]}.fetch"):
        if not _is_whole(target, status.st_size):
            _download(url, status, target, store, progress)
    os.utime(target)
    return target


def fetch_all(path: PathLike, *, progress: Progress | None = None) -> tuple[list[Path], int]:
    """`fetch` of an object, or of all objects of a folder: the local files, and their bytes in all.

    Raises FileNotFoundError where nothing is; JobError, before anything is fetched, where all of it does not fit.
    """
    from fastpack.files.paths import RemotePath

    where = RemotePath(path)
    found = list(where.rglob("*")) or [where]
    statuses = [one.stat() for one in found]
    sizes = [status.st_size for status in statuses]
    if sum(sizes) > cache().limit:
        raise JobError(
            f"{where} has {sum(sizes):,} bytes in {len(found):,} objects, the cache takes {cache().limit:,}: "
            "set FASTPACK_CACHE_BYTES to more"
        )
    files, done = [], 0
    for one, status in zip(found, statuses, strict=True):
        files.append(_fetched(os.fspath(one), status))
        done += status.st_size
        if progress:
            progress(done, sum(sizes))
    return files, done


def _is_whole(path: Path, n_bytes: int) -> bool:
    try:
        return path.stat().st_size == n_bytes
    except FileNotFoundError:
        return False


def _download(url: str, status: remote.Status, target: Path, store: Cache, progress: Progress | None) -> None:
    from fastpack.files.atomic import AtomicFile

    starts = range(0, status.st_size, PART)

    def part(start: int) -> bytes:
        return remote.read_range(url, start, min(start + PART, status.st_size), status.tag)

    with AtomicFile(target) as file:
        file.reserve(status.st_size)
        ahead = [_pool().submit(part, start) for start in starts[:READERS]]
        for k in range(len(starts)):
            file.write(ahead.pop(0).result())
            if k + READERS < len(starts):
                ahead.append(_pool().submit(part, starts[k + READERS]))
            if progress:
                progress(file.tell(), status.st_size)
    store.note_written(status.st_size)
