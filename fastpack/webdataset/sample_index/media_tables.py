"""Metadata of images, audio and video in `index.sqlite`: two tables that SQLite adds to a file with the others."""

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

# The texts of the schema are what Energon's own connection would hold, blanks aside.
_TABLES = {
    "media_metadata": "CREATE TABLE media_metadata (entry_key TEXT PRIMARY KEY, metadata_type TEXT NOT NULL, "
    "metadata_json TEXT NOT NULL)",
    "media_filters": "CREATE TABLE media_filters (filter_id INTEGER PRIMARY KEY AUTOINCREMENT, strategy TEXT NOT NULL, "
    "patterns TEXT, created_at_utc TEXT DEFAULT CURRENT_TIMESTAMP, UNIQUE(strategy, patterns))",
}


def write_media(path: PathLike, entries: Iterable[list[str]], previous: PathLike | None) -> None:
    """Add what `entries` say, in their order, to a database that has no media tables, and that nobody else has open.

    ["copy"]: all that `previous` has; ["row", entry key, type, JSON]: one instead of an older one of its key;
    ["filter", strategy, patterns]: by which rows were found, noted once. Without entries the file is not touched.
    A `previous` that is no database has nothing; FormatError for one that is damaged.
    """
    entries = iter(entries)
    first = next(entries, None)
    if first is None:
        return
    import sqlite3  # 2 ms, which most runs need not spend

    # The file is locked by who writes it; SQLite's own locks would meet that one on NFS. An error costs the whole file.
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
                    raise FormatError(str(previous), 0, found, "metadata of media to be taken over") from error
                continue
            _make_tables(db)
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


def _make_tables(db: sqlite3.Connection) -> None:
    there = {name for (name,) in db.execute("SELECT name FROM main.sqlite_master WHERE type = 'table'")}
    for table, schema in _TABLES.items():
        if table not in there:
            db.execute(schema)
