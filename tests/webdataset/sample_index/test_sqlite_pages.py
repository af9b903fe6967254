"""Pages of an SQLite database: numbers, overflow chains and the first page."""

from __future__ import annotations

import sqlite3

import numpy as np
import pytest

from fastpack.kernels.codecs.btree_layout import INDEX_LEAF, TABLE_LEAF, TEXT
from fastpack.webdataset.sample_index import sqlite_pages
from fastpack.webdataset.sample_index.sqlite_pages import PageFile, SchemaRow, Tree


class Memory:
    """A file in memory."""

    def __init__(self) -> None:
        self.data = bytearray()

    def write(self, data: object) -> int:
        self.data += bytes(memoryview(data).cast("B"))  # type: ignore[arg-type]
        return 0

    def patch(self, offset: int, data: bytes) -> None:
        self.data[offset : offset + len(data)] = data

    def page(self, number: int) -> bytes:
        return bytes(self.data[4096 * (number - 1) : 4096 * number])


NONE = np.empty(0, np.int64)
NOTHING = np.empty(0, np.uint8)


def test_the_lock_byte_page_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_pages, "LOCK_BYTE_PAGE", 4)
    file = Memory()
    pages = PageFile(file)
    assert (pages.next_page(), pages.n_appendable()) == (2, 2)
    assert pages.append_overflow(b"a" * 4092 + b"b" * 4092 + b"c") == 2
    assert [file.page(number)[:5] for number in (2, 3, 4, 5)] == [b"\0\0\0\3a", b"\0\0\0\5b", bytes(5), b"\0\0\0\0c"]
    assert (pages.n_pages, pages.next_page()) == (5, 6)
    assert pages.n_appendable() > 1 << 31
    pages = PageFile(Memory())
    rows = np.zeros((3000, 1), np.int64)
    tree = Tree(pages, TABLE_LEAF)
    tree.add(rows, np.arange(3000), [0], NONE, NONE, NOTHING)
    assert tree.finish() == pages.n_pages
    assert pages.n_pages == 9  # 1, the lock-byte page, 6 leaves, the root


def test_the_file_never_ends_with_the_lock_byte_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_pages, "LOCK_BYTE_PAGE", 3)
    pages = PageFile(Memory())
    assert Tree(pages, INDEX_LEAF).finish() == 2
    assert pages.n_pages == 2
    assert Tree(pages, INDEX_LEAF).finish() == 4


def test_a_table_of_any_schema() -> None:
    file = Memory()
    pages = PageFile(file)
    table = Tree(pages, TABLE_LEAF)
    bounds = np.array([0, 1, 4063, 20_000])
    data = np.arange(20_000).astype(np.uint8) % 26 + 97
    table.add(np.array([[5], [6], [7]]), np.arange(3), [0, TEXT], np.array([2, 1, 0]), bounds, data)
    pages.finish([SchemaRow("table", "t", "t", table.finish(), "CREATE TABLE t (a, b)")])
    db = sqlite3.connect(":memory:")
    db.deserialize(bytes(file.data))
    assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    text = data.tobytes().decode()
    assert db.execute("SELECT rowid, a, b FROM t").fetchall() == [
        (1, 5, text[4063:]),
        (2, 6, text[1:4063]),
        (3, 7, text[0]),
    ]
    db.close()


def test_a_schema_beyond_one_page_is_an_error() -> None:
    with pytest.raises(ValueError, match="too large for one page"):
        PageFile(Memory()).finish([SchemaRow("table", "t", "t", 2, "x" * 4000)])
