"""Cells and pages of SQLite b-trees: the specification, in Python.

A row is a row of an int64 matrix, and possibly a text; a cell is its encoding on a b-tree page. Cells are concatenated
in a buffer until there are enough for a page. The cell of a page in its parent goes to another buffer.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fastpack.kernels.codecs.btree_layout import (
    CELL_ROOM,
    INTERIOR_HEADER_BYTES,
    LEAF_HEADER_BYTES,
    MAX_LOCAL,
    PAGE_BYTES,
    TABLE_INTERIOR,
    TABLE_LEAF,
    TEXT,
    record,
    varint,
)

OUTSIDE = "row {} of the order, or its text, lies outside the arrays"


def encode_cells(
    kind: int,
    rows: npt.NDArray[np.int64],
    order: npt.NDArray[np.int64],
    columns: npt.NDArray[np.int64],
    texts: npt.NDArray[np.int64],
    bounds: npt.NDArray[np.int64],
    data: npt.NDArray[np.uint8],
    state: npt.NDArray[np.int64],
    cells: npt.NDArray[np.uint8],
    ends: npt.NDArray[np.int64],
) -> int:
    """Encode rows as cells of leaf pages; return how many were taken.

    kind: TABLE_LEAF, whose cells start with the rowid (row number + 1), or INDEX_LEAF, where the rowid is the last
    field. order: the numbers of the rows. columns: the other fields, each a column of `rows`, or TEXT (at most once).
    The text of row order[i] is data[bounds[t]:bounds[t + 1]] with t = texts[i]. ends[i]: end of cell i in `cells`.
    state: int64 [3], updated: bytes in `cells`, number of cells, and whether the next row is too large for a page (it
    is then not taken). Rows are taken while `cells` has CELL_ROOM bytes left and `ends` has an entry left. Raises
    ValueError for a row or a text outside the arrays.
    """
    end, n_cells, _ = state.tolist()
    n_taken, too_large = 0, False
    while n_taken < len(order) and end + CELL_ROOM <= len(cells) and n_cells < len(ends):
        row = int(order[n_taken])
        if not 0 <= row < len(rows):
            raise ValueError(OUTSIDE.format(n_taken))
        values = [_text(data, bounds, texts, n_taken) if k == TEXT else int(rows[row, k]) for k in columns.tolist()]
        payload = record(values if kind == TABLE_LEAF else [*values, row + 1])
        too_large = len(payload) > MAX_LOCAL[kind]
        if too_large:
            break
        cell = varint(len(payload)) + (varint(row + 1) if kind == TABLE_LEAF else b"") + payload
        cells[end : end + len(cell)] = np.frombuffer(cell, np.uint8)
        end += len(cell)
        ends[n_cells] = end
        n_cells += 1
        n_taken += 1
    state[:] = end, n_cells, too_large
    return n_taken


def _text(
    data: npt.NDArray[np.uint8], bounds: npt.NDArray[np.int64], texts: npt.NDArray[np.int64], place: int
) -> bytes:
    number = int(texts[place])
    if not (0 <= number < len(bounds) - 1 and 0 <= bounds[number] <= bounds[number + 1] <= len(data)):
        raise ValueError(OUTSIDE.format(place))
    return data[bounds[number] : bounds[number + 1]].tobytes()


def pack_cells(
    kind: int,
    cells: npt.NDArray[np.uint8],
    ends: npt.NDArray[np.int64],
    is_last: bool,
    right: int,
    first_page: int,
    first_rowid: int,
    state: npt.NDArray[np.int64],
    pages: npt.NDArray[np.uint8],
    parents: npt.NDArray[np.uint8],
    parent_ends: npt.NDArray[np.int64],
) -> int:
    """Pack cells into b-tree pages, as many as fit into each; return the number of pages.

    kind: of the pages, which are numbered from `first_page` on. Cells of interior pages start with the number of their
    child. is_last: no more cells follow, so the last page is written as well; `right` is then its rightmost child.
    Otherwise a page is written only if the page after it is sure to have a cell. parents, parent_ends [one per page]:
    for each page except the last of all, its cell in the parent. It contains the cell that divides the page from the
    next one (which is then on neither) or, for leaves of a table, the last rowid. first_rowid: of the first cell.
    `parents` needs MAX_PARENT_BYTES per page. state: int64 [2], set to the number of cells taken and the bytes in
    `parents`. Packing stops when `pages` is full or no cells are left.
    """
    is_interior, divides = kind <= TABLE_INTERIOR, kind != TABLE_LEAF
    header_bytes = INTERIOR_HEADER_BYTES if is_interior else LEAF_HEADER_BYTES
    n, first, n_pages, end = len(ends), 0, 0, 0
    while PAGE_BYTES * (n_pages + 1) <= len(pages):
        begin = int(ends[first - 1]) if first else 0
        stop = first
        while stop < n and header_bytes + 2 * (stop + 1 - first) + int(ends[stop]) - begin <= PAGE_BYTES:
            stop += 1
        if stop + divides >= n:  # the cells end with this page, or the next page would be empty
            if not is_last:
                break
            if stop < n:
                stop -= divides
        end_there = int(ends[stop - 1]) if stop else 0
        if stop < first or not 0 <= begin <= end_there <= (int(ends[stop]) if stop < n else end_there) <= len(cells):
            raise ValueError(f"the cells of page {n_pages} do not fit their ends or the page")
        child, divider = right, b""
        if stop < n:
            if kind == TABLE_LEAF:
                divider = varint(first_rowid + stop - 1)
            else:
                divider = cells[int(ends[stop - 1]) : int(ends[stop])].tobytes()
                if is_interior:
                    child, divider = int.from_bytes(divider[:4], "big"), divider[4:]
            parent = (first_page + n_pages).to_bytes(4, "big") + divider
            parents[end : end + len(parent)] = np.frombuffer(parent, np.uint8)
            end += len(parent)
            parent_ends[n_pages] = end
        content = cells[begin:end_there].tobytes()
        starts = [begin, *ends[first : stop - 1].tolist()][: stop - first]
        page = _page(kind, content, [start - begin for start in starts], child if is_interior else None)
        pages[PAGE_BYTES * n_pages : PAGE_BYTES * (n_pages + 1)] = np.frombuffer(page, np.uint8)
        n_pages += 1
        if stop >= n:
            first = n
            break
        first = stop + divides
    state[:] = first, end
    return n_pages


def _page(kind: int, content: bytes, starts: list[int], right: int | None) -> bytes:
    """Return a page: header, cell pointers, and the cells at its end."""
    top = PAGE_BYTES - len(content)
    header = bytes([kind, 0, 0]) + len(starts).to_bytes(2, "big") + top.to_bytes(2, "big") + b"\0"
    if right is not None:
        header += right.to_bytes(4, "big")
    pointers = b"".join((top + start).to_bytes(2, "big") for start in starts)
    return (header + pointers).ljust(top, b"\0") + content
