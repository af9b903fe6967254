"""`index.sqlite`: rows and schema of Energon 7.4, replaced only when complete; older schemas are read."""

from __future__ import annotations

import json
import os
import pickle
import signal
import sqlite3
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastpack.errors import FormatError, JobError
from fastpack.webdataset.sample_index import DuplicateKeys, IndexWriter, SampleIndex, ShardRecord, write_sample_index
from fastpack.webdataset.sample_index import page_writer as nvmeta_pages
from fastpack.webdataset.sample_index import staging as nvmeta_staging

SPLIT = Path(__file__).parents[2] / "golden/energon/split"
TABLES = ("samples", "sample_parts")


@dataclass
class Scan:
    """The columns of a shard scan that the index reads."""

    path: str
    sample_keys: list[bytes]
    sample_offsets: npt.NDArray[np.int64]
    field_samples: npt.NDArray[np.int64]
    field_names: list[bytes]
    field_offsets: npt.NDArray[np.int64]
    field_sizes: npt.NDArray[np.int64]


def scan(keys: list[str | bytes], fields: tuple[str | bytes, ...] = ("jpg", "txt")) -> Scan:
    raw = [key if isinstance(key, bytes) else key.encode() for key in keys]
    names = [field if isinstance(field, bytes) else field.encode() for field in fields]
    n_fields = len(keys) * len(fields)
    return Scan(
        "x.tar",
        raw,
        np.arange(len(keys) + 1) * 4096,
        np.repeat(np.arange(len(keys)), len(fields)),
        names * len(keys),
        np.arange(n_fields) * 1024 + 512,
        np.arange(n_fields),
    )


def rows(path: Path, table: str) -> list[tuple[object, ...]]:
    db = sqlite3.connect(path)
    try:
        return sorted(db.execute(f"SELECT * FROM {table}"))
    finally:
        db.close()


def schema(path: Path) -> list[tuple[str, ...]]:
    db = sqlite3.connect(path)
    found = db.execute("SELECT type, name, tbl_name, sql FROM sqlite_master").fetchall()
    assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert [db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_size", "encoding")] == [4096, "UTF-8"]
    assert [db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("user_version", "application_id")] == [0, 0]
    assert db.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    db.close()
    return sorted((kind, name, table, "".join((sql or "").split())) for kind, name, table, sql in found)


def test_the_schema_matches_energon(tmp_path: Path) -> None:
    write_sample_index(tmp_path / "x", [scan(["a"])])
    energon = [row for row in schema(SPLIT / ".nv-meta/index.sqlite") if row[2] in TABLES]
    assert schema(tmp_path / "x") == energon
    assert os.listdir(tmp_path) == ["x"]


KEYS = st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8), unique=True, max_size=20)


@given(shards=st.lists(KEYS, max_size=3).map(lambda shards: [[f"{n}/{k}" for k in s] for n, s in enumerate(shards)]))
def test_rows(tmp_path: Path, shards: list[list[str]]) -> None:
    path = tmp_path / "x"
    with mock.patch.object(nvmeta_pages, "_BATCH_ROWS", 7):
        write_sample_index(path, (scan(list(keys)) for keys in shards))
    assert rows(path, "samples") == sorted(
        (n, key, i, i * 4096, 4096) for n, keys in enumerate(shards) for i, key in enumerate(keys)
    )
    assert rows(path, "sample_parts") == sorted(
        (n, i, name, (2 * i + k) * 1024 + 512, 2 * i + k)
        for n, keys in enumerate(shards)
        for i in range(len(keys))
        for k, name in enumerate(["jpg", "txt"])
    )
    schema(path)


def test_keys_of_any_order_and_length(tmp_path: Path) -> None:
    keys = ["b", "a", "B", "ä", "a\u0308", "a\0b", "'; DROP TABLE samples", "", "a/b"]
    write_sample_index(tmp_path / "x", [scan(list(keys))])
    index = SampleIndex(tmp_path / "x")
    assert [index.get(key).sample_index for key in keys] == list(range(len(keys)))
    assert len(index) == len(keys)


def test_all_duplicates_are_reported_and_the_old_index_stays(tmp_path: Path) -> None:
    path = tmp_path / "x"
    write_sample_index(path, [scan(["old"])])
    with pytest.raises(DuplicateKeys) as caught:
        write_sample_index(path, [scan(["a", "b", "a"]), scan(["b"])])
    assert caught.value.total == 2
    assert caught.value.keys == [("a", [0]), ("b", [0, 1])]
    assert str(caught.value) == "2 sample keys occur more than once: 'a' in 0; 'b' in 0, 1"
    assert pickle.loads(pickle.dumps(caught.value)).keys == caught.value.keys
    assert rows(path, "samples") == [(0, "old", 0, 0, 4096)]
    assert os.listdir(tmp_path) == ["x"]


def test_copying_from_the_previous_index(tmp_path: Path) -> None:
    write_sample_index(tmp_path / "x", [scan(["a", "b"]), scan(["c"])])
    with IndexWriter(tmp_path / "x", previous=tmp_path / "x") as writer:
        writer.copy(0, 1, 1)
        writer.add(1, scan(["d"]))
        writer.copy(2, 0, 2)
    assert [row[:3] for row in rows(tmp_path / "x", "samples")] == [(0, "c", 0), (1, "d", 0), (2, "a", 0), (2, "b", 1)]
    assert len(rows(tmp_path / "x", "sample_parts")) == 8
    schema(tmp_path / "x")


@pytest.mark.parametrize("damage", ["no SQLite", "a page", "another shard"])
def test_a_damaged_previous_index_is_not_copied(tmp_path: Path, damage: str) -> None:
    """No rows of the shard are copied, so that new ones can be added."""
    path = tmp_path / "x"
    write_sample_index(path, [scan([f"{i}" for i in range(500)])])
    with IndexWriter(path, previous=path) as writer:
        if damage == "no SQLite":
            path.write_bytes(b"somebody else's")
        elif damage == "a page":
            with open(path, "r+b") as file:
                file.seek(path.stat().st_size - 4096 * 12)
                file.write(b"\xff" * 4096 * 12)
        with pytest.raises(FormatError, match=r"expected an index of samples"):
            writer.copy(0, 0, 501)
        writer.add(0, scan(["a"]))
    assert rows(path, "samples") == [(0, "a", 0, 0, 4096)]
    assert len(rows(path, "sample_parts")) == 2
    schema(path)


def test_without_sample_tables(tmp_path: Path) -> None:
    with IndexWriter(tmp_path / "x", sample_tables=False) as writer:
        writer.add(0, scan(["a", "a"]))
    assert schema(tmp_path / "x") == []


KILLED = """
import os, signal, sys
sys.path.insert(0, {tests!r})
from test_sqlite_writer import scan
from fastpack.webdataset.sample_index import IndexWriter, ShardRecord
from fastpack.webdataset.sample_index import sqlite_writer as nvmeta_sqlite
writer = IndexWriter({path!r}, resume=True, purpose={purpose!r})
for number in range(2):
    writer.add(number, scan([f"{{number}}/{{i}}" for i in range(1000)]))
    writer.note(ShardRecord(f"{{number}}.tar", 1, 2, 1000, ["jpg"]))
writer.add(2, scan([f"lost{{i}}" for i in range(50_000)]))
if {late}:
    nvmeta_sqlite.write_media = lambda *arguments: os.kill(os.getpid(), signal.SIGKILL)
    writer.commit()
os.kill(os.getpid(), signal.SIGKILL)
"""


def kill_a_writer(path: Path, purpose: str = "p", late: bool = False) -> None:
    code = KILLED.format(path=str(path), purpose=purpose, tests=str(Path(__file__).parent), late=late)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr


@pytest.mark.parametrize("late", [False, True])
def test_resuming_after_a_killed_writer(tmp_path: Path, late: bool) -> None:
    path = tmp_path / "x"
    write_sample_index(path, [scan(["old"])])
    kill_a_writer(path, late=late)
    assert rows(path, "samples") == [(0, "old", 0, 0, 4096)]
    with IndexWriter(path, resume=True, purpose="p") as writer:
        assert writer.done == [ShardRecord(f"{n}.tar", 1, 2, 1000, ["jpg"]) for n in range(2)]
        writer.add(2, scan(["last"]))
    assert len(rows(path, "samples")) == 2001
    assert len(rows(path, "sample_parts")) == 4002
    assert [row for row in schema(path) if row[0] == "table"] == [
        row for row in schema(SPLIT / ".nv-meta/index.sqlite") if row[0] == "table" and row[2] in TABLES
    ]
    assert os.listdir(tmp_path) == ["x"]


@pytest.mark.parametrize("how", ["purpose", "boot", "torn", "not asked", "start over"])
def test_starting_over(tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x"
    kill_a_writer(path, "q" if how == "purpose" else "p")
    if how == "boot":
        monkeypatch.setattr(nvmeta_staging, "_boot_id", lambda: "another")
    if how == "torn":
        os.truncate(tmp_path / ".x.keys.partial", 5000)
    with IndexWriter(path, resume=how != "not asked", purpose="p") as writer:
        if how == "start over":
            assert writer.done
            writer.start_over()
        assert writer.done == []
        writer.add(0, scan(["a"]))
    assert rows(path, "samples") == [(0, "a", 0, 0, 4096)]
    assert os.listdir(tmp_path) == ["x"]


def test_an_error_keeps_noted_shards_for_the_next_writer(tmp_path: Path) -> None:
    path = tmp_path / "x"
    with pytest.raises(JobError), IndexWriter(path, resume=True) as writer:
        writer.add(0, scan(["a"]))
        writer.note(ShardRecord("a.tar", 1, 2, 1, []))
        raise JobError("stop")
    with pytest.raises(JobError, match="another process"), IndexWriter(path), IndexWriter(path):
        pass
    with IndexWriter(path, resume=True) as writer:
        assert writer.done == []  # the previous writer removed it
    with pytest.raises(JobError), IndexWriter(path) as writer:
        raise JobError("stop")
    assert os.listdir(tmp_path) == ["x"]


def test_reading_the_golden_index() -> None:
    index = SampleIndex(SPLIT / ".nv-meta/index.sqlite")
    expected = json.loads((SPLIT / "expected.json").read_text())
    assert len(index) == len(expected["samples"])
    for tar_file_id, key, number, offset, size in expected["samples"]:
        assert index.get(key) == (tar_file_id, number, offset, size)
        wanted = [tuple(row[2:]) for row in expected["sample_parts"] if row[:2] == [tar_file_id, number]]
        assert index.fields(tar_file_id, number) == sorted(wanted, key=lambda field: field[1])
    assert [key for key, _ in index.samples(1)] == [row[1] for row in expected["samples"] if row[0] == 1]
    assert (index.has_fields, index.has_media) == (True, True)
    again = pickle.loads(pickle.dumps(index))
    assert len(again) == len(index)
    index.close()
    assert len(index) == len(again)


SAMPLES = "tar_file_id INTEGER, sample_key TEXT, sample_index INTEGER, byte_offset INTEGER, byte_size INTEGER"


def test_indexes_of_energon_6(tmp_path: Path) -> None:
    db = sqlite3.connect(tmp_path / "x")
    db.execute(f"CREATE TABLE samples (id INTEGER PRIMARY KEY AUTOINCREMENT, {SAMPLES})")
    db.execute("CREATE INDEX idx_samples_sample_key ON samples(sample_key)")
    db.execute("INSERT INTO samples VALUES (1, 0, 'a', 0, 512, 1024), (2, 1, 'a', 3, 0, 7)")
    db.commit()
    db.close()
    index = SampleIndex(tmp_path / "x")
    assert index.get("a") == (0, 0, 512, 1024)
    assert (index.has_fields, index.has_media) == (False, False)
    with pytest.raises(FormatError, match="no table sample_parts"):
        index.fields(0, 0)
    with pytest.raises(KeyError):
        index.get("b")


def test_other_files_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="Prepare the dataset"):
        SampleIndex(tmp_path / "none").get("a")
    (tmp_path / "x").write_bytes(b"SQLite format 3\0" + b"x" * 5000)
    with pytest.raises(FormatError, match="SQLite's error"):
        SampleIndex(tmp_path / "x").get("a")
