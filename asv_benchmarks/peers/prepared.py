"""Compare two prepared datasets: every deterministic file byte by byte, every table row by row."""

from __future__ import annotations

import itertools
import sqlite3
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

META = ".nv-meta"
INDEX = "index.sqlite"
UUID = "index.uuid"
OWN = ".fastpack.json"  # sizes and times of the shards, which only fastpack reads
CHANGING = {"created_at_utc", "filter_id"}  # columns that differ between runs


def written(folder: Path) -> dict[str, Path]:
    """Return the files that `prepare` wrote to `folder`, by relative path."""
    found = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): path for path in found if path.suffix == ".idx" or META in path.parts}


def differences(theirs: Path, ours: Path) -> list[str]:
    """Return a sentence for each difference of two prepared folders."""
    left, right = written(theirs), written(ours)
    right.pop(f"{META}/{OWN}", None)
    found = [f"{name}: only in one of them" for name in sorted(left.keys() ^ right.keys())]
    if not left:
        found.append("nothing was written")
    for name in sorted(left.keys() & right.keys()):
        if name.endswith(INDEX):
            found += [f"{name}: {text}" for text in index_differences(left[name], right[name])]
        elif name.endswith(UUID):
            found += [f"{name}: not a uuid" for path in (left[name], right[name]) if not is_uuid(path)]
        elif left[name].read_bytes() != right[name].read_bytes():
            found.append(f"{name}: other bytes")
    return found


def is_uuid(path: Path) -> bool:
    text = path.read_text()
    try:
        return str(uuid.UUID(text)) == text
    except ValueError:
        return False


def index_differences(theirs: Path, ours: Path) -> list[str]:
    """Return the differences of two index.sqlite: of the schemas, or of each table's sorted rows."""
    with connected(theirs) as left, connected(ours) as right:
        schemas = [schema(left), schema(right)]
        if schemas[0] != schemas[1]:
            return [f"schema: {sorted(set(schemas[0]) ^ set(schemas[1]))}"]
        found = []
        for table in (name for kind, name, _ in schemas[0] if kind == "table" and not name.startswith("sqlite_")):
            for number, (a, b) in enumerate(itertools.zip_longest(rows(left, table), rows(right, table))):
                if a != b:
                    found.append(f"{table}, sorted row {number}: {a} there, {b} here")
                    break
        return found


class connected:
    """A context manager for a read-only connection."""

    def __init__(self, path: Path) -> None:
        self.db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)

    def __enter__(self) -> sqlite3.Connection:
        return self.db

    def __exit__(self, *error: object) -> None:
        self.db.close()


def schema(db: sqlite3.Connection) -> list[tuple[str, str, str]]:
    """Return (type, name, SQL without white space) of all tables and indexes."""
    found = db.execute("SELECT type, name, coalesce(sql, '') FROM sqlite_master ORDER BY type, name")
    return [(kind, name, "".join(sql.split())) for kind, name, sql in found]


def rows(db: sqlite3.Connection, table: str) -> Iterator[tuple[Any, ...]]:
    columns = [name for _, name, *_ in db.execute(f"PRAGMA table_info({table})") if name not in CHANGING]
    listed = ", ".join(columns)
    yield from db.execute(f"SELECT {listed} FROM {table} ORDER BY {listed}")
