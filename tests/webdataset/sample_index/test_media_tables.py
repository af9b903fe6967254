"""Media metadata in the index: copied, replaced by key, and resumed after a kill."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastpack.errors import FormatError, JobError
from fastpack.webdataset.sample_index import IndexWriter, ShardRecord
from fastpack.webdataset.shard_index import ShardScan

FILTER = ("GLOB", "*.jpg")


def answers(path: Path, query: str) -> list[Any]:
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        return db.execute(query).fetchall()


def scan(n: int) -> ShardScan:
    keys = [b"%05d" % i for i in range(n)]
    offsets, none = np.arange(n + 1) * 512, np.empty(0, np.int64)
    return ShardScan("x.tar", keys, offsets, none, [], none, none, none, n)


def write(path: Path, rows: list[tuple[str, str, str]], *, copy: bool, tables: bool = True) -> None:
    with IndexWriter(path, previous=path if path.exists() else None, sample_tables=tables) as writer:
        if copy:
            writer.copy_media()
        writer.add(0, scan(3000))
        if rows:
            writer.add_media(rows, FILTER)


MEDIA = "SELECT entry_key, metadata_json FROM media_metadata ORDER BY 1"


@pytest.mark.parametrize("tables", [True, False])
def test_media_is_added_and_copied(tmp_path: Path, tables: bool) -> None:
    path = tmp_path / "x"
    write(path, [("a.jpg", "image", "1"), ("b.jpg", "image", "2"), ("a.jpg", "image", "3")], copy=True, tables=tables)
    assert answers(path, MEDIA) == [("a.jpg", "3"), ("b.jpg", "2")]
    ((number, *found, at),) = answers(path, "SELECT * FROM media_filters")
    assert (number, tuple(found)) == (1, FILTER)
    write(path, [("b.jpg", "image", "4"), ("c.jpg", "image", "5")], copy=True, tables=tables)
    assert answers(path, MEDIA) == [("a.jpg", "3"), ("b.jpg", "4"), ("c.jpg", "5")]
    assert answers(path, "SELECT * FROM media_filters") == [(1, *FILTER, at)]
    write(path, [], copy=True, tables=tables)
    assert len(answers(path, MEDIA)) == 3
    write(path, [("d.jpg", "image", "6")], copy=False, tables=tables)
    assert answers(path, MEDIA) == [("d.jpg", "6")]
    write(path, [], copy=False, tables=tables)
    names = answers(path, "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY 1")
    assert names == ([("sample_parts",), ("samples",)] if tables else [])
    assert [file.name for file in tmp_path.iterdir()] == ["x"]


def test_a_filter_without_matches_leaves_empty_tables(tmp_path: Path) -> None:
    with IndexWriter(tmp_path / "x") as writer:
        writer.add_media([], FILTER)
    assert answers(tmp_path / "x", MEDIA) == []
    assert answers(tmp_path / "x", "SELECT strategy, patterns FROM media_filters") == [FILTER]


def test_media_of_a_stopped_run_is_resumed(tmp_path: Path) -> None:
    path = tmp_path / "x"
    write(path, [("old.jpg", "image", "0")], copy=False)
    with pytest.raises(JobError), IndexWriter(path, previous=path, resume=True) as writer:
        writer.copy_media()
        writer.add_media([("a.jpg", "image", "1")], FILTER)
        writer.note(ShardRecord("a.tar", 1, 2, 3, []))
        writer.add_media([("lost.jpg", "image", "2")], FILTER)
        raise JobError("stop")
    assert answers(path, MEDIA) == [("old.jpg", "0")]
    with IndexWriter(path, previous=path, resume=True) as writer:
        assert [shard.name for shard in writer.done] == ["a.tar"]
        writer.add_media([("b.jpg", "image", "3")], FILTER)
    assert answers(path, MEDIA) == [("a.jpg", "1"), ("b.jpg", "3"), ("old.jpg", "0")]
    assert [file.name for file in tmp_path.iterdir()] == ["x"]


def test_copying_from_a_damaged_index(tmp_path: Path) -> None:
    """Nothing is copied from an invalid file; a partial loss of rows is an error and keeps the old index."""
    path, rows = tmp_path / "x", [(f"{i:05d}.jpg", "image", "1" * 99) for i in range(2000)]
    write(path, rows, copy=False)
    n_bytes = path.stat().st_size
    (root,) = answers(path, "SELECT rootpage FROM sqlite_master WHERE name = 'media_metadata'")[0]
    with open(path, "r+b") as file:
        file.seek(4096 * root)
        file.write(b"\xff" * (n_bytes - 4096 * root))
    with pytest.raises(FormatError, match="readable media metadata"):
        write(path, [], copy=True)
    assert path.stat().st_size == n_bytes
    with IndexWriter(path, previous=path) as writer:
        path.write_bytes(b"no database")
        writer.copy_media()
    assert answers(path, "SELECT count(*) FROM samples") == [(0,)]
