"""Objects in stores, read as files are: by position through the block cache, or fetched whole and mapped."""

from __future__ import annotations

import contextlib
import copy
import io
import logging
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from fastpack.errors import JobError
from fastpack.io import stores as remote
from fastpack.io.atomic import AtomicFile
from fastpack.io.block_cache import BLOCK, cache, identity
from fastpack.io.checksum_blocks import READS, ObjectSums
from fastpack.io.if_exists import PathLike, Progress
from fastpack.io.paths import RemotePath
from fastpack.io.threads import READERS, in_parallel, pool, stopping_when_interrupted

MAX_READ = 16 << 20  # bytes asked for at once
AHEAD = 4  # requests of MAX_READ bytes that are on their way while what is before them is used, from front to back
SMALL_BLOCK = 256 << 10  # of objects that the cache does not keep: read here and there, a block serves one sample
HEAD = 64 << 10  # bytes that come along when a store is asked how long an object is
_log = logging.getLogger("fastpack")
_T = TypeVar("_T")
_S = TypeVar("_S")


class ObjectReader:
    """An object read by position; see `Reader`, whose methods it has. Raises as `remote.status` does.

    What is read comes in whole blocks and stays in the cache; blocks beside each other come with one request. Blocks of
    an object of more than half of the cache's limit are small. Who reads from front to back has the next ones on their
    way, up to the byte `needed`. All are of one version, `status`, or the one that is there at the start: JobError when
    it has changed since. What comes from the store is compared with the checksums next to the object (checked=False:
    is not): FormatError where it differs.
    """

    def __init__(self, path: PathLike, status: remote.Status | None = None, *, checked: bool = True) -> None:
        self.path = os.fspath(path)
        self.status = remote.status(self.path) if status is None else status
        self._name = identity(self.path, self.status)
        self._cache = cache()
        self._copy = self._open_copy()
        self._coming: dict[int, Future[None]] = {}
        self._lock = threading.Lock()
        self.sums = ObjectSums(self.path, self.status) if checked else None
        self._widely = threading.Lock()  # while blocks of checksums are fetched that are longer than those of the cache
        self.needed = self.status.st_size
        self._block = BLOCK if self.status.st_size <= self._cache.limit // 2 else SMALL_BLOCK
        # Where the last read ended, in which block, and up to where the bytes behind it were asked for.
        self._read_to, self._last_block, self._asked = -1, -2, 0
        _readers.add(self)
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
        sums = self.sums.get() if self.sums is not None else None
        if sums is None or self._block % sums.block_bytes == 0:
            self._fetch_wide(blocks, out, offset)
            return
        with self._widely:  # another thread may have brought the same ones meanwhile
            missing = [block for block in blocks if not self._take(block, out, offset)]
            for run in _runs(missing, len(blocks)):
                self._fetch_wide(run, out, offset)

    def _take(self, block: int, out: npt.NDArray[np.uint8] | None, offset: int) -> bool:
        """Whether a block is in the cache; its part of `out` is then filled."""
        if out is None:
            return self._cache.has(self._name_of(block))
        into, at = self._within(block, out, offset)
        return self._cache.read_block(self._name_of(block), into, at, self._size(block))

    def _fetch_wide(self, wanted: range, out: npt.NDArray[np.uint8] | None, offset: int) -> None:
        """Fetch blocks, and those that are needed to check them, into the cache and `out`."""
        end = min((wanted[-1] + 1) * self._block, self.status.st_size)
        data, start = read_checked(self.path, wanted[0] * self._block, end, self.status, self.sums)
        for block in range(-(-start // self._block), -(-(start + len(data)) // self._block)):
            content = data[block * self._block - start :][: self._size(block)]
            if len(content) == self._size(block):
                self._cache.write_block(self._name_of(block), content)
            if out is not None and block in wanted:
                into, at = self._within(block, out, offset)
                into[:] = np.frombuffer(content, np.uint8)[at : at + len(into)]

    def _wait_for(self, block: int) -> None:
        with self._lock:
            coming = self._coming.get(block)
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
            blocks = [
                block for block in numbers if block not in self._coming and not self._cache.has(self._name_of(block))
            ]
            asked = [(run, pool().submit(self._fetch, run)) for run in _runs(blocks, MAX_READ // self._block)]
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

    def start_over(self) -> None:
        """Forget what the threads of the process were doing that this one was forked from."""
        self._lock, self._widely, self._coming = threading.Lock(), threading.Lock(), {}

    def __del__(self, _close: Callable[[int], None] = os.close) -> None:
        if getattr(self, "_copy", -1) >= 0:
            _close(self._copy)


_readers: weakref.WeakSet[ObjectReader] = weakref.WeakSet()


def _start_over() -> None:
    for reader in list(_readers):
        reader.start_over()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_over)


def read_checked(
    url: str, start: int, end: int, status: remote.Status, sums: ObjectSums | None
) -> tuple[memoryview, int]:
    """Bytes [start, end) of an object, and more where that is needed to compare them with its checksums; and where
    they begin. Blocks that differ are read again. Raises FormatError; else as `remote.read_range`.
    """
    if sums is None:
        return memoryview(remote.read_range(url, start, end, status.tag)), start
    start, end = sums.widened(start, end)
    pieces = [(at, min(at + MAX_READ, end)) for at in range(start, end, MAX_READ)]
    wrong: int | None = None
    for attempt in range(1, READS + 1):
        read = in_parallel(lambda piece: remote.read_range(url, *piece, status.tag), pieces)
        data = memoryview(read[0] if len(read) == 1 else b"".join(read))
        wrong = sums.first_wrong(data, start)
        if wrong is None:
            return data, start
        if attempt < READS:
            _log.warning("%s: the block at byte %d differs from its checksum; reading it again", url, wrong)
    raise sums.damage(wrong or 0)


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
        if end <= len(self._head) and not self._has_sums():
            return np.frombuffer(self._head, np.uint8)[start:end]
        out = np.empty(max(0, end - start), np.uint8)
        self._reader.read_into(out, self._start + start)
        return out

    def peek(self, start: int, end: int) -> npt.NDArray[np.uint8]:
        """`self[start:end]`, just these bytes being asked for unless there are checksums; they are not kept."""
        end = min(end, len(self))
        if end <= len(self._head) or self._has_sums():
            return self[start:end]
        start, end = self._start + start, self._start + end
        return np.frombuffer(remote.read_range(self.path, start, end, self.status.tag), np.uint8)

    def _has_sums(self) -> bool:
        return self._reader.sums is not None and self._reader.sums.get() is not None

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
    with store.fetching(name):
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
    sums = ObjectSums(url, status)
    found = sums.get()
    step = MAX_READ if found is None else -(-MAX_READ // found.block_bytes) * found.block_bytes
    starts, n_ahead = range(0, status.st_size, step), max(1, READERS * MAX_READ // step)

    def part(start: int) -> memoryview:
        return read_checked(url, start, min(start + step, status.st_size), status, sums)[0]

    with stopping_when_interrupted(), AtomicFile(target) as file:
        file.reserve(status.st_size)
        ahead = [pool().submit(part, start) for start in starts[:n_ahead]]
        for k in range(len(starts)):
            file.write(ahead.pop(0).result())
            if k + n_ahead < len(starts):
                ahead.append(pool().submit(part, starts[k + n_ahead]))
            if progress:
                progress(file.tell(), status.st_size)
