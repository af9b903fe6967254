"""Write SQLite database files page by page from sorted rows.

All pages have 4096 bytes. The b-trees follow each other; in each, leaves precede interior pages. Page 1 (the header and
the schema) is written last, when the roots of all trees are known. The terms are those of
https://www.sqlite.org/fileformat2.html.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from fastpack import kernels
from fastpack.io import Bytes
from fastpack.kernels.codecs.btree_layout import (
    INDEX_INTERIOR,
    MAX_LOCAL,
    MAX_PARENT_BYTES,
    MIN_LOCAL,
    PAGE_BYTES,
    TABLE_INTERIOR,
    TABLE_LEAF,
    TEXT,
    record,
    varint,
)

LOCK_BYTE_PAGE = (1 << 30) // PAGE_BYTES + 1  # holds the byte at 1 GiB that SQLite locks, and no data
_BATCH_PAGES = 128  # 512 KiB; larger batches are not faster
_MAX_PAGES = (1 << 32) - 2
_CELL_BYTES = PAGE_BYTES * (_BATCH_PAGES + 4)
_HEADER_BYTES = 100
_MAGIC = b"SQLite format 3\0"
_SCHEMA_FORMAT = 4  # since 2006: 0 and 1 are stored in the header of a record
_UTF8 = 1
_VERSION = 3_040_000  # of an SQLite release that writes the same format


class Writer(Protocol):
    """A file to write pages to, such as `AtomicFile`."""

    def write(self, data: Bytes, /) -> int: ...
    def patch(self, offset: int, data: bytes, /) -> None: ...


class SchemaRow(NamedTuple):
    """A row of `sqlite_master`."""

    type: str
    name: str
    table: str
    root: int
    sql: str | None


class PageFile:
    """A database file: pages are appended, and `finish` writes the first one.

    n_pages: pages so far, including page 1 and the lock-byte page.
    """

    def __init__(self, file: Writer) -> None:
        self._file = file
        self._file.write(bytes(PAGE_BYTES))
        self.n_pages = 1

    def next_page(self) -> int:
        """Return the number of the next page to append."""
        return self.n_pages + 1 + (self.n_pages + 1 == LOCK_BYTE_PAGE)

    def n_appendable(self) -> int:
        """Return how many pages can be appended at once with consecutive numbers."""
        first = self.next_page()
        return LOCK_BYTE_PAGE - first if first < LOCK_BYTE_PAGE else _MAX_PAGES - first

    def append(self, pages: Bytes, n_pages: int) -> None:
        """Append at most `n_appendable()` pages; the first has the number `next_page()`."""
        if self.next_page() > self.n_pages + 1:
            self._file.write(bytes(PAGE_BYTES))
            self.n_pages += 1
        self._file.write(pages)
        self.n_pages += n_pages

    def append_overflow(self, content: bytes) -> int:
        """Write the overflow of a cell to a chain of overflow pages; return the number of the first."""
        step = PAGE_BYTES - 4
        first = self.next_page()
        for start in range(0, len(content), step):
            number = self.next_page()
            following = number + 1 + (number + 1 == LOCK_BYTE_PAGE) if start + step < len(content) else 0
            self.append((following.to_bytes(4, "big") + content[start : start + step]).ljust(PAGE_BYTES, b"\0"), 1)
        return first

    def finish(self, schema: Sequence[SchemaRow]) -> None:
        """Write page 1: the header, and `sqlite_master` with these rows. ValueError if they do not fit."""
        cells = []
        for rowid, row in enumerate(schema, 1):
            payload = record([value.encode() if isinstance(value, str) else value for value in row])
            cells.append(varint(len(payload)) + varint(rowid) + payload)
        content = b"".join(cells)
        top = PAGE_BYTES - len(content)
        if _HEADER_BYTES + 8 + 2 * len(cells) > top:
            raise ValueError(f"a schema of {len(content)} bytes, which is too large for one page")
        ends = np.cumsum([len(cell) for cell in cells])
        head = self._header() + struct.pack(">BHHHB", TABLE_LEAF, 0, len(cells), top, 0)
        pointers = b"".join(struct.pack(">H", top + end - len(cell)) for end, cell in zip(ends, cells, strict=True))
        self._file.patch(0, (head + pointers).ljust(top, b"\0") + content)

    def _header(self) -> bytes:
        changes, schema_cookie = 1, 1
        return struct.pack(
            ">16sHBBBBBBIIIIIIIIIIII20xII",
            _MAGIC, PAGE_BYTES, 1, 1, 0, 64, 32, 32, changes, self.n_pages, 0, 0, schema_cookie, _SCHEMA_FORMAT,
            0, 0, _UTF8, 0, 0, 0, changes, _VERSION,
        )  # fmt: skip


class Tree:
    """A b-tree to which rows are added in order: a table (TABLE_LEAF) by rowid from 1, or an index (INDEX_LEAF)."""

    def __init__(self, file: PageFile, kind: int) -> None:
        self._file, self._kind = file, kind
        self._leaves = _Level(file, kind)

    def add(
        self,
        rows: npt.NDArray[np.int64],
        order: npt.NDArray[np.int64],
        columns: Sequence[int],
        texts: npt.NDArray[np.int64],
        bounds: npt.NDArray[np.int64],
        data: npt.NDArray[np.uint8],
    ) -> None:
        """Add the rows `order` of the matrix `rows`; the rowid is the row number plus 1.

        columns: the column of `rows` for each field of a record, or TEXT; an index appends the rowid. The text of row
        order[i] is data[bounds[t]:bounds[t + 1]] with t = texts[i].
        """
        picks = np.array(columns, np.int64)
        leaves = self._leaves
        while len(order):
            n = kernels.encode_cells(
                self._kind, rows, order, picks, texts, bounds, data, leaves.state, leaves.cells, leaves.ends
            )
            order, texts = order[n:], texts[n:]
            if leaves.state[2]:
                row = int(order[0])
                text = data[bounds[texts[0]] : bounds[texts[0] + 1]].tobytes()
                self._add_large(row + 1, [text if k == TEXT else int(rows[row, k]) for k in columns])
                order, texts = order[1:], texts[1:]
            elif len(order):
                leaves.flush()

    def finish(self) -> int:
        """Write the remaining pages; return the number of the root page."""
        return self._leaves.finish()

    def _add_large(self, rowid: int, values: list[int | bytes]) -> None:
        """Add a row that needs overflow pages."""
        is_table = self._kind == TABLE_LEAF
        payload = record(values if is_table else [*values, rowid])
        n_local = MIN_LOCAL + (len(payload) - MIN_LOCAL) % (PAGE_BYTES - 4)
        if n_local > MAX_LOCAL[self._kind]:
            n_local = MIN_LOCAL
        first = self._file.append_overflow(payload[n_local:])
        head = varint(len(payload)) + (varint(rowid) if is_table else b"")
        cell = head + payload[:n_local] + first.to_bytes(4, "big")
        self._leaves.add(np.frombuffer(cell, np.uint8), np.array([len(cell)]))


class _Level:
    """One level of a b-tree: cells are added in order, and full pages are written.

    cells, ends, state: cells that are not on a page yet, as `encode_cells` appends them.
    """

    def __init__(self, file: PageFile, kind: int) -> None:
        self.cells = np.empty(_CELL_BYTES, np.uint8)
        self.ends = np.empty(_CELL_BYTES // 4, np.int64)  # no cell has fewer than 4 bytes
        self.state = np.zeros(3, np.int64)
        self._file, self._kind = file, kind
        self._first_rowid = 1
        self._above: _Level | None = None
        self._pages = np.empty(PAGE_BYTES * _BATCH_PAGES, np.uint8)
        self._parents = np.empty(MAX_PARENT_BYTES * _BATCH_PAGES, np.uint8)
        self._parent_ends = np.empty(_BATCH_PAGES, np.int64)

    def add(self, cells: npt.NDArray[np.uint8], ends: npt.NDArray[np.int64]) -> None:
        """Add encoded cells for at most `_BATCH_PAGES` pages."""
        if self.state[0] + len(cells) > len(self.cells) or self.state[1] + len(ends) > len(self.ends):
            self.flush()
        n_bytes, n_cells = self.state[:2].tolist()
        self.cells[n_bytes : n_bytes + len(cells)] = cells
        self.ends[n_cells : n_cells + len(ends)] = ends + n_bytes
        self.state[:2] = n_bytes + len(cells), n_cells + len(ends)

    def flush(self) -> None:
        """Write the full pages."""
        while self._pack(is_last=False, right=0):
            pass

    def finish(self, right: int = 0) -> int:
        """Write the last pages of this level (`right`: the last child) and all levels above; return the root page."""
        self._pack(is_last=True, right=right)
        while self.state[1]:
            self._pack(is_last=True, right=right)
        last = self._file.n_pages
        return last if self._above is None else self._above.finish(last)

    def _pack(self, is_last: bool, right: int) -> int:
        """Write pages, and pass their parent cells to the level above; return the number of pages."""
        n_bytes, n_cells = self.state[:2].tolist()
        pages = self._pages[: PAGE_BYTES * min(_BATCH_PAGES, self._file.n_appendable())]
        taken = np.zeros(2, np.int64)
        n_pages = kernels.pack_cells(
            self._kind, self.cells[:n_bytes], self.ends[:n_cells], is_last, right, self._file.next_page(),
            self._first_rowid, taken, pages, self._parents, self._parent_ends,
        )  # fmt: skip
        if not n_pages:
            return 0
        self._file.append(pages[: PAGE_BYTES * n_pages], n_pages)
        n_taken, n_parent_bytes = taken.tolist()
        self._remove(n_taken)
        n_parents = n_pages - (is_last and not self.state[1])
        if n_parents:
            if self._above is None:
                is_table = self._kind in (TABLE_LEAF, TABLE_INTERIOR)
                self._above = _Level(self._file, TABLE_INTERIOR if is_table else INDEX_INTERIOR)
            self._above.add(self._parents[:n_parent_bytes], self._parent_ends[:n_parents])
        return n_pages

    def _remove(self, n_taken: int) -> None:
        """Remove the first `n_taken` cells."""
        n_bytes, n_cells = self.state[:2].tolist()
        start = int(self.ends[n_taken - 1]) if n_taken else 0
        self.cells[: n_bytes - start] = self.cells[start:n_bytes].copy()
        self.ends[: n_cells - n_taken] = self.ends[n_taken:n_cells] - start
        self.state[:2] = n_bytes - start, n_cells - n_taken
        self._first_rowid += n_taken
