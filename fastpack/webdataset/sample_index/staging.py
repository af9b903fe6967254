"""Rows of an `index.sqlite` to be, in files beside it: what is walked when a run is killed need not be walked again.

Each column is a file of its own, to which every shard appends, and which is mapped when all shards are there. A file of
notes says how long the columns are behind each shard; what a killed writer appended behind its last note is cut off.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastpack.errors import FormatError
from fastpack.io import AtomicFile, Bytes, map_bytes
from fastpack.webdataset.sample_index.page_writer import IndexRows
from fastpack.webdataset.sample_index.table_rows import ShardRows

if TYPE_CHECKING:
    from fastpack.webdataset.shard_index import ShardScan

_COLUMNS = ("samples", "keys", "key_bounds", "parts", "names", "name_bounds", "media")
_NAMES_KNOWN = 65_536  # names of parts that are looked up; a dataset whose parts all have their own gets some again
_BOOT_ID = "/proc/sys/kernel/random/boot_id"  # Linux: another text after each start of the machine


class WalkedShard(NamedTuple):
    """A shard as it was when it was walked: size in bytes, time of change, samples, and some names of parts."""

    name: str
    n_bytes: int
    mtime_ns: int
    n_samples: int
    parts: list[str]


def walked_shard(fields: object) -> WalkedShard:
    """The shard whose fields were written as JSON; ValueError for anything else."""
    if isinstance(fields, list) and len(fields) == len(WalkedShard._fields):
        name, *numbers, parts = fields
        if isinstance(name, str) and all(type(number) is int for number in numbers) and isinstance(parts, list):
            return WalkedShard(*fields)
    raise ValueError(f"{fields!r} is not a walked shard")


class Staging:
    """Columns being appended to, beside the file `path` that is to be made of them.

    keep: take up what a writer of the same purpose noted, unless the machine was started anew meanwhile, for then it
    may not have reached the disk; `done` has the shards. mode: permissions of the files.
    """

    def __init__(self, path: str, purpose: str, *, keep: bool = False, mode: int | None = None) -> None:
        self.done: list[WalkedShard] = []
        self._header = {"purpose": purpose, "boot": _boot_id()}
        self._names: dict[bytes, int] = {}
        with ExitStack() as opened:
            files = {}
            for column in (*_COLUMNS, "notes"):
                files[column] = AtomicFile(f"{path}.{column}", keep=keep, follow=False)
                opened.callback(files[column].abort)
                if mode is not None:
                    files[column].set_mode(mode)
            self._notes, self._files = files.pop("notes"), files
            if not keep or not self._take_up():
                self.start_over()
            opened.pop_all()

    def start_over(self) -> None:
        """Forget all rows and notes."""
        self.done = []
        for file in (self._notes, *self._files.values()):
            file.truncate(0)
        self._files["key_bounds"].write(np.zeros(1, np.int64))
        self._files["name_bounds"].write(np.zeros(1, np.int64))
        self._n_names = 0
        self._names.clear()
        self._note(self._header)

    def add_shard(self, tar_file_id: int, scan: ShardScan) -> None:
        """Append a shard. FormatError for a key or part name that is not UTF-8, with the sample's offset in it."""
        _check_names(scan, scan.sample_keys, None)
        offsets, n_samples, n_parts = scan.sample_offsets, len(scan.sample_keys), len(scan.part_names)
        shard = np.full(max(n_samples, n_parts), tar_file_id, np.int64)
        samples = (shard[:n_samples], np.arange(n_samples), offsets[:-1], np.diff(offsets))
        self.add_samples(samples, scan.sample_keys)
        parts = (shard[:n_parts], scan.part_samples, scan.part_offsets, scan.part_sizes)
        try:
            self.add_parts(parts, scan.part_names)
        except UnicodeDecodeError:
            _check_names(scan, scan.part_names, scan.part_samples)
            raise

    def add_samples(self, columns: Sequence[npt.NDArray[np.int64]], keys: Sequence[bytes]) -> None:
        """Append samples, given as the four columns of `IndexRows.samples`."""
        self._append_texts("keys", "key_bounds", keys)
        self._write("samples", np.column_stack(columns))

    def add_parts(self, columns: Sequence[npt.NDArray[np.int64]], names: Sequence[bytes]) -> None:
        """Append parts, given as the first four columns of `IndexRows.parts`."""
        self._write("parts", np.column_stack((*columns, self._numbers(names))))

    def add_old_shard(self, tar_file_id: int, samples: ShardRows, parts: ShardRows) -> None:
        """Append a shard's rows of an older index."""
        numbers = self._numbers(parts.texts())[parts.numbers]
        samples.columns[:, 0] = parts.columns[:, 0] = tar_file_id
        self._append_joined("keys", "key_bounds", samples.text, samples.lengths)
        self._write("samples", samples.columns)
        self._write("parts", np.ascontiguousarray(np.column_stack((parts.columns, numbers))))

    def add_media(self, entry: Sequence[str]) -> None:
        """Append something about media, which `media` gives again."""
        self._files["media"].write(json.dumps(entry).encode() + b"\n")

    def note(self, shard: WalkedShard) -> None:
        """Say that all of a shard is appended."""
        self._note([*shard, [file.tell() for file in self._files.values()]])

    def rows(self) -> IndexRows:
        """All rows, mapped; only while nothing more is appended."""
        keys, names = (self._map(column) for column in ("keys", "names"))
        key_bounds, name_bounds, samples, parts = (
            self._map(column).view(np.int64) for column in ("key_bounds", "name_bounds", "samples", "parts")
        )
        return IndexRows(samples.reshape(-1, 4), keys, key_bounds, parts.reshape(-1, 5), names, name_bounds)

    def media(self) -> Iterator[list[str]]:
        """What `add_media` got."""
        return map(json.loads, self._map("media").tobytes().splitlines())

    def remove(self) -> None:
        """Remove all files."""
        for file in (*self._files.values(), self._notes):
            file.abort()

    def suspend(self) -> None:
        """Leave the files for a writer with `keep`."""
        for file in (*self._files.values(), self._notes):
            file.suspend()

    def _take_up(self) -> bool:
        """Go on behind the last note; False if that is not possible."""
        lines = map_bytes(self._notes.partial_path).tobytes().split(b"\n")
        try:
            header, *notes = [json.loads(line) for line in lines[:-1]]  # behind the last is half a note, or nothing
            if header != self._header or not notes:
                return False
            done = [walked_shard(note[:-1] if isinstance(note, list) else None) for note in notes]
            ends = notes[-1][-1]
            if not (isinstance(ends, list) and all(type(end) is int and end >= 0 for end in ends)):
                raise ValueError(f"the lengths {ends!r}")
            for file, end in zip(self._files.values(), ends, strict=True):
                file.truncate(end)
        except (ValueError, RecursionError):  # torn, cut off, or not written by this class
            return False
        self._notes.truncate(self._notes.tell() - len(lines[-1]))
        self._n_names = self._files["name_bounds"].tell() // 8 - 1
        self.done = done
        return True

    def _note(self, note: Any) -> None:
        self._notes.write(json.dumps(note).encode() + b"\n")

    def _append_texts(self, column: str, bounds: str, texts: Sequence[bytes]) -> None:
        self._append_joined(column, bounds, b"".join(texts), np.fromiter(map(len, texts), np.int64, len(texts)))

    def _append_joined(self, column: str, bounds: str, text: Bytes, lengths: npt.NDArray[np.int64]) -> None:
        ends = np.cumsum(lengths) + self._files[column].tell()
        self._write(column, text)
        self._write(bounds, ends)

    def _numbers(self, names: Sequence[bytes]) -> npt.NDArray[np.int64]:
        """The numbers of names of parts; new ones are appended. UnicodeDecodeError for one that is not UTF-8."""
        try:
            return np.fromiter(map(self._names.__getitem__, names), np.int64, len(names))
        except KeyError:
            new = list(dict.fromkeys(names))
        if len(self._names) > _NAMES_KNOWN:
            self._names.clear()
        new = [name for name in new if name not in self._names]
        for name in new:
            name.decode()
        self._append_texts("names", "name_bounds", new)
        self._names.update(zip(new, range(self._n_names, self._n_names + len(new)), strict=True))
        self._n_names += len(new)
        return np.fromiter(map(self._names.__getitem__, names), np.int64, len(names))

    def _write(self, column: str, data: Bytes) -> None:
        if len(data):
            self._files[column].write(data)

    def _map(self, column: str) -> npt.NDArray[np.uint8]:
        return map_bytes(self._files[column].partial_path)


def _boot_id() -> str:
    """A text that changes when the machine starts; one of its own for each process where there is none."""
    try:
        with open(_BOOT_ID) as file:
            return file.read().strip()
    except OSError:
        return f"process {os.getpid()}"


def _check_names(scan: ShardScan, names: Iterable[bytes], samples: npt.NDArray[np.int64] | None) -> None:
    """Raise FormatError for the first name that is not UTF-8; samples: of each name its sample; None: the names'."""
    if b"".join(names).isascii():
        return
    for number, name in enumerate(names):
        try:
            name.decode()
        except UnicodeDecodeError:
            sample = number if samples is None else int(samples[number])
            offset = int(scan.sample_offsets[sample])
            raise FormatError(scan.path, offset, f"the name {name!r}", "a name in UTF-8") from None
