"""Reading of objects in stores: by position through the block cache, or fetched completely and mapped."""

from __future__ import annotations

import contextlib
import copy
import os
import threading
import weakref
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fastpack.errors import JobError
from fastpack.io import stores as remote
from fastpack.io.atomic import AtomicFile
from fastpack.io.block_cache import BLOCK, PAGE, cache, identity
from fastpack.io.checksum_blocks import READS, ObjectSums
from fastpack.io.file_reader import FileReader
from fastpack.io.held_pages import HeldPages
from fastpack.io.if_exists import PathLike, Progress
from fastpack.io.paths import RemotePath
from fastpack.io.store_clients import logger
from fastpack.io.threads import READERS, in_parallel, pool, stopping_when_interrupted

if TYPE_CHECKING:
    from concurrent.futures import Future

MAX_READ = 16 << 20  # bytes per request
AHEAD = 4  # prefetch requests of MAX_READ bytes of a sequential reader
SMALL_BLOCK = 256 << 10  # of objects that the cache cannot hold: with random reads, a block serves one sample
HEAD = 64 << 10  # bytes that are read with the request for an object's size


class ObjectReader:
    """A `Reader` of an object. Raises as `remote.status` does.

    Data are read in whole blocks, which stay in the cache; adjacent blocks share a request. Blocks of an object larger
    than half of the cache's limit are small, as are those of objects that do not fit into it together. For a sequential
    reader the next blocks are prefetched, up to the byte `needed`. All reads are of one version, `status` or the
    current one at the start: JobError if the object changes. Data from the store are compared with the checksums of the
    object (not with checked=False): FormatError on a difference.
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
        self._wide_lock = threading.Lock()  # held to fetch blocks of checksums that are longer than those of the cache
        self.needed = self.status.st_size
        self._block = BLOCK if self.status.st_size <= self._cache.limit // 2 else SMALL_BLOCK
        # The end of the last read, its block, and the end of the prefetched bytes.
        self._read_to, self._last_block, self._prefetched = -1, -2, 0
        _readers.add(self)
        self._ahead_bytes = min(MAX_READ, self._cache.limit // (4 * AHEAD) // BLOCK * BLOCK)

    def read_among(self, n_bytes: int) -> None:
        """Read small blocks if `n_bytes`, of all objects that are read at random, exceed the limit of the cache.

        To be called before the first read.
        """
        if n_bytes > self._cache.limit:
            self._block = SMALL_BLOCK

    def _open_copy(self) -> FileReader | None:
        """Open the copy that `fetch` made, if any."""
        try:
            return FileReader(self._cache.path(self._name))
        except FileNotFoundError:
            return None

    def read_into(self, out: npt.NDArray[np.uint8], offset: int) -> int:
        """Fill `out` with the bytes from `offset` on; return their number, less than requested only at the end."""
        n_bytes = max(0, min(len(out), self.status.st_size - offset))
        if n_bytes == 0:
            return 0
        if self._copy is not None:
            return self._copy.read_into(out[:n_bytes], offset)
        self._prefetch_next(offset, offset + n_bytes)
        first, last = offset // self._block, -(-(offset + n_bytes) // self._block)
        if last - first == 1 and not self._coming:  # the common case, with little overhead
            at = offset - first * self._block
            if self._cache.read_block(self._name_of(first), out[:n_bytes], at, self._size(first)):
                return n_bytes
        missing: list[int] = []
        for block in range(first, last):
            if self._coming:
                self._wait_for(block)
            if not self._take(block, out[:n_bytes], offset):
                missing.append(block)
        in_parallel(lambda run: self._fetch(run, out[:n_bytes], offset), list(_runs(missing, MAX_READ // self._block)))
        return n_bytes

    def note_pages(self, pages: HeldPages, position: int, start: int, end: int, at: int) -> None:
        """Enter the mapped block of byte `at` into a table, for the bytes [start, end) of the object.

        position: of byte 0 of the object in the table. To be called after `at` was read.
        """
        block = at // self._block
        held = self._cache.hold(self._name_of(block), self._size(block)) if self._copy is None else None
        if held is None:
            return
        first, size = block * self._block, self._size(block)
        if first + size < end:  # a last page of which only a part is there must not be found
            size -= size % pages.page_bytes
        most = self._cache.most_held(self._block)
        pages.note(held, position + first, max(0, start - first), min(size, end - first), most)

    def _prefetch_next(self, start: int, end: int) -> None:
        """Prefetch the following bytes if a read continues the previous one."""
        first, last = start // self._block, (end - 1) // self._block
        is_sequential = start == self._read_to or first - 1 <= self._last_block < last
        self._read_to, self._last_block = end, last
        if not is_sequential or not self._ahead_bytes:
            self._prefetched = 0
            return
        self._prefetched = max(self._prefetched, -(-end // BLOCK) * BLOCK)
        while self._prefetched < min(end + AHEAD * self._ahead_bytes, self.needed):
            self.will_need(self._prefetched, min(self._ahead_bytes, self.needed - self._prefetched))
            self._prefetched += self._ahead_bytes

    def _name_of(self, block: int) -> str:
        return f"{self._name}-{self._block:x}-{block:x}"

    def _size(self, block: int) -> int:
        return min(self._block, self.status.st_size - block * self._block)

    def _overlap(self, block: int, out: npt.NDArray[np.uint8], offset: int) -> tuple[npt.NDArray[np.uint8], int]:
        """Return the slice of `out` that a block fills, and its offset in the block."""
        start = max(offset, block * self._block)
        end = min(offset + len(out), block * self._block + self._size(block))
        return out[start - offset : end - offset], start - block * self._block

    def _fetch(self, blocks: range, out: npt.NDArray[np.uint8] | None = None, offset: int = 0) -> None:
        sums = self.sums.get() if self.sums is not None else None
        if sums is None or self._block % sums.block_bytes == 0:
            self._fetch_wide(blocks, out, offset)
            return
        with self._wide_lock:  # another thread may have fetched the same blocks
            missing = [block for block in blocks if not self._take(block, out, offset)]
            for run in _runs(missing, len(blocks)):
                self._fetch_wide(run, out, offset)

    def _take(self, block: int, out: npt.NDArray[np.uint8] | None, offset: int) -> bool:
        """Return whether a block is in the cache; if so, fill its slice of `out`."""
        if out is None:
            return self._cache.has(self._name_of(block))
        into, at = self._overlap(block, out, offset)
        return self._cache.read_block(self._name_of(block), into, at, self._size(block))

    def _fetch_wide(self, wanted: range, out: npt.NDArray[np.uint8] | None, offset: int) -> None:
        """Fetch blocks, and the blocks needed to check them, into the cache and `out`."""
        end = min((wanted[-1] + 1) * self._block, self.status.st_size)
        data, start = read_checked(self.path, wanted[0] * self._block, end, self.status, self.sums)
        for block in range(-(-start // self._block), -(-(start + len(data)) // self._block)):
            content = data[block * self._block - start :][: self._size(block)]
            if len(content) == self._size(block):
                self._cache.write_block(self._name_of(block), content)
            if out is not None and block in wanted:
                into, at = self._overlap(block, out, offset)
                into[:] = np.frombuffer(content, np.uint8)[at : at + len(into)]

    def _wait_for(self, block: int) -> None:
        with self._lock:
            coming = self._coming.get(block)
        if coming is not None:
            coming.exception()  # a failed request is repeated by the reader that needs it

    def will_need(self, offset: int, n_bytes: int) -> None:
        """Fetch these bytes in the background."""
        if self._copy is not None or n_bytes <= 0:
            return
        end = min(offset + n_bytes, self.status.st_size)
        numbers = range(offset // self._block, -(-end // self._block))
        if offset >= end or all(self._cache.is_held(self._name_of(block)) for block in numbers):
            return
        with self._lock:
            blocks = [
                block for block in numbers if block not in self._coming and not self._cache.has(self._name_of(block))
            ]
            requests = [(run, pool().submit(self._fetch, run)) for run in _runs(blocks, MAX_READ // self._block)]
            for run, future in requests:
                self._coming |= dict.fromkeys(run, future)
        for run, future in requests:  # not under the lock: the callback of a finished future runs immediately
            future.add_done_callback(partial(self._forget, run))

    def _forget(self, run: range, _: Future[None]) -> None:
        with self._lock:
            for block in run:
                self._coming.pop(block, None)

    def start_over(self) -> None:
        """Forget the work of the parent process's threads, after a fork."""
        self._lock, self._wide_lock, self._coming = threading.Lock(), threading.Lock(), {}


def page_table() -> HeldPages:
    """Return a new table of pages for `ObjectReader.note_pages`."""
    return HeldPages(min(PAGE, SMALL_BLOCK))


_readers: weakref.WeakSet[ObjectReader] = weakref.WeakSet()


def _start_over() -> None:
    for reader in list(_readers):
        reader.start_over()


os.register_at_fork(after_in_child=_start_over)


def read_checked(
    url: str, start: int, end: int, status: remote.Status, sums: ObjectSums | None
) -> tuple[memoryview, int]:
    """Read bytes [start, end) of an object, extended to whole blocks of its checksums; return them and their start.

    Blocks that differ from their checksums are read again. Raises FormatError; else as `remote.read_range`.
    """
    if sums is None:
        return memoryview(remote.read_range(url, start, end, status.tag)), start
    start, end = sums.widened(start, end)
    ranges = [(at, min(at + MAX_READ, end)) for at in range(start, end, MAX_READ)]
    wrong: int | None = None
    for attempt in range(1, READS + 1):
        read = in_parallel(lambda limits: remote.read_range(url, *limits, status.tag), ranges)
        data = memoryview(read[0] if len(read) == 1 else b"".join(read))
        wrong = sums.first_wrong(data, start)
        if wrong is None:
            return data, start
        if attempt < READS:
            logger().warning("%s: the block at byte %d differs from its checksum; reading it again", url, wrong)
    raise sums.damage(wrong or 0)


def _runs(blocks: list[int], most: int) -> Iterator[range]:
    """Yield runs of adjacent blocks, at most `most` per run."""
    start = 0
    for k in range(1, len(blocks) + 1):
        if k == len(blocks) or blocks[k] != blocks[k - 1] + 1 or k - start >= most:
            yield range(blocks[start], blocks[k - 1] + 1)
            start = k


class ObjectBytes:
    """The bytes of an object: `len()`, and slices that are read on access.

    status: of the version that all bytes are from. Raises as `ObjectReader`.
    """

    def __init__(self, path: PathLike, status: remote.Status | None = None) -> None:
        self.path = os.fspath(path)
        self._head, self._start = b"", 0
        if status is None:
            self._head, status = remote.read_head(self.path, HEAD)
        self.status = status
        self._reader = ObjectReader(self.path, status)

    def behind(self, start: int) -> ObjectBytes:
        """Return the bytes from `start` on, without reading them."""
        rest = copy.copy(self)
        rest._start, rest._head = self._start + start, self._head[start:]
        return rest

    def __len__(self) -> int:
        return max(0, self.status.st_size - self._start)

    def __getitem__(self, selection: slice) -> npt.NDArray[np.uint8]:
        start, end, step = selection.indices(len(self))
        if step != 1:
            raise ValueError(f"bytes {selection} of {self.path}: only a step of 1 is supported")
        if end <= len(self._head) and not self._has_sums():
            return np.frombuffer(self._head, np.uint8)[start:end]
        out = np.empty(max(0, end - start), np.uint8)
        self._reader.read_into(out, self._start + start)
        return out

    def peek(self, start: int, end: int) -> npt.NDArray[np.uint8]:
        """Return `self[start:end]`; without checksums only these bytes are requested, and not cached."""
        end = min(end, len(self))
        if end <= len(self._head) or self._has_sums():
            return self[start:end]
        start, end = self._start + start, self._start + end
        return np.frombuffer(remote.read_range(self.path, start, end, self.status.tag), np.uint8)

    def _has_sums(self) -> bool:
        return self._reader.sums is not None and self._reader.sums.get() is not None

    def stop_at(self, end: int) -> None:
        """Do not prefetch bytes from `end` on."""
        self._reader.needed = self._start + end

    def whole(self) -> Path:
        """Return the path of a local copy in the cache; see `fetch`."""
        return _fetch_version(self.path, self.status)


def fetch(path: PathLike) -> Path:
    """Fetch an object into the cache, if necessary, and return the path of the read-only copy, which may be evicted.

    One process fetches; others wait for it. Raises JobError for an object larger than the cache's limit.
    """
    url = os.fspath(path)
    return _fetch_version(url, remote.status(url))


def _fetch_version(url: str, status: remote.Status) -> Path:
    store = cache()
    name = identity(url, status)
    target = store.path(name)
    if status.st_size > store.limit:
        raise JobError(
            f"{url} has {status.st_size:,} bytes, the limit of the cache is {store.limit:,}: "
            "increase FASTPACK_CACHE_BYTES"
        )
    with store.fetching(name):
        is_new = not _is_whole(target, status.st_size)
        if is_new:
            _download(url, status, target)
        with contextlib.suppress(FileNotFoundError):  # evicted by another process
            os.utime(target)
    if is_new:
        store.note_written(status.st_size)
    return target


def fetch_all(path: PathLike, *, progress: Progress | None = None) -> tuple[list[Path], int]:
    """Fetch an object, or all objects of a folder; return the local files and their total size in bytes.

    Raises FileNotFoundError if there are none; JobError, before any request, if they do not fit into the cache.
    """
    where = RemotePath(path)
    found = list(where.rglob("*")) or [where]
    statuses = [one.listed or one.stat() for one in found]
    sizes = [status.st_size for status in statuses]
    if sum(sizes) > cache().limit:
        raise JobError(
            f"{where} has {sum(sizes):,} bytes in {len(found):,} objects, the limit of the cache is {cache().limit:,}: "
            "increase FASTPACK_CACHE_BYTES"
        )
    files, done = [], 0
    for one, status in zip(found, statuses, strict=True):
        files.append(_fetch_version(os.fspath(one), status))
        done += status.st_size
        if progress:
            progress(done, sum(sizes))
    return files, done


def _is_whole(path: Path, n_bytes: int) -> bool:
    try:
        return path.stat().st_size == n_bytes
    except FileNotFoundError:
        return False


def _download(url: str, status: remote.Status, target: Path) -> None:
    sums = ObjectSums(url, status)
    found = sums.get()
    step = MAX_READ if found is None else -(-MAX_READ // found.block_bytes) * found.block_bytes
    starts, n_ahead = range(0, status.st_size, step), max(1, READERS * MAX_READ // step)

    def read_chunk(start: int) -> memoryview:
        return read_checked(url, start, min(start + step, status.st_size), status, sums)[0]

    with stopping_when_interrupted(), AtomicFile(target) as file:
        file.reserve(status.st_size)
        ahead = [pool().submit(read_chunk, start) for start in starts[:n_ahead]]
        for k in range(len(starts)):
            file.write(ahead.pop(0).result())
            if k + n_ahead < len(starts):
                ahead.append(pool().submit(read_chunk, starts[k + n_ahead]))
