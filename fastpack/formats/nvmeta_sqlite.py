"""`index.sqlite`: where each sample of a WebDataset is, and each of its parts; the tables of Megatron-Energon 7.4.

Table `samples`: tar_file_id (the shard's position in `.info.json`), sample_key, sample_index (in the shard),
byte_offset, byte_size (of all its members with their headers). Table `sample_parts`: tar_file_id, sample_index,
part_name, content_byte_offset, content_byte_size. This module writes it, `nvmeta_lookup` reads it.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote

import numpy as np
import numpy.typing as npt

from fastpack.errors import FormatError, JobError
from fastpack.files import AtomicFile, PathLike, remove
from fastpack.formats.nvmeta_lookup import read_only_uri

_ROWS_AT_ONCE = 65_536  # rows that are Python objects at a time
_ROWS_A_STATEMENT = 200  # of 4 parameters each; a statement may have 999 in an old SQLite
_CACHE_KIB = 16_384  # of SQLite's pages, and of rows being sorted; more is no faster
_NAMED, _LISTED = 20, 10_000  # duplicate keys that an error's text names, and that the error has
_BOOT_ID = "/proc/sys/kernel/random/boot_id"  # Linux: another text after each start of the machine

# The texts of the schema are what Energon's own connection would hold, blanks aside.
_SAMPLES = (
    "CREATE TABLE samples (tar_file_id INTEGER NOT NULL, sample_key TEXT NOT NULL UNIQUE, "
    "sample_index INTEGER NOT NULL, byte_offset INTEGER, byte_size INTEGER)"
)
_PARTS = (
    "CREATE TABLE sample_parts (tar_file_id INTEGER, sample_index INTEGER, part_name TEXT, "
    "content_byte_offset INTEGER, content_byte_size INTEGER)"
)
_INDEXES = (
    "CREATE INDEX idx_samples_by_tar_and_idx ON samples(tar_file_id, sample_index)",
    "CREATE INDEX idx_sample_parts_seq ON sample_parts(tar_file_id, sample_index, content_byte_offset)",
    "CREATE INDEX idx_sample_parts_full ON sample_parts("
    "tar_file_id, sample_index, part_name, content_byte_offset, content_byte_size)",
)
_MEDIA = {
    "media_metadata": "CREATE TABLE media_metadata (entry_key TEXT PRIMARY KEY, metadata_type TEXT NOT NULL, "
    "metadata_json TEXT NOT NULL)",
    "media_filters": "CREATE TABLE media_filters (filter_id INTEGER PRIMARY KEY AUTOINCREMENT, strategy TEXT NOT NULL, "
    "patterns TEXT, created_at_utc TEXT DEFAULT CURRENT_TIMESTAMP, UNIQUE(strategy, patterns))",
}


class ScannedShard(Protocol):
    """What the index needs of a scanned shard (`webdataset.ShardScan`)."""

    path: str
    sample_keys: list[bytes]
    sample_offsets: npt.NDArray[np.int64]
    part_samples: npt.NDArray[np.int64]
    part_names: list[bytes]
    part_offsets: npt.NDArray[np.int64]
    part_sizes: npt.NDArray[np.int64]


class DuplicateKeys(JobError):
    """Sample keys that occur more than once, so that none of them can be loaded by name.

    keys: up to 10,000 of them, with the shards they are in (their numbers, or names where they are known); total: how
    many there are.
    """

    def __init__(self, path: PathLike, keys: Sequence[tuple[str, Sequence[int | str]]], total: int) -> None:
        self.path, self.keys, self.total = os.fspath(path), keys, total
        named = "; ".join(f"{key!r} in {', '.join(map(str, shards))}" for key, shards in keys[:_NAMED])
        more = f"; and {total - _NAMED} more" if total > _NAMED else ""
        many = "1 sample key occurs" if total == 1 else f"{total} sample keys occur"
        super().__init__(f"{many} more than once: {named}{more}")

    def __reduce__(self) -> tuple[type[DuplicateKeys], tuple[str, Sequence[tuple[str, Sequence[int | str]]], int]]:
        return type(self), (self.path, self.keys, self.total)


class WalkedShard(NamedTuple):
    """A shard as it was when it was walked: size in bytes, time of change, samples, and some names of parts."""

    name: str
    n_bytes: int
    mtime_ns: int
    n_samples: int
    parts: list[str]


def write_sample_index(path: PathLike, scans: Iterable[ScannedShard], *, mode: int | None = None) -> int:
    """Write the index of these shards, numbered from 0, in place of `path`; return the number of samples.

    mode: permissions of the file. What was there stays until the new index is complete. Raises as `IndexWriter` does.
    """
    with IndexWriter(path, mode=mode) as writer:
        n_samples = 0
        for tar_file_id, scan in enumerate(scans):
            writer.add(tar_file_id, scan)
            n_samples += len(scan.sample_keys)
    return n_samples


class IndexWriter:
    """An `index.sqlite` being written: shard by shard, in order; it takes its name when the with block ends well.

    previous: an older index, from which shards (`copy`) and media metadata (`copy_media`) can be taken over.
    sample_tables=False leaves out the tables of samples and parts. resume: take up what a writer of the same `purpose`
    left behind when it was killed; the shards it noted (`note`) are then in `done`, unless the machine was started anew
    meanwhile. With resume, an error leaves what is written for the next writer. Raises FormatError for a key or part
    name that is not UTF-8, with the shard and the sample's offset in it, and DuplicateKeys at the end of the block.
    """

    def __init__(
        self,
        path: PathLike,
        *,
        mode: int | None = None,
        previous: PathLike | None = None,
        sample_tables: bool = True,
        resume: bool = False,
        purpose: str = "",
    ) -> None:
        self.done: list[WalkedShard] = []
        self._sample_tables, self._resume = sample_tables, resume
        self._names: dict[bytes, str] = {}  # of parts, each once
        self._file = AtomicFile(path, keep=resume)
        self._journal_path = f"{self._file.partial_path}-journal"
        self._open: sqlite3.Connection | None = None
        try:
            if mode is not None:
                os.fchmod(self._file.fileno(), mode & 0o7777)
            self._origin = (previous, f"{purpose} {_boot_id()}")
            self._db = self._start(*self._origin)
        except BaseException:
            self._close()
            self._file.abort()
            raise

    def _start(self, previous: PathLike | None, purpose: str) -> sqlite3.Connection:
        if self._resume and self._file.tell():
            try:
                db = self._open = _connect(self._file.partial_path, previous)
                self.done = _noted(db, purpose)
                return db
            except (sqlite3.DatabaseError, LookupError):  # of another purpose or start of the machine, or torn
                self._close()
        return self._fresh(previous, purpose)

    def start_over(self) -> None:
        """Forget what a killed writer had done."""
        if self.done:
            self.done = []
            self._close()
            self._db = self._fresh(*self._origin)

    def _fresh(self, previous: PathLike | None, purpose: str) -> sqlite3.Connection:
        self._file.truncate(0)
        remove(self._journal_path)
        db = self._open = _connect(self._file.partial_path, previous)
        if self._sample_tables:
            db.execute(_SAMPLES.replace(" UNIQUE", ""))
            db.execute(_PARTS)
        db.execute("CREATE TABLE walked (name, n_bytes, mtime_ns, n_samples, parts)")
        db.execute("INSERT INTO walked (name, n_bytes) VALUES (?, -1)", (purpose,))
        return db

    def add(self, tar_file_id: int, scan: ScannedShard) -> None:
        """Add the samples and parts of one shard."""
        if not self._sample_tables:
            return
        offsets = scan.sample_offsets
        for first in range(0, len(scan.sample_keys), _ROWS_AT_ONCE):
            keys = _texts(scan, scan.sample_keys[first : first + _ROWS_AT_ONCE], first)
            starts = offsets[first : first + len(keys) + 1]
            numbers = range(first, first + len(keys))
            self._insert("samples", tar_file_id, keys, numbers, starts[:-1].tolist(), np.diff(starts).tolist())
        for first in range(0, len(scan.part_names), _ROWS_AT_ONCE):
            rows = slice(first, first + _ROWS_AT_ONCE)
            names = self._part_names(scan, rows)
            places = (scan.part_offsets[rows].tolist(), scan.part_sizes[rows].tolist())
            self._insert("sample_parts", tar_file_id, scan.part_samples[rows].tolist(), names, *places)

    def note(self, shard: WalkedShard) -> None:
        """Say that all of a shard is added: a writer that resumes need not see it again."""
        self._db.execute("INSERT INTO walked VALUES (?, ?, ?, ?, ?)", (*shard[:4], json.dumps(shard.parts)))
        self._db.execute("COMMIT")
        self._db.execute("BEGIN")

    def copy(self, tar_file_id: int, old_tar_file_id: int) -> None:
        """Take the rows of one shard over from the previous index."""
        if not self._sample_tables:
            return
        ids = (tar_file_id, old_tar_file_id)
        self._db.execute(
            "INSERT INTO samples SELECT ?, sample_key, sample_index, byte_offset, byte_size "
            "FROM old.samples WHERE tar_file_id = ? ORDER BY sample_index",
            ids,
        )
        self._db.execute(
            "INSERT INTO sample_parts SELECT ?, sample_index, part_name, content_byte_offset, content_byte_size "
            "FROM old.sample_parts WHERE tar_file_id = ? ORDER BY sample_index, content_byte_offset",
            ids,
        )

    def copy_media(self) -> None:
        """Take over the media metadata of the previous index, if there is one that has any."""
        tables = "SELECT name FROM old.sqlite_master WHERE type = 'table'"
        there = {name for (name,) in self._db.execute(tables)} if self._origin[0] is not None else set()
        for table, schema in _MEDIA.items():
            if table in there:
                self._db.execute(f"DROP TABLE IF EXISTS main.{table}")  # of a writer that was killed
                self._db.execute(schema)
                self._db.execute(f"INSERT INTO main.{table} SELECT * FROM old.{table}")

    def add_media(self, rows: Iterable[tuple[str, str, str]], found_by: tuple[str, str]) -> None:
        """Add metadata of media: (entry key, type, JSON) rows, each instead of an older one of its key.

        found_by: strategy and patterns of the filter, which are noted once.
        """
        there = {name for (name,) in self._db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        for table, schema in _MEDIA.items():
            if table not in there:
                self._db.execute(schema)
        self._db.executemany("INSERT OR REPLACE INTO media_metadata VALUES (?, ?, ?)", rows)
        self._db.execute("INSERT OR IGNORE INTO media_filters (strategy, patterns) VALUES (?, ?)", found_by)

    def commit(self) -> None:
        """Build the indexes and take the target's name."""
        if self._sample_tables:
            there = {name for (name,) in self._db.execute("SELECT name FROM sqlite_master")}
            if "sqlite_autoindex_samples_1" not in there:  # it is after a kill further below
                self._make_unique()
            for index in _INDEXES:
                self._db.execute(index)
        self._db.execute("DROP TABLE walked")
        self._db.execute("COMMIT")
        self._close()
        remove(self._journal_path)
        self._file.commit()

    def abort(self) -> None:
        """Remove what was written; harmless after `commit()`."""
        self._close()
        remove(self._journal_path)
        self._file.abort()

    def suspend(self) -> None:
        """Stop; what was noted stays for a writer with `resume`."""
        self._close()
        self._file.suspend()

    def _close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None

    def _insert(self, table: str, tar_file_id: int, *columns: Sequence[Any]) -> None:
        """Add rows of a shard, many at a statement: that takes a third of the time of one at a statement."""
        values: list[Any] = [None] * (4 * len(columns[0]))
        for i, column in enumerate(columns):
            values[i::4] = column
        one = f"({tar_file_id:d}, ?, ?, ?, ?)"
        whole = len(values) - len(values) % (4 * _ROWS_A_STATEMENT)
        statement = f"INSERT INTO {table} VALUES {', '.join([one] * _ROWS_A_STATEMENT)}"
        step = 4 * _ROWS_A_STATEMENT
        self._db.executemany(statement, (values[i : i + step] for i in range(0, whole, step)))
        if whole < len(values):
            n_left = (len(values) - whole) // 4
            self._db.execute(f"INSERT INTO {table} VALUES {', '.join([one] * n_left)}", values[whole:])

    def _part_names(self, scan: ScannedShard, rows: slice) -> list[str]:
        known, raw = self._names, scan.part_names[rows]
        if missing := set(raw).difference(known):
            if len(known) > _ROWS_AT_ONCE:  # every part its own name: remember none for long
                known.clear()
                missing = set(raw)
            for name in missing:
                try:
                    known[name] = name.decode()
                except UnicodeDecodeError:
                    sample = int(scan.part_samples[rows.start + raw.index(name)])
                    raise _not_utf8(scan, sample, name) from None
        return [known[name] for name in raw]

    def _make_unique(self) -> None:
        """Give `samples` the constraint UNIQUE (sample_key), whose index SQLite could only build row by row.

        Built by sorting afterwards it takes a third of the time for keys in random order. To make it the constraint's
        own index, the schema is edited in the way SQLite's documentation of `PRAGMA writable_schema` allows for; a
        SQLite that was built to refuse that gets a sorted copy of the table.
        """
        try:
            self._db.execute("CREATE UNIQUE INDEX built_by_sorting ON samples(sample_key)")
        except sqlite3.IntegrityError:
            raise self._duplicates() from None
        self._db.execute("PRAGMA writable_schema = ON")
        try:
            self._db.execute("UPDATE sqlite_master SET sql = ? WHERE name = 'samples'", (_SAMPLES,))
        except sqlite3.DatabaseError:
            self._copy_sorted()
            return
        self._db.execute(
            "UPDATE sqlite_master SET name = 'sqlite_autoindex_samples_1', sql = NULL WHERE name = 'built_by_sorting'"
        )
        self._db.execute("COMMIT")
        self._db.execute("PRAGMA writable_schema = RESET")
        self._db.execute("BEGIN")

    def _copy_sorted(self) -> None:
        self._db.execute("DROP INDEX built_by_sorting")
        self._db.execute("ALTER TABLE samples RENAME TO unsorted")
        self._db.execute(_SAMPLES)
        self._db.execute("INSERT INTO samples SELECT * FROM unsorted ORDER BY sample_key")
        self._db.execute("DROP TABLE unsorted")

    def _duplicates(self) -> DuplicateKeys:
        self._db.execute("CREATE INDEX by_key ON samples(sample_key, tar_file_id)")
        repeated = "SELECT sample_key FROM samples GROUP BY sample_key HAVING count(*) > 1"
        (total,) = self._db.execute(f"SELECT count(*) FROM ({repeated})").fetchone()
        keys: dict[str, list[int | str]] = {}
        for (key,) in self._db.execute(f"{repeated} LIMIT {_LISTED}").fetchall():
            shards = self._db.execute("SELECT DISTINCT tar_file_id FROM samples WHERE sample_key = ? LIMIT 5", (key,))
            keys[key] = [shard for (shard,) in shards]
        return DuplicateKeys(self._file.path, list(keys.items()), total)

    def __enter__(self) -> IndexWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self.commit()
            elif self._resume:
                self.suspend()
        finally:
            self.abort()


def _connect(path: str, previous: PathLike | None) -> sqlite3.Connection:
    # The file is locked by AtomicFile; SQLite's own locks would meet that one on NFS. Only the finished file is synced.
    # The journal holds the few pages that are changed after a commit, not the new ones: with it the file can be taken
    # up after a kill, and without syncs as long as the machine runs.
    db = sqlite3.connect(f"file:{quote(path)}?nolock=1", uri=True, isolation_level=None, check_same_thread=False)
    try:
        for setting in ("page_size=4096", "journal_mode=PERSIST", "synchronous=OFF", f"cache_size=-{_CACHE_KIB}"):
            db.execute(f"PRAGMA {setting}").fetchall()
        if previous is not None:
            db.execute("ATTACH ? AS old", (read_only_uri(previous),))
        db.execute("BEGIN")
    except BaseException:
        db.close()
        raise
    return db


def _noted(db: sqlite3.Connection, purpose: str) -> list[WalkedShard]:
    """The shards noted by a writer of this purpose; LookupError if it was another, or its file lacks them."""
    rows = db.execute("SELECT name, n_bytes, mtime_ns, n_samples, parts FROM walked ORDER BY rowid").fetchall()
    if not rows or rows[0][:2] != (purpose, -1):
        raise LookupError("rows of another run")
    return [WalkedShard(name, size, time, count, json.loads(parts)) for name, size, time, count, parts in rows[1:]]


def _boot_id() -> str:
    """A text that changes when the machine starts; one of its own for each process where there is none."""
    with suppress(OSError), open(_BOOT_ID) as file:
        return file.read().strip()
    return f"process {os.getpid()}"


def _texts(scan: ScannedShard, keys: list[bytes], first: int) -> list[str]:
    try:
        return [key.decode() for key in keys]
    except UnicodeDecodeError:
        for sample, key in enumerate(keys, first):
            try:
                key.decode()
            except UnicodeDecodeError:
                raise _not_utf8(scan, sample, key) from None
        raise


def _not_utf8(scan: ScannedShard, sample: int, name: bytes) -> FormatError:
    return FormatError(scan.path, int(scan.sample_offsets[sample]), f"the name {name!r}", "a name in UTF-8")
