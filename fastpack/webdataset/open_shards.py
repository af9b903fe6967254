"""Random access to tar shards through their `.tar.idx`: one read per sample, a bounded number of open files."""

from __future__ import annotations

import os
import re
import threading
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Literal, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from fastpack.documents.offset_index import read_offset_index
from fastpack.errors import FormatError, StaleIndex
from fastpack.io import AnyPath, RemotePath
from fastpack.webdataset.shard_index import RESERVED_FIELDS, reserved_field, shard_index_path
from fastpack.webdataset.tar_range import HEADER_WINDOW, WINDOW, MappedTar, ReadTar, SampleRange, Tar, Walker

# Common limits are 256 to 1024 descriptors per process, and 65,530 mappings, of which a shard needs two.
MAX_OPEN = {"mmap": 16_384, "pread": 64}
_TAR_BLOCK = 512
_PROBES = 4  # samples of a batch that are tested for being in memory; a prefetch hint costs as much as a read

_KEY_AND_FIELD = re.compile(r"((?:.*/|)[^.]+)[.]([^/]*)$")

Io: TypeAlias = Literal["mmap", "pread"]
Wanted: TypeAlias = Callable[[str], bool] | None


@dataclass(slots=True)
class RawSample:
    """The undecoded fields of a sample in archive order; of a repeated field, the last one.

    offsets: in bytes from the start of the shard, for messages. file_names: of all members read, including repeated
    ones.
    """

    key: str
    shard: str
    fields: dict[str, bytes] = field(default_factory=dict)
    offsets: dict[str, int] = field(default_factory=dict)
    file_names: list[str] = field(default_factory=list)


class Samples(Protocol):
    """Undecoded samples by position; picklable, thread-safe."""

    def __len__(self) -> int: ...

    def read(self, position: int, wanted: Wanted = None) -> RawSample:
        """Read a sample, or only the fields for which `wanted(name)` is true. Raises FormatError."""
        ...

    def key(self, position: int) -> str:
        """Return the key of a sample. Raises FormatError."""
        ...

    def path(self, position: int) -> AnyPath:
        """Return the file of a sample."""
        ...

    def will_need(self, positions: Sequence[int]) -> None:
        """Hint the system to prefetch samples."""
        ...

    def check_unchanged(self) -> None:
        """Raise FormatError if an open file has been replaced or modified."""
        ...

    def close(self) -> None:
        """Close all files; the next read opens them again."""
        ...


@dataclass(frozen=True, slots=True)
class _OpenShard:
    tar: Tar
    offsets: npt.NDArray[np.int64]


class TarShards:
    """Samples 0, 1, ... of several shards, concatenated; see `Samples`.

    folder: the names are relative to it. counts: samples of each shard. Raises FormatError for a missing shard or
    index; a damaged one is detected when one of its samples is read.
    """

    def __init__(self, folder: AnyPath, names: Sequence[str], counts: Sequence[int], io: Io = "mmap") -> None:
        self.folder, self.names, self.counts = folder, list(names), list(counts)
        self._io: Io = io
        self.starts = [0, *accumulate(counts)]
        is_there = _known_files(folder)
        for name in self.names:
            for path in (os.path.join(folder, name), shard_index_path(os.path.join(folder, name))):
                if not is_there(path):
                    raise FormatError(path, 0, "no file", "a shard and its .tar.idx (fastpack prepare writes it)")
        self._attach()

    def _attach(self) -> None:
        self._open: dict[int, _OpenShard] = {}
        self._lock = threading.Lock()
        self._walkers: list[Walker] = []  # not in use by any thread

    def __len__(self) -> int:
        return self.starts[-1]

    def locate(self, position: int) -> tuple[int, int]:
        """Return (shard, sample in the shard) of a position in [0, len)."""
        number = bisect_right(self.starts, position) - 1
        return number, position - self.starts[number]

    def path(self, position: int) -> AnyPath:
        return self.folder / self.names[self.locate(position)[0]]

    def read(self, position: int, wanted: Wanted = None) -> RawSample:
        number, i = self.locate(position)
        found = self._range(number, i, WINDOW)
        sample = RawSample(found.key, self.names[number])
        for member in found.members:
            name = member.field
            if wanted is None or wanted(name):
                if name in RESERVED_FIELDS:
                    raise reserved_field(self.path(position), member.offset, found.key, name)
                sample.fields[name] = found.content(member)
                sample.offsets[name] = member.offset
                sample.file_names.append(f"{found.key}.{name}")
        return sample

    def key(self, position: int) -> str:
        """Return the key of a sample; only headers are read."""
        return self._range(*self.locate(position), HEADER_WINDOW).key

    def _range(self, number: int, i: int, window: int) -> SampleRange:
        tar, start, end = self._span(number, i)
        try:
            walker = self._walkers.pop()
        except IndexError:
            walker = Walker()
        try:
            return SampleRange(tar, start, end, walker, window)
        finally:
            self._walkers.append(walker)

    def _span(self, number: int, i: int) -> tuple[Tar, int, int]:
        shard = self._open.get(number) or self._load(number)
        start, end = shard.offsets[i : i + 2].tolist()
        return shard.tar, start, end

    def will_need(self, positions: Sequence[int]) -> None:
        spans = [self._span(*self.locate(position)) for position in positions]
        will_need([(tar, start, end - start) for tar, start, end in spans])

    def check_unchanged(self) -> None:
        for shard in list(self._open.values()):
            shard.tar.check_unchanged()

    def close(self) -> None:
        with self._lock:
            self._open = {}

    def _load(self, number: int) -> _OpenShard:
        with self._lock:
            shard = self._open.get(number)
            if shard is None:
                shard = _open_shard(self.folder / self.names[number], self.counts[number], self._io)
                if len(self._open) >= MAX_OPEN[self._io]:  # a shard in use by another thread stays open until then
                    self._open = dict(list(self._open.items())[len(self._open) // 2 :])
                self._open[number] = shard
            return shard

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in vars(self).items() if name not in ("_open", "_lock", "_walkers")}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state)
        self._attach()


def _known_files(folder: AnyPath) -> Callable[[str], bool]:
    """Return a function that tells whether a file exists; an object store is listed once."""
    if not isinstance(folder, RemotePath):
        return os.path.isfile
    return {os.fspath(path) for path in folder.rglob("*")}.__contains__


def will_need(spans: Sequence[tuple[Tar, int, int]]) -> None:
    """Hint the system to prefetch (file, start, bytes), unless they seem to be in memory."""
    if not all(tar.is_in_memory(start, n_bytes) for tar, start, n_bytes in spans[:: len(spans) // _PROBES or 1]):
        for tar, start, n_bytes in spans:
            tar.will_need(start, n_bytes)


def split_name(name: str) -> tuple[str, str] | None:
    """Return (sample key, field) of a member's name; None if it does not belong to a sample."""
    match = _KEY_AND_FIELD.match(name)
    return (match[1], match[2]) if match else None


def _open_shard(path: AnyPath, count: int, io: Io) -> _OpenShard:
    index = shard_index_path(path)
    offsets = read_offset_index(index)
    if len(offsets) != count + 1:
        found = f"{len(offsets) - 1} samples"
        raise FormatError(index, 8 * len(offsets), found, f"{count} of them, as .info.json says")
    tar: Tar = MappedTar(path) if io == "mmap" else ReadTar(path)
    if tar.n_bytes < offsets[-1]:
        raise FormatError(path, tar.n_bytes, "the end of the file", f"{offsets[-1]} bytes, as its .tar.idx says")
    if tar.read(0, 2) == b"\x1f\x8b":
        raise FormatError(path, 0, "a gzip file", "a tar: a .tgz has no random access")
    if any(tar.read(int(offsets[-1]), _TAR_BLOCK)):  # zeros follow the samples unless something was appended
        found, remedy = f"a member follows byte {offsets[-1]}, its end of the samples", "`fastpack prepare` rebuilds it"
        raise StaleIndex(index, path, found, remedy)
    return _OpenShard(tar, offsets)
