"""The page writer gives the same rows as SQLite, and SQLite can modify the file."""

from __future__ import annotations

import contextlib
import itertools
import random
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastpack.io import AtomicFile
from fastpack.webdataset.sample_index import page_writer as nvmeta_pages
from fastpack.webdataset.sample_index.page_writer import DuplicateKeys, IndexRows, write_index_pages

Sample: TypeAlias = tuple[int, bytes, int, int, int]
Field: TypeAlias = tuple[int, int, bytes, int, int]

QUERIES = {  # query -> expected plan; each uses a single index
    "sqlite_autoindex_samples_1": (
        "SELECT CAST(sample_key AS BLOB), rowid FROM samples INDEXED BY sqlite_autoindex_samples_1 ORDER BY sample_key",
        "SCAN samples USING COVERING INDEX sqlite_autoindex_samples_1",
    ),
    "idx_samples_by_tar_and_idx": (
        "SELECT tar_file_id, sample_index, rowid FROM samples INDEXED BY idx_samples_by_tar_and_idx "
        "ORDER BY tar_file_id, sample_index",
        "SCAN samples USING COVERING INDEX idx_samples_by_tar_and_idx",
    ),
    "idx_sample_parts_seq": (
        "SELECT tar_file_id, sample_index, content_byte_offset, rowid FROM sample_parts "
        "INDEXED BY idx_sample_parts_seq ORDER BY tar_file_id, sample_index, content_byte_offset",
        "SCAN sample_parts USING COVERING INDEX idx_sample_parts_seq",
    ),
    "idx_sample_parts_full": (
        "SELECT tar_file_id, sample_index, CAST(part_name AS BLOB), content_byte_offset, content_byte_size, rowid "
        "FROM sample_parts INDEXED BY idx_sample_parts_full "
        "ORDER BY tar_file_id, sample_index, part_name, content_byte_offset, content_byte_size",
        "SCAN sample_parts USING COVERING INDEX idx_sample_parts_full",
    ),
}
SEARCHES = {
    "SELECT * FROM samples WHERE sample_key = ?": "sqlite_autoindex_samples_1 (sample_key=?)",
    "SELECT * FROM samples WHERE tar_file_id = ? AND sample_index = ?": (
        "idx_samples_by_tar_and_idx (tar_file_id=? AND sample_index=?)"
    ),
    "SELECT * FROM sample_parts WHERE tar_file_id = ? AND sample_index = ? ORDER BY content_byte_offset": (
        "idx_sample_parts_seq (tar_file_id=? AND sample_index=?)"
    ),
    "SELECT content_byte_offset FROM sample_parts WHERE tar_file_id = ? AND sample_index = ? AND part_name = ?": (
        "idx_sample_parts_full (tar_file_id=? AND sample_index=? AND part_name=?)"
    ),
}
ROWS = {
    "samples": "SELECT rowid, tar_file_id, CAST(sample_key AS BLOB), sample_index, byte_offset, byte_size, "
    "typeof(sample_key) FROM samples ORDER BY rowid",
    "sample_parts": "SELECT rowid, tar_file_id, sample_index, CAST(part_name AS BLOB), content_byte_offset, "
    "content_byte_size, typeof(part_name) FROM sample_parts ORDER BY rowid",
}


def joined(texts: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
    bounds = np.zeros(len(texts) + 1, np.int64)
    np.cumsum([len(text) for text in texts], out=bounds[1:])
    return np.frombuffer(b"".join(texts), np.uint8), bounds


def columns(samples: Sequence[Sample], fields: Sequence[Field]) -> IndexRows:
    names = sorted({field[2] for field in fields}, reverse=True)  # the numbers of names are not sorted
    numbers = {name: number for number, name in enumerate(names)}
    sample_rows = np.array([(tar, index, *place) for tar, _, index, *place in samples], np.int64).reshape(-1, 4)
    field_rows = np.array([(tar, i, *place, numbers[name]) for tar, i, name, *place in fields], np.int64).reshape(-1, 5)
    return IndexRows(sample_rows, *joined([key for _, key, *_ in samples]), field_rows, *joined(names))


def write(path: Path, samples: Sequence[Sample], fields: Sequence[Field]) -> Path:
    with AtomicFile(path) as file:
        write_index_pages(file, columns(samples, fields))
    return path


def write_by_sqlite(path: Path, samples: Sequence[Sample], fields: Sequence[Field]) -> Path:
    path.unlink(missing_ok=True)
    with connected(path) as db:
        for sql in (nvmeta_pages.SAMPLES_SQL, nvmeta_pages.PARTS_SQL, nvmeta_pages.BY_TAR_SQL):
            db.execute(sql)
        for sql in (nvmeta_pages.PARTS_SEQ_SQL, nvmeta_pages.PARTS_FULL_SQL):
            db.execute(sql)
        db.executemany("INSERT INTO samples VALUES (?, ?, ?, ?, ?)", [(t, k.decode(), *n) for t, k, *n in samples])
        db.executemany(
            "INSERT INTO sample_parts VALUES (?, ?, ?, ?, ?)", [(t, i, k.decode(), *n) for t, i, k, *n in fields]
        )
        db.commit()
    return path


@contextlib.contextmanager
def connected(path: Path) -> Iterator[sqlite3.Connection]:
    db = sqlite3.connect(path)
    try:
        yield db
    finally:
        db.close()


def is_sound(db: sqlite3.Connection) -> bool:
    return [db.execute(f"PRAGMA {check}").fetchall() for check in ("integrity_check", "quick_check")] == [[("ok",)]] * 2


def assert_same(ours: Path, theirs: Path) -> None:
    with connected(ours) as db, connected(theirs) as other:
        assert is_sound(db)
        schema = "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY name"
        assert db.execute(schema).fetchall() == other.execute(schema).fetchall()
        for query in (*ROWS.values(), *(query for query, _ in QUERIES.values())):
            assert db.execute(query).fetchall() == other.execute(query).fetchall()
        for query, plan in QUERIES.values():
            assert [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {query}")] == [plan]
        for query, plan in SEARCHES.items():
            found = [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {query}", [None] * query.count("?"))]
            assert len(found) == 1
            assert found[0].endswith(plan)
        for name in ("page_size", "encoding", "user_version", "application_id", "freelist_count", "auto_vacuum"):
            assert db.execute(f"PRAGMA {name}").fetchone() == other.execute(f"PRAGMA {name}").fetchone()
        assert db.execute("PRAGMA page_count").fetchone()[0] * 4096 == ours.stat().st_size


def dataset(keys: Sequence[Sequence[bytes]], names: Sequence[bytes]) -> tuple[list[Sample], list[Field]]:
    """Shards with these keys; each sample has some of these fields."""
    samples: list[Sample] = []
    fields: list[Field] = []
    for shard, its_keys in enumerate(keys):
        place = 0
        for index, key in enumerate(its_keys):
            start = place
            for name in names[: 1 + index % max(len(names), 1)]:
                fields.append((shard, index, name, place + 512, index))
                place += 512 * (1 + index % 700)
            samples.append((shard, key, index, start, place - start))
    return samples, fields


KEY = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    st.sampled_from(["a\0b", "a\0", "\0", "", "é", "e\u0301", "日本/" * 90]),
    st.tuples(st.sampled_from([480, 485, 990, 995, 1000, 4030, 4050, 4100, 5090, 9000]), st.integers(0, 12)).map(
        lambda size: "k" * sum(size)
    ),
).map(str.encode)
NUMBER = st.one_of(st.integers(-(1 << 63), (1 << 63) - 1), st.integers(0, 5), st.integers(0, 1 << 40))


PLACE = st.tuples(NUMBER, NUMBER)


@given(
    samples=st.dictionaries(PLACE, st.tuples(KEY, NUMBER, NUMBER), max_size=40),
    fields=st.dictionaries(st.tuples(NUMBER, NUMBER, NUMBER), st.tuples(KEY, NUMBER), max_size=40),
)
@settings(max_examples=60)
def test_any_rows(
    tmp_path: Path,
    samples: dict[tuple[int, int], tuple[bytes, int, int]],
    fields: dict[tuple[int, int, int], tuple[bytes, int]],
) -> None:
    unique = {row[0]: (place, row) for place, row in samples.items()}
    wanted = (
        [(tar, key, index, *numbers) for (tar, index), (key, *numbers) in sorted(unique.values())],
        [(tar, index, name, offset, size) for (tar, index, offset), (name, size) in sorted(fields.items())],
    )
    assert_same(write(tmp_path / "x", *wanted), write_by_sqlite(tmp_path / "y", *wanted))


@pytest.mark.parametrize(("n_shards", "n_samples"), [(0, 0), (1, 1), (3, 100), (2, 1000)])
def test_trees_of_one_to_three_levels(backend: str, tmp_path: Path, n_shards: int, n_samples: int) -> None:
    rng = random.Random(7)
    keys = [[b"%d/%0*d" % (shard, rng.choice([3, 9]), i) for i in range(n_samples)] for shard in range(n_shards)]
    for its_keys in keys:
        rng.shuffle(its_keys)
    rows = dataset(keys, [b"txt", b"jpg", b"", b"seg.png"])
    assert_same(write(tmp_path / "x", *rows), write_by_sqlite(tmp_path / "y", *rows))


@pytest.mark.parametrize("length", [1, 13, 62, 400, 480, 990, 1500])
def test_every_fill_level_of_the_last_pages(tmp_path: Path, length: int) -> None:
    """Long keys give deep trees with few samples, so that every fill level of the last pages occurs."""
    keys = [b"%0*d" % (length, i) if length > 1 else chr(0x100 + i).encode() for i in range(700)]
    for n in [*range(36), *range(600, 640)] if length < 100 else range(90):
        rows = dataset([keys[:n]], [])
        with connected(write(tmp_path / "x", *rows)) as db:
            assert is_sound(db)
            assert [key for key, _ in db.execute(QUERIES["sqlite_autoindex_samples_1"][0])] == sorted(keys[:n])


def test_rows_are_written_in_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small chunks of rows and pages, and a sample with more fields than rows per chunk."""
    monkeypatch.setattr(nvmeta_pages, "_BATCH_ROWS", 7)
    keys = [[b"%d/%d" % (shard, i * 7919 % 500) for i in range(500)] for shard in range(2)]
    samples, fields = dataset(keys, [b"b", b"a"])
    fields += [(2, 0, b"%d" % (i * 37 % 100), i, 5) for i in range(100)]
    assert_same(write(tmp_path / "x", samples, fields), write_by_sqlite(tmp_path / "y", samples, fields))


def test_fields_with_equal_names_keep_their_order(tmp_path: Path) -> None:
    fields = [(0, 0, name, offset, 9 - offset) for offset, name in enumerate([b"b", b"a", b"b", b"a", b"", b"b"])]
    assert_same(write(tmp_path / "x", [], fields), write_by_sqlite(tmp_path / "y", [], fields))


def test_sqlite_can_modify_the_file(tmp_path: Path) -> None:
    samples, fields = dataset([[b"%05d" % i for i in range(0, 4000, 2)]], [b"jpg", b"txt"])
    path = write(tmp_path / "x", samples, fields)
    with connected(path) as db:
        db.execute("CREATE TABLE media_metadata (entry_key TEXT PRIMARY KEY, metadata_json TEXT NOT NULL)")
        db.executemany("INSERT INTO media_metadata VALUES (?, '{}')", [(f"{i}.jpg",) for i in range(3000)])
        db.executemany("INSERT INTO samples VALUES (1, ?, ?, 0, 0)", [(f"{i:05d}", i) for i in range(1, 4000, 2)])
        db.execute("DELETE FROM sample_parts WHERE sample_index % 3 = 0")
        db.commit()
        assert is_sound(db)
        with pytest.raises(sqlite3.IntegrityError, match=r"UNIQUE constraint failed: samples\.sample_key"):
            db.execute("INSERT INTO samples VALUES (1, '00002', 9, 0, 0)")
        db.rollback()
        assert db.execute("SELECT count(*) FROM samples").fetchone() == (4000,)
        db.execute("DROP TABLE samples")
        db.execute("VACUUM")
        assert is_sound(db)


def test_all_repeated_keys_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [[b"b", b"a", b"b"], [b"c", b"x"], *([b"c"] for _ in range(6)), [b"once"]]
    samples, fields = dataset(keys, [b"jpg"])
    with pytest.raises(DuplicateKeys, match="2 sample keys occur more than once") as caught:
        write(tmp_path / "x", samples, fields)
    assert caught.value.total == 2
    assert caught.value.keys == [("b", [0]), ("c", [1, 2, 3, 4, 5])]
    monkeypatch.setattr(nvmeta_pages, "_MAX_LISTED", 1)
    with pytest.raises(DuplicateKeys) as caught:
        write(tmp_path / "x", samples, fields)
    assert (caught.value.total, caught.value.keys) == (2, [("b", [0])])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("samples", "fields", "message"),
    [
        ([(0, b"a", 1, 0, 0), (0, b"b", 0, 0, 0)], [], r"row 1, \[0, 0, 0, 0\], does not follow \[0, 1, 0, 0\]"),
        ([(0, b"a", 0, 0, 0), (0, b"b", 0, 7, 0)], [], r"row 1, \[0, 0, 7, 0\], does not follow \[0, 0, 0, 0\]"),
        ([], [(1, 0, b"a", 0, 0), (0, 5, b"a", 0, 0)], r"row 1, \[0, 5, 0, 0, 0\], does not follow"),
        ([], [(0, 0, b"a", 8, 0), (0, 0, b"b", 7, 0)], r"row 1, \[0, 0, 7, 0, 0\], does not follow"),
    ],
)
def test_unsorted_rows_are_rejected(tmp_path: Path, samples: list[Sample], fields: list[Field], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        write(tmp_path / "x", samples, fields)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
def test_a_file_larger_than_1_gib_skips_the_lock_byte_page(tmp_path: Path) -> None:
    """1.1 GiB: the page with byte 2^30 belongs to no b-tree."""
    n, length = 1_150_000, 440
    digits = np.char.mod(b"%08d", np.arange(n))
    keys = np.full((n, length), ord("k"), np.uint8)
    keys[:, -8:] = digits.view(np.uint8).reshape(n, 8)
    samples = np.zeros((n, 4), np.int64)
    samples[:, 1] = np.arange(n)
    nothing, none = np.empty(0, np.uint8), np.zeros(1, np.int64)
    rows = IndexRows(samples, keys.reshape(-1), np.arange(n + 1) * length, np.empty((0, 5), np.int64), nothing, none)
    with AtomicFile(tmp_path / "x") as file:
        write_index_pages(file, rows)
    assert (tmp_path / "x").stat().st_size > (1 << 30) + (1 << 25)
    with open(tmp_path / "x", "rb") as raw:
        raw.seek(1 << 30)
        assert raw.read(4096) == bytes(4096)
        assert raw.read(4096) != bytes(4096)
    with connected(tmp_path / "x") as db:
        assert is_sound(db)
        for i in itertools.chain(range(0, n, 99_991), [n - 1]):
            query = "SELECT sample_index FROM samples WHERE sample_key = ?"
            assert db.execute(query, (keys[i].tobytes().decode(),)).fetchall() == [(i,)]
        db.execute("CREATE TABLE more (x)")
        db.commit()
        assert db.execute("PRAGMA quick_check").fetchall() == [("ok",)]
