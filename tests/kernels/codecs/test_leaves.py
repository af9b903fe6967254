"""Table rows decoded from pages written by SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastpack import kernels

Row = tuple[int, str, int, int, int]
PAGE = 4096

numbers = st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(-300, 300))
rows_of_a_table = st.lists(
    st.tuples(numbers, st.one_of(st.sampled_from(["jpg", "txt", ""]), st.text(max_size=70)), numbers, numbers, numbers),
    max_size=400,
)


def database(path: Path, rows: Sequence[Row]) -> npt.NDArray[np.uint8]:
    path.unlink(missing_ok=True)
    db = sqlite3.connect(path)
    db.execute(f"PRAGMA page_size = {PAGE}")
    db.execute("CREATE TABLE t (a INTEGER, name TEXT, b INTEGER, c INTEGER, d INTEGER)")
    db.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?)", rows)
    db.commit()
    db.close()
    return np.fromfile(path, np.uint8)


def leaves(data: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
    """Return the table leaf pages, except the schema's, in the order in which SQLite appended them."""
    return np.flatnonzero(data.reshape(-1, PAGE)[1:, 0] == 13) + 2


def read(data: npt.NDArray[np.uint8], pages: npt.NDArray[np.int64], room: int = 1000) -> npt.NDArray[np.int64] | None:
    rows = np.full((room, 7), -7, np.int64)
    n_rows = kernels.read_leaves(data, pages, 1, rows)
    assert (rows[max(n_rows, 0) :] == -7).all() or n_rows < 0
    return None if n_rows < 0 else rows[:n_rows]


@given(rows=rows_of_a_table)
def test_rows_equal_those_of_sqlite(backend: str, tmp_path: Path, rows: list[Row]) -> None:
    data = database(tmp_path / "x.sqlite", rows)
    found = read(data, leaves(data))
    assert found is not None
    texts = [data[row[1] : row[1] + row[5]].tobytes().decode() for row in found.tolist()]
    assert [(row[0], text, *row[2:5]) for row, text in zip(found.tolist(), texts, strict=True)] == rows
    for number, first in enumerate(found[:, 6].tolist()):
        assert first <= number
        assert texts[first] == texts[number]


def test_first_rows_of_repeated_texts(backend: str, tmp_path: Path) -> None:
    data = database(tmp_path / "x.sqlite", [(k, ("jpg", "json", "txt")[k % 3], k, k, k) for k in range(300)])
    found = read(data, leaves(data))
    assert found is not None
    assert found[:, 6].tolist() == [k % 3 for k in range(300)]


@pytest.mark.parametrize(
    "row",
    [(1, None, 1, 1, 1), (1, b"blob", 1, 1, 1), (None, "a", 1, 1, 1), (1, "a", 0.5, 1, 1)],
    ids=["null text", "blob", "null", "float"],
)
def test_other_value_types_are_rejected(backend: str, tmp_path: Path, row: Row) -> None:
    data = database(tmp_path / "x.sqlite", [(1, "a", 1, 1, 1), row])
    assert read(data, leaves(data)) is None


def test_overflow_records_and_other_page_types_are_rejected(backend: str, tmp_path: Path) -> None:
    data = database(tmp_path / "x.sqlite", [(1, "a" * 4000, 1, 1, 1)])
    assert read(data, leaves(data)) is not None
    data = database(tmp_path / "x.sqlite", [(1, "a" * 5000, 1, 1, 1)])
    assert read(data, leaves(data)) is None
    data = database(tmp_path / "x.sqlite", [(k, "a" * 90, 1, 1, 1) for k in range(200)])
    assert read(data, np.array([2])) is None  # the root is not a leaf
    for page in (0, -1, len(data) // PAGE + 1, 2**62):
        assert read(data, np.array([page])) is None
    assert read(data, leaves(data), room=199) is None
    assert read(data, np.empty(0, np.int64)) is not None
    assert read(np.empty(0, np.uint8), np.array([1])) is None


@given(seed=st.integers(0, 2**32 - 1))
def test_damaged_pages_cause_no_read_outside_the_data(backend: str, tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    data = database(tmp_path / "x.sqlite", [(k, "ab" * (k % 40), k * 7919, -k, 1 << k % 60) for k in range(120)])
    pages = leaves(data)
    for _ in range(3):
        page = int(rng.choice(pages)) - 1
        data[page * PAGE + int(rng.integers(0, PAGE))] = rng.integers(0, 256)
    before = kernels.backend()
    found = read(data, pages)
    kernels.use("numpy")
    expected = read(data, pages)
    kernels.use(before)
    assert (found is None) == (expected is None)
    if found is not None and expected is not None:
        np.testing.assert_array_equal(found, expected)
        assert (found[:, 1] + found[:, 5] <= len(data)).all()
