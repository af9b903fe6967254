"""The tar shards of a WebDataset by their `.tar.idx`: any sample with one read, few files open, no map of a tar."""

from __future__ import annotations

import errno
import os
import re
import threading
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fastpack.errors import FormatError
from fastpack.files import ReadFile, map_bytes
from fastpack.formats.tar_stretch import HEADER_WINDOW, WINDOW, Member, Stretch

MAX_OPEN_SHARDS = 64  # common limits are 256 to 1024 descriptors a process

_META = re.compile(r"__[^/]*__($|/)")
_KEY_AND_PART = re.compile(r"^((?:.*/|)[^.]+)[.]([^/]*)$")


@dataclass(slots=True)
class RawSample:
    """The parts of a sample, undecoded, in the order of the archive; of one that repeats, the last.

    offsets: bytes from the start of the shard, for messages. file_names: of all members read, repeated ones too.
    """

    key: str
    shard: str
    parts: dict[str, bytes] = field(default_factory=dict)
    offsets: dict[str, int] = field(default_factory=dict)
    file_names: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _OpenShard:
    file: ReadFile
    offsets: npt.NDArray[np.int64]


class TarShards:
    """Samples 0, 1, ... of several shards, one behind the other.

    folder: what the names are relative to. counts: samples of each shard. Raises FormatError naming a shard, or its
    index, that is not there; one that is damaged is noticed when a sample of it is asked for.
    """

    def __init__(self, folder: Path, names: Sequence[str], counts: Sequence[int]) -> None:
        self.folder, self.names, self.counts = folder, list(names), list(counts)
        self.starts = [0, *accumulate(counts)]
        for name in self.names:
            for path in (folder / name, index_path(folder / name)):
                if not os.path.isfile(path):
                    raise FormatError(path, 0, "no file", "a shard and its .tar.idx (fastpack prepare writes it)")
        self._attach()

    def _attach(self) -> None:
        self._open: dict[int, _OpenShard] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return self.starts[-1]

    def locate(self, position: int) -> tuple[int, int]:
        """(shard, sample within it) of a position of [0, len)."""
        number = bisect_right(self.starts, position) - 1
        return number, position - self.starts[number]

    def read(self, position: int, wanted: Callable[[str], bool] | None = None) -> RawSample:
        """A sample; only the parts for which `wanted(name)` holds, where it is given. Raises FormatError."""
        number, i = self.locate(position)
        try:
            return self._read(number, i, wanted)
        except OSError as error:
            if error.errno != errno.ESTALE:  # a network file system that wants the file opened again
                raise
        with self._lock:
            self._open.pop(number, None)
        return self._read(number, i, wanted)

    def _read(self, number: int, i: int, wanted: Callable[[str], bool] | None) -> RawSample:
        stretch = self._stretch(number, i, WINDOW)
        sample: RawSample | None = None
        for member in stretch.members():
            names = split_name(member.name)
            if names is None:
                continue
            key, part = names
            if sample is None:
                sample = RawSample(key, self.names[number])
            elif key != sample.key:
                raise self._foreign(number, member, sample.key, stretch.end)
            if wanted is None or wanted(part):
                sample.parts[part] = stretch.content(member)
                sample.offsets[part] = member.offset
                sample.file_names.append(member.name)
        return self._checked(sample, number, stretch)

    def key(self, position: int) -> str:
        """The key of a sample, of which no more than the first headers are read. Raises FormatError."""
        number, i = self.locate(position)
        stretch = self._stretch(number, i, HEADER_WINDOW)
        names = (split_name(member.name) for member in stretch.members())
        first = next((RawSample(both[0], "") for both in names if both is not None), None)
        return self._checked(first, number, stretch).key

    def will_need(self, position: int) -> None:
        """Have the system read a sample in the background."""
        number, i = self.locate(position)
        shard = self._shard(number)
        start, end = shard.offsets[i : i + 2].tolist()
        shard.file.will_need(start, end - start)

    def close(self) -> None:
        """Close all files; the next read opens them again."""
        with self._lock:
            self._open.clear()

    def _foreign(self, number: int, member: Member, key: str, end: int) -> FormatError:
        found = f"{member.name!r}, a member of another sample"
        return FormatError(self.folder / self.names[number], member.start, found, f"sample {key!r} up to byte {end}")

    def _checked(self, sample: RawSample | None, number: int, stretch: Stretch) -> RawSample:
        if sample is None:
            found = f"no sample up to byte {stretch.end}"
            raise FormatError(self.folder / self.names[number], stretch.start, found, "one, as the index says")
        return sample

    def _stretch(self, number: int, i: int, window: int) -> Stretch:
        shard = self._shard(number)
        start, end = shard.offsets[i : i + 2].tolist()
        return Stretch(shard.file, start, end, window)

    def _shard(self, number: int) -> _OpenShard:
        with self._lock:
            shard = self._open.pop(number, None)
            if shard is None:
                shard = _open_shard(self.folder / self.names[number], self.counts[number])
                while len(self._open) >= MAX_OPEN_SHARDS:
                    del self._open[next(iter(self._open))]
            self._open[number] = shard  # the one used last is the last to go
            return shard

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in vars(self).items() if name not in ("_open", "_lock")}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state)
        self._attach()


def index_path(shard: Path) -> Path:
    """Where a shard's `.tar.idx` is."""
    return shard.with_suffix(".tar.idx")


def split_name(name: str) -> tuple[str, str] | None:
    """(sample key, part) of a member's name; None for a member that belongs to no sample."""
    if _META.match(name):
        return None
    match = _KEY_AND_PART.match(name)
    return (match[1], match[2]) if match else None


def _open_shard(path: Path, count: int) -> _OpenShard:
    index = index_path(path)
    data = map_bytes(index)
    if len(data) != 8 * (count + 1):
        raise FormatError(index, len(data), f"{len(data)} bytes", f"{8 * (count + 1)} for {count} samples (.info.json)")
    offsets = data.view("<i8")
    if count and (offsets[0] < 0 or not (offsets[1:] > offsets[:-1]).all()):
        wrong = 0 if offsets[0] < 0 else int(np.argmin(offsets[1:] > offsets[:-1])) + 1
        raise FormatError(index, 8 * wrong, offsets[wrong], "an offset beyond the one before")
    file = ReadFile(path)
    n_bytes = os.stat(path).st_size
    if n_bytes < offsets[-1]:
        raise FormatError(path, n_bytes, "the end of the file", f"{offsets[-1]} bytes, as {index.name} says")
    magic = np.empty(2, np.uint8)
    if file.read_into(magic, 0) == 2 and magic.tobytes() == b"\x1f\x8b":
        raise FormatError(path, 0, "a gzip file", "a tar: samples of a .tgz cannot be read one by one")
    return _OpenShard(file, offsets)
