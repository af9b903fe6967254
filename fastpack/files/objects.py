"""Objects in stores, read as files are: by position through the block cache, or fetched whole and mapped."""

from __future__ import annotations

import contextlib
import copy
import io
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from fastpack.errors import JobError
from fastpack.files import remote
from fastpack.files.cache import BLOCK, cache, identity
from fastpack.files.policy import PathLike, Progress

MAX_READ = 16 << 20  # bytes asked for at once
READERS = 16  # requests at a time
AHEAD = 4  # requests of MAX_READ bytes that are on their way while what is before them is used, from front to back
SMALL_BLOCK = 256 << 10  # of objects that the cache does not keep: read here and there, a block serves one sample
HEAD = 64 << 10  # bytes that come along when a store is asked how long an object is
_T = TypeVar("_T")
_S = TypeVar("_S")


class ObjectReader:
    """An object read by position; see `Reader`, whose methods it has. Raises as `remote.status` does.

    What is read comes in whole blocks and stays in the cache; blocks beside each other come with one request. Blocks of
    an object of more than half of the cache's limit are small. Who reads from front to back has the next ones on their
    way, up to the byte `needed`. All are of one version, `status`, or the one that is there at the start: JobError when
    it has changed since.
    """

    def __init__(self, path: PathLike, status: remote.Status | None = None) -> None:
        self.path = os.fspath(path)
        self.status = remote.status(self.path) if status is None else status
        self._name = identity(self.path, self.status)
        self._cache = cache()
        self._copy = self._open_copy()
        self._coming: dict[int, Future[None]] = {}
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self.needed = self.status.st_size
        self._block = BLOCK if self.status.st_size <= self._cache.limit // 2 else SMALL_BLOCK
        # Where the last read ended, in which block, and up to where the bytes behind it were asked for.
        self._read_to, self._last_block, self._asked = -1, -2, 0
        self._piece = min(MAX_READ, self._cache.limit // (4 * AHEAD) // BLOCK * BLOCK)

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
        self._look_ahead(offset, offset + n_bytes)
        first, last = offset // self._block, -(-(offset + n_bytes) // self._block)
        if last - first == 1 and not self._coming:  # most reads: the way to what is there is short
            at = offset - first * self._block
            if self._cache.read_block(self._name_of(first), out[:n_bytes], at, self._size(first)):
                return n_bytes
        missing: list[int] = []
        for block in range(first, last):
            if self._coming:
                self._wait_for(block)
            into, at = self._within(block, out[:n_bytes], offset)
            if not self._cache.read_block(self._name_of(block), into, at, self._size(block)):
                missing.append(block)
        in_parallel(lambda run: self._fetch(run, out[:n_bytes], offset), list(_runs(missing, MAX_READ // self._block)))
        return n_bytes

    def _look_ahead(self, start: int, end: int) -> None:
        """Have what lies behind a read fetched where it goes on from the one before it."""
        first, last = start // self._block, (end - 1) // self._block
        goes_on = start == self._read_to or first - 1 <= self._last_block < last
        self._read_to, self._last_block = end, last
        if not goes_on or not self._piece:
            self._asked = 0
            return
        self._asked = max(self._asked, -(-end // BLOCK) * BLOCK)
        while self._asked < min(end + AHEAD * self._piece, self.needed):
            self.will_need(self._asked, min(self._piece, self.needed - self._asked))
            self._asked += self._piece

    def _name_of(self, block: int) -> str:
        return f"{self._name}-{self._block:x}-{block:x}"

    def _size(self, block: int) -> int:
        return min(self._block, self.status.st_size - block * self._block)

    def _within(self, block: int, out: npt.NDArray[np.uint8], offset: int) -> tuple[npt.NDArray[np.uint8], int]:
        """The part of `out` that a block fills, and where in the block it begins."""
        start = max(offset, block * self._block)
        end = min(offset + len(out), block * self._block + self._size(block))
        return out[start - offset : end - offset], start - block * self._block

    def _fetch(self, blocks: range, out: npt.NDArray[np.uint8] | None = None, offset: int = 0) -> None:
        start = blocks[0] * self._block
        end = min((blocks[-1] + 1) * self._block, self.status.st_size)
        data = memoryview(remote.read_range(self.path, start, end, self.status.tag))
        for block in blocks:
            content = data[block * self._block - start : block * self._block - start + self._size(block)]
            self._cache.write_block(self._name_of(block), content)
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
        numbers = range(offset // self._block, -(-end // self._block))
        if offset >= end or all(self._cache.is_held(self._name_of(block)) for block in numbers):
            return
        with self._lock:
            if self._pid != os.getpid():
                self._coming, self._pid = {}, os.getpid()
            blocks = [
                block for block in numbers if block not in self._coming and not self._cache.has(self._name_of(block))
            ]
            asked = [(run, _pool().submit(self._fetch, run)) for run in _runs(blocks, MAX_READ // self._block)]
            for run, future in asked:
                self._coming |= dict.fromkeys(run, future)
        for run, future in asked:  # not under the lock: where all is there already, they are forgotten at once
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


def _runs(blocks: list[int], most: int) -> Iterator[range]:
    """Blocks beside each other, at most so many that one request asks for."""
    start = 0
    for k in range(1, len(blocks) + 1):
        if k == len(blocks) or blocks[k] != blocks[k - 1] + 1 or k - start >= most:
            yield range(blocks[start], blocks[k - 1] + 1)
            start = k


_pools: dict[int, ThreadPoolExecutor] = {}


def _pool() -> ThreadPoolExecutor:
    """This process's threads that wait for stores."""
    pool = _pools.get(os.getpid())
    if pool is None:
        pool = _pools[os.getpid()] = ThreadPoolExecutor(READERS, "fastpack-remote")
    return pool


def in_parallel(function: Callable[[_S], _T], items: Iterable[_S]) -> list[_T]:
    """What a function that asks a store returns for each of `items`, in order; several of them wait at a time."""
    items = list(items)
    if len(items) < 2:
        return [function(item) for item in items]
    with ThreadPoolExecutor(min(READERS, len(items)), "fastpack-remote") as pool:
        try:
            return list(pool.map(function, items))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


class ObjectStream(io.RawIOBase):
    """An object as an open file, to be read from front to back."""

    def __init__(self, reader: ObjectReader) -> None:
        self._reader, self._position = reader, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = 0) -> int:
        self._position = (0, self._position, self._reader.status.st_size)[whence] + offset
        return self._position

    def readinto(self, out: Any) -> int:
        n_bytes = self._reader.read_into(np.frombuffer(out, np.uint8), self._position)
        self._position += n_bytes
        return n_bytes


class ObjectBytes:
    """The bytes of an object, as `map_bytes` gives those of a file: `len()`, and slices, read when they are asked for.

    path; status: of the version that all of them are of. Raises as `ObjectReader`.
    """

    def __init__(self, path: PathLike, status: remote.Status | None = None) -> None:
        self.path = os.fspath(path)
        self._head, self._start = b"", 0
        if status is None:
            self._head, status = remote.read_head(self.path, HEAD)
        self.status = status
        self._reader = ObjectReader(self.path, status)

    def behind(self, start: int) -> ObjectBytes:
        """The bytes from `start` on; none of them is read for it."""
        rest = copy.copy(self)
        rest._start, rest._head = self._start + start, self._head[start:]
        return rest

    def __len__(self) -> int:
        return max(0, self.status.st_size - self._start)

    def __getitem__(self, part: slice) -> npt.NDArray[np.uint8]:
        start, end, step = part.indices(len(self))
        if step != 1:
            raise ValueError(f"bytes {part} of {self.path}: only those beside each other can be read")
        if end <= len(self._head):
            return np.frombuffer(self._head, np.uint8)[start:end]
        out = np.empty(max(0, end - start), np.uint8)
        self._reader.read_into(out, self._start + start)
        return out

    def peek(self, start: int, end: int) -> npt.NDArray[np.uint8]:
        """`self[start:end]`, just these bytes being asked for; they are not kept in the cache."""
        end = min(end, len(self))
        if end <= len(self._head):
            return self[start:end]
        start, end = self._start + start, self._start + end
        return np.frombuffer(remote.read_range(self.path, start, end, self.status.tag), np.uint8)

    def stop_at(self, end: int) -> None:
        """Fetch nothing ahead from `end` on."""
        self._reader.needed = self._start + end

    def whole(self) -> Path:
        """All of them as a local file in the cache; see `fetch`."""
        return _fetched(self.path, self.status)


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
        is_new = not _is_whole(target, status.st_size)
        if is_new:
            _download(url, status, target, progress)
        with contextlib.suppress(FileNotFoundError):  # removed by another process just now
            os.utime(target)
    if is_new:
        store.note_written(status.st_size)
    return target


def fetch_all(path: PathLike, *, progress: Progress | None = None) -> tuple[list[Path], int]:
    """`fetch` of an object, or of all objects of a folder: the local files, and their bytes in all.

    Raises FileNotFoundError where nothing is; JobError, before anything is fetched, where all of it does not fit.
    """
    from fastpack.files.paths import RemotePath

    where = RemotePath(path)
    found = list(where.rglob("*")) or [where]
    statuses = [one.listed or one.stat() for one in found]
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


def _download(url: str, status: remote.Status, target: Path, progress: Progress | None) -> None:
    from fastpack.files.atomic import AtomicFile

    starts = range(0, status.st_size, MAX_READ)

    def part(start: int) -> bytes:
        return remote.read_range(url, start, min(start + MAX_READ, status.st_size), status.tag)

    with AtomicFile(target) as file:
        file.reserve(status.st_size)
        ahead = [_pool().submit(part, start) for start in starts[:READERS]]
        for k in range(len(starts)):
            file.write(ahead.pop(0).result())
            if k + READERS < len(starts):
                ahead.append(_pool().submit(part, starts[k + READERS]))
            if progress:
                progress(file.tell(), status.st_size)
