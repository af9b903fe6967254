"""Read `index.sqlite` of a WebDataset that Megatron-Energon 6 or later, or fastpack, prepared."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from fastpack.errors import FormatError
from fastpack.io import PathLike, as_path, local_file

if TYPE_CHECKING:
    import sqlite3


class SampleRow(NamedTuple):
    """Location of a sample: its shard, its position in the shard, and its byte range."""

    tar_file_id: int
    sample_index: int
    byte_offset: int
    byte_size: int


class SampleIndex:
    """Read an `index.sqlite` of Energon 6 or later. Opened on first use, pickled as a path, thread-safe, fork-safe.

    Methods raise FileNotFoundError, and FormatError for a file that is not such an index.
    """

    def __init__(self, path: PathLike) -> None:
        self.path = as_path(path)
        self._lock = threading.Lock()
        self._db: sqlite3.Connection | None = None
        self._pid = 0

    @property
    def has_samples(self) -> bool:
        """Whether the index has the table of samples (`sample_tables=False` leaves it out)."""
        return self._has_table("samples")

    @property
    def has_fields(self) -> bool:
        """Whether the index has the table of stored fields (not in Energon 6)."""
        return self._has_table("sample_parts")

    @property
    def has_media(self) -> bool:
        """Whether the index has media metadata."""
        return self._has_table("media_metadata")

    def __len__(self) -> int:
        ((count,),) = self._query("SELECT count(*) FROM samples")
        return int(count)

    def get(self, key: str) -> SampleRow:
        """Return the location of a sample, the first of several with this key (Energon < 7.3). Raises KeyError."""
        rows = self._query(
            "SELECT tar_file_id, sample_index, byte_offset, byte_size FROM samples WHERE sample_key = ? "
            "ORDER BY tar_file_id, sample_index LIMIT 1",
            (key,),
        )
        if not rows:
            raise KeyError(key)
        self._check_types(rows, (int, int, int, int))
        return SampleRow(*rows[0])

    def keys(self, first: str, count: int) -> list[str]:
        """Return at most `count` keys, from `first` (inclusive) on, in UTF-8 order. Repeated keys are repeated."""
        query = "SELECT sample_key FROM samples WHERE sample_key >= ? ORDER BY sample_key LIMIT ?"
        rows = self._query(query, (first, count))
        self._check_types(rows, (str,))
        return [key for (key,) in rows]

    def samples(self, tar_file_id: int) -> list[tuple[str, SampleRow]]:
        """Return the keys and locations of a shard's samples, in order."""
        rows = self._query(
            "SELECT sample_key, tar_file_id, sample_index, byte_offset, byte_size FROM samples WHERE tar_file_id = ? "
            "ORDER BY sample_index",
            (tar_file_id,),
        )
        self._check_types(rows, (str, int, int, int, int))
        return [(key, SampleRow(*row)) for key, *row in rows]

    def fields(self, tar_file_id: int, sample_index: int) -> list[tuple[str, int, int]]:
        """Return (name, offset in the shard, size in bytes) of a sample's stored fields, ordered by offset.

        Raises FormatError for an index of Energon 6, which does not have them.
        """
        if not self.has_fields:
            raise FormatError(self.path, 0, "no table sample_parts", "that table; prepare the dataset again")
        rows = self._query(
            "SELECT part_name, content_byte_offset, content_byte_size FROM sample_parts "
            "WHERE tar_file_id = ? AND sample_index = ? ORDER BY content_byte_offset",
            (tar_file_id, sample_index),
        )
        self._check_types(rows, (str, int, int))
        return rows

    def field_totals(self) -> list[tuple[str, int, int]]:
        """Return (name, count, total bytes) of every field name, the most frequent first."""
        return self._query(
            "SELECT part_name, count(*), sum(content_byte_size) FROM sample_parts GROUP BY part_name "
            "ORDER BY count(*) DESC, part_name"
        )

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        with self._lock:
            if self._db is not None and self._pid == os.getpid():
                self._db.close()
            self._db = None

    def __del__(self) -> None:
        self.close()

    def _has_table(self, name: str) -> bool:
        return bool(self._query("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (name,)))

    def _query(self, query: str, values: tuple[Any, ...] = ()) -> list[Any]:
        import sqlite3  # 4 ms, which a first `prepare` does not need

        with self._lock:
            try:
                return self._open().execute(query, values).fetchall()
            # A damaged file may also have names or messages that are not UTF-8, and sizes beyond all memory.
            except (sqlite3.DatabaseError, UnicodeDecodeError, MemoryError) as error:
                reason = str(error) or type(error).__name__
                raise FormatError(self.path, 0, f"SQLite's error {reason!r}", "an index of samples") from error

    def _check_types(self, rows: Sequence[Sequence[Any]], kinds: Sequence[type[Any]]) -> None:
        """Raise FormatError for a value of another type: SQLite stores any value in any column."""
        for column, kind in zip(zip(*rows, strict=True), kinds, strict=False):
            if set(map(type, column)) != {kind}:
                value = next(value for value in column if type(value) is not kind)
                raise FormatError(self.path, 0, f"{value!r:.80} in a row", "text" if kind is str else "an integer")

    def _open(self) -> sqlite3.Connection:
        if self._db is None or self._pid != os.getpid():
            if not self.path.is_file():
                raise FileNotFoundError(f"{self.path} does not exist. Prepare the dataset to get an index by key.")
            self._db = connect_read_only(self.path)
            self._pid = os.getpid()
        return self._db

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["path"])  # type: ignore[misc]


def connect_read_only(path: PathLike) -> sqlite3.Connection:
    """Open a file that does not change while it is open."""
    import sqlite3

    return sqlite3.connect(read_only_uri(path), uri=True, check_same_thread=False)


def read_only_uri(path: PathLike) -> str:
    """Return the SQLite URI of a file that does not change while it is open."""
    return f"file:{quote(os.path.abspath(local_file(path)))}?mode=ro&immutable=1"
