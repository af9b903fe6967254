"""Staging files for the rows of an `index.sqlite`, so that a killed run can be resumed.

Each column is a file, to which every shard appends, and which is mapped when all shards are added. A file of notes
records the length of each column after each shard; what a killed writer appended after its last note is cut off.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastpack.io import AtomicFile, Bytes, map_bytes
from fastpack.webdataset.sample_index.page_writer import IndexRows
from fastpack.webdataset.sample_index.table_rows import ShardRows

if TYPE_CHECKING:
    from fastpack.webdataset.shard_index import ShardScan

_COLUMNS = ("samples", "keys", "key_bounds", "parts", "names", "name_bounds", "media")
MAX_FIELD_NAMES = 50  # names of stored fields that a shard's record keeps
_MAX_KNOWN_NAMES = 65_536  # field names in the lookup table; beyond, the table is cleared and names may be stored twice
_BOOT_ID = "/proc/sys/kernel/random/boot_id"  # Linux: changes with every boot


class ShardRecord(NamedTuple):
    """State of a shard when it was walked: size, modification time, samples, and its first field names."""

    name: str
    n_bytes: int
    mtime_ns: int
    n_samples: int
    field_names: list[str]


def shard_record(fields: object) -> ShardRecord:
    """Restore a record from its JSON list; ValueError for anything else."""
    if isinstance(fields, list) and len(fields) == len(ShardRecord._fields):
        name, *numbers, field_names = fields
        if isinstance(name, str) and all(type(number) is int for number in numbers) and isinstance(field_names, list):
            return ShardRecord(*fields)
    raise ValueError(f"{fields!r} is not the record of a shard")


class Staging:
    """Column files next to the file `path` that will be written from them.

    keep: continue after the last note of a writer with the same `purpose`, unless the machine was rebooted meanwhile
    (the files may then not have reached the disk). `done` lists the shards that it noted. mode: permissions.
    """

    def __init__(self, path: str, purpose: str, *, keep: bool = False, mode: int | None = None) -> None:
        self.done: list[ShardRecord] = []
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
            if not keep or not self._resume():
                self.start_over()
            opened.pop_all()

    def start_over(self) -> None:
        """Discard all rows and notes."""
        self.done = []
        for file in (self._notes, *self._files.values()):
            file.truncate(0)
        self._files["key_bounds"].write(np.zeros(1, np.int64))
        self._files["name_bounds"].write(np.zeros(1, np.int64))
        self._n_names = 0
        self._names.clear()
        self._note(self._header)

    def add_shard(self, tar_file_id: int, scan: ShardScan) -> None:
        """Append the samples and fields of a shard."""
        offsets, n_samples, n_fields = scan.sample_offsets, len(scan.sample_keys), len(scan.field_names)
        shard = np.full(max(n_samples, n_fields), tar_file_id, np.int64)
        self._append_texts("keys", "key_bounds", scan.sample_keys)
        self._write(
            "samples", np.column_stack((shard[:n_samples], np.arange(n_samples), offsets[:-1], np.diff(offsets)))
        )
        numbers = self._numbers(scan.field_names)
        fields = (shard[:n_fields], scan.field_samples, scan.field_offsets, scan.field_sizes, numbers)
        self._write("parts", np.column_stack(fields))

    def add_old_shard(self, tar_file_id: int, samples: ShardRows, fields: ShardRows) -> None:
        """Append the rows of a shard from an older index. ValueError, before any row, for a name that is not UTF-8."""
        numbers = self._numbers(fields.texts())[fields.numbers]
        samples.columns[:, 0] = fields.columns[:, 0] = tar_file_id
        self._append_joined("keys", "key_bounds", samples.text, samples.lengths)
        self._write("samples", samples.columns)
        self._write("parts", np.ascontiguousarray(np.column_stack((fields.columns, numbers))))

    def add_media(self, entry: Sequence[str]) -> None:
        """Append an entry that `media` returns."""
        self._files["media"].write(json.dumps(entry).encode() + b"\n")

    def note(self, shard: ShardRecord) -> None:
        """Record that a shard is complete."""
        self._note([*shard, [file.tell() for file in self._files.values()]])

    def rows(self) -> IndexRows:
        """Return all rows, memory-mapped; nothing may be appended while they are in use."""
        keys, names = (self._map(column) for column in ("keys", "names"))
        key_bounds, name_bounds, samples, fields = (
            self._map(column).view(np.int64) for column in ("key_bounds", "name_bounds", "samples", "parts")
        )
        return IndexRows(samples.reshape(-1, 4), keys, key_bounds, fields.reshape(-1, 5), names, name_bounds)

    def media(self) -> Iterator[list[str]]:
        """Return the entries of `add_media`."""
        return map(json.loads, self._map("media").tobytes().splitlines())

    def remove(self) -> None:
        """Remove all files."""
        for file in (*self._files.values(), self._notes):
            file.abort()

    def suspend(self) -> None:
        """Close the files, and keep them for a writer with `keep`."""
        for file in (*self._files.values(), self._notes):
            file.suspend()

    def _resume(self) -> bool:
        """Continue after the last note; False if that is impossible."""
        lines = map_bytes(self._notes.partial_path).tobytes().split(b"\n")
        try:
            header, *notes = [json.loads(line) for line in lines[:-1]]  # the last piece is an incomplete note, or empty
            if header != self._header or not notes:
                return False
            done = [shard_record(note[:-1] if isinstance(note, list) else None) for note in notes]
            ends = notes[-1][-1]
            if not (isinstance(ends, list) and all(type(end) is int and end >= 0 for end in ends)):
                raise ValueError(f"the lengths {ends!r}")
            for file, end in zip(self._files.values(), ends, strict=True):
                file.truncate(end)
        except (ValueError, RecursionError):  # torn, truncated, or foreign
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
        """Return the numbers of field names, adding new names. UnicodeDecodeError for a name that is not UTF-8."""
        try:
            return np.fromiter(map(self._names.__getitem__, names), np.int64, len(names))
        except KeyError:
            new = list(dict.fromkeys(names))
        if len(self._names) > _MAX_KNOWN_NAMES:
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
    """Return a text that changes with every boot, or else one that is unique to this process."""
    try:
        with open(_BOOT_ID) as file:
            return file.read().strip()
    except OSError:
        return f"process {os.getpid()}"
