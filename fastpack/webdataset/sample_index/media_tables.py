"""Media metadata in `index.sqlite`: two tables, which SQLite adds to the finished file."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from itertools import chain, groupby
from typing import TYPE_CHECKING
from urllib.parse import quote

from fastpack.errors import FormatError
from fastpack.io import PathLike
from fastpack.webdataset.sample_index.reader import read_only_uri

if TYPE_CHECKING:
    import sqlite3

# The same SQL as Energon's, apart from white space and IF NOT EXISTS, which SQLite does not store.
_TABLES = {
    "media_metadata": "CREATE TABLE IF NOT EXISTS media_metadata (entry_key TEXT PRIMARY KEY, "
    "metadata_type TEXT NOT NULL, metadata_json TEXT NOT NULL)",
    "media_filters": "CREATE TABLE IF NOT EXISTS media_filters (filter_id INTEGER PRIMARY KEY AUTOINCREMENT, "
    "strategy TEXT NOT NULL, patterns TEXT, created_at_utc TEXT DEFAULT CURRENT_TIMESTAMP, "
    "UNIQUE(strategy, patterns))",
}


def write_media(path: PathLike, entries: Iterable[list[str]], previous: PathLike | None) -> None:
    """Add `entries`, in order, to a database without media tables that no other connection has open.

    ["copy"]: all rows of `previous`. ["row", entry key, type, JSON]: replaces an older row of the same key. ["filter",
    strategy, patterns]: the filter that selected rows, stored once. Without entries the file is not touched. A
    `previous` that is not a database has no rows; FormatError for a damaged one.
    """
    entries = iter(entries)
    first = next(entries, None)
    if first is None:
        return
    import sqlite3  # 2 ms, which most runs do not need

    # The writer already holds a lock, with which SQLite's own would conflict on NFS. An error discards the file.
    uri = f"file:{quote(str(path))}?nolock=1"
    with closing(sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)) as db:
        for setting in ("journal_mode=OFF", "synchronous=OFF"):
            db.execute(f"PRAGMA {setting}").fetchall()
        old_tables = _attach(db, previous)
        db.execute("BEGIN")
        for kind, some in groupby(chain([first], entries), lambda entry: entry[0]):
            if kind == "copy":
                try:
                    _copy(db, old_tables)
                except sqlite3.DatabaseError as error:
                    found = f"SQLite's error {str(error)!r}"
                    raise FormatError(str(previous), 0, found, "readable media metadata") from error
                continue
            for schema in _TABLES.values():
                db.execute(schema)
            values = (entry[1:] for entry in some)
            if kind == "row":
                db.executemany("INSERT OR REPLACE INTO media_metadata VALUES (?, ?, ?)", values)
            else:
                db.executemany("INSERT OR IGNORE INTO media_filters (strategy, patterns) VALUES (?, ?)", values)
        db.execute("COMMIT")


def _attach(db: sqlite3.Connection, previous: PathLike | None) -> set[str]:
    """Attach an older index as `old`; return the names of its tables."""
    import sqlite3

    if previous is None:
        return set()
    try:
        db.execute("ATTACH ? AS old", (read_only_uri(previous),))
        return {name for (name,) in db.execute("SELECT name FROM old.sqlite_master WHERE type = 'table'")}
    except sqlite3.DatabaseError:
        return set()


def _copy(db: sqlite3.Connection, old_tables: set[str]) -> None:
    for table in _TABLES:
        if table in old_tables:
            db.execute(_TABLES[table])
            db.execute(f"INSERT INTO main.{table} SELECT * FROM old.{table}")
