"""B-tree cells and pages on every backend, compared with records built by hand and with the specification."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastpack import kernels
from fastpack.kernels.codecs import btree_cy, btree_np
from fastpack.kernels.codecs.btree_layout import (
    CELL_ROOM,
    INDEX_INTERIOR,
    INDEX_LEAF,
    MAX_LOCAL,
    PAGE_BYTES,
    TABLE_INTERIOR,
    TABLE_LEAF,
    TEXT,
    record,
    varint,
)

EDGES = [sign * (1 << bits) + off for bits in range(64) for sign in (1, -1) for off in (-1, 0, 1)]
int64s = st.one_of(
    st.sampled_from([n for n in EDGES if -(1 << 63) <= n < 1 << 63]), st.integers(-(1 << 63), (1 << 63) - 1)
)
texts = st.one_of(st.binary(max_size=70), st.sampled_from([b"", b"a" * 57, b"a" * 58, b"a" * 900, b"a" * 8186]))


def integers(values: list[int]) -> np.ndarray:
    return np.array(values, np.int64)


def joined(texts: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
    bounds = integers([0, *np.cumsum([len(text) for text in texts]).tolist()])
    return bounds, np.frombuffer(b"".join(texts), np.uint8)


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (0, "00"),
        (127, "7f"),
        (128, "8100"),
        (16383, "ff7f"),
        (16384, "818000"),
        ((1 << 56) - 1, "ffffffffffffff7f"),
        (1 << 56, "80c0808080808080" + "00"),
        (-1, "ff" * 9),
    ],
)
def test_varint(number: int, expected: str) -> None:
    assert varint(number).hex() == expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([None, 0, 1], "04000809"),
        ([2, -1, 127, -128, 128], "06" + "0101010102" + "02ff7f800080"),
        ([1 << 15, -(1 << 23), 1 << 31], "04" + "030305" + "008000800000" + "000080000000"),
        ([1 << 39, -(1 << 47), 1 << 47], "04" + "050506" + "008000000000" + "800000000000" + "0000800000000000"),
        ([b"", b"ab", -(1 << 63)], "04" + "0d1106" + "6162" + "8000000000000000"),
    ],
)
def test_record(values: list[int | bytes | None], expected: str) -> None:
    assert record(values).hex() == expected


def test_a_two_byte_header_length_is_rejected() -> None:
    with pytest.raises(ValueError, match="a header of 128 bytes"):
        record([0] * 127)


@given(
    rows=st.lists(st.tuples(int64s, int64s, texts), min_size=1, max_size=30),
    columns=st.lists(st.sampled_from([0, 1, TEXT]), max_size=7),
    kind=st.sampled_from([TABLE_LEAF, INDEX_LEAF]),
    seed=st.integers(0, 99),
)
def test_cells(backend: str, rows: list[tuple[int, int, bytes]], columns: list[int], kind: int, seed: int) -> None:
    """Encode rows in any order: each cell equals its record, and encoding stops at a cell that is too large."""
    if columns.count(TEXT) > 1:
        columns = [k for k in columns if k != TEXT]
    rng = np.random.default_rng(seed)
    matrix = np.array([row[:2] for row in rows], np.int64)
    bounds, data = joined([text for _, _, text in rows])
    order, text_numbers = rng.integers(0, len(rows), (2, 20))
    cells, ends, state = np.zeros(40 * CELL_ROOM, np.uint8), np.zeros(30, np.int64), integers([3, 2, 9])
    ends[1], done = 3, 0
    for number, text in zip(order.tolist(), text_numbers.tolist(), strict=True):
        values = [rows[text][2] if k == TEXT else rows[number][k] for k in columns]
        payload = record(values if kind == TABLE_LEAF else [*values, number + 1])
        if len(payload) > MAX_LOCAL[kind]:
            break
        done += 1
    taken = kernels.encode_cells(kind, matrix, order, integers(columns), text_numbers, bounds, data, state, cells, ends)
    assert taken == done
    assert state.tolist() == [ends[1 + taken], 2 + taken, taken < 20]
    for i in range(taken):
        number = int(order[i])
        values = [rows[text_numbers[i]][2] if k == TEXT else rows[number][k] for k in columns]
        payload = record(values if kind == TABLE_LEAF else [*values, number + 1])
        expected = varint(len(payload)) + (varint(number + 1) if kind == TABLE_LEAF else b"") + payload
        assert cells[ends[1 + i] : ends[2 + i]].tobytes() == expected


def test_encoding_stops_when_the_buffer_is_full(backend: str) -> None:
    rows, none = np.zeros((9, 1), np.int64), integers([])
    state, cells, ends = integers([0, 0, 0]), np.zeros(CELL_ROOM + 7, np.uint8), np.zeros(5, np.int64)
    call = (TABLE_LEAF, rows, np.arange(9), integers([0]), none, none, np.empty(0, np.uint8), state, cells)
    assert kernels.encode_cells(*call, ends) == 2  # 4 bytes each: the third finds CELL_ROOM - 1
    assert state.tolist() == [8, 2, 0]
    assert kernels.encode_cells(*call, ends) == 0
    state[:2] = 0
    assert kernels.encode_cells(*call, ends[:1]) == 1
    assert kernels.encode_cells(*call, ends[:1]) == 0


def pack_pages(implementation: object, kind: int, sizes: list[int], is_last: bool, n_pages: int) -> tuple[object, ...]:
    rng = np.random.default_rng(1)
    ends = integers(np.cumsum(sizes).tolist())
    cells = rng.integers(0, 256, sum(sizes), dtype=np.uint8)
    pages, parents = np.full(PAGE_BYTES * n_pages + 5, 7, np.uint8), np.zeros(1040 * n_pages, np.uint8)
    parent_ends, state = np.zeros(n_pages, np.int64), np.zeros(2, np.int64)
    n_packed = implementation.pack_cells(kind, cells, ends, is_last, 77, 1000, 128, state, pages, parents, parent_ends)  # type: ignore[attr-defined]
    n_parents = n_packed - (n_packed > 0 and state[0] == len(sizes))
    parents[state[1] :] = 0
    return (
        n_packed,
        state.tolist(),
        pages[: PAGE_BYTES * n_packed].tobytes(),
        parents.tobytes(),
        parent_ends[:n_parents].tolist(),
    )


@given(
    kind=st.sampled_from([INDEX_INTERIOR, TABLE_INTERIOR, INDEX_LEAF, TABLE_LEAF]),
    sizes=st.lists(st.one_of(st.sampled_from([4, 1012, 1019]), st.integers(5, 1019)), max_size=40),
    is_last=st.booleans(),
    n_pages=st.integers(0, 12),
)
def test_implementations_write_equal_pages(kind: int, sizes: list[int], is_last: bool, n_pages: int) -> None:
    found = pack_pages(btree_cy, kind, sizes, is_last, n_pages)
    assert found == pack_pages(btree_np, kind, sizes, is_last, n_pages)
    n_packed, (taken, _), pages, _, _ = found
    counts = [struct.unpack_from(">H", pages, PAGE_BYTES * i + 3)[0] for i in range(n_packed)]  # type: ignore[arg-type,call-overload]
    assert all(counts) or not sizes
    divides = kind != TABLE_LEAF
    assert taken == sum(counts) + divides * (n_packed - (taken == len(sizes) and n_packed > 0))  # type: ignore[operator]
    if not is_last and n_packed < n_pages:  # type: ignore[operator]
        assert sum(sizes[taken:]) + 2 * len(sizes[taken:]) <= PAGE_BYTES + 1021  # at most one more page


@pytest.mark.parametrize("n_left", range(5))
def test_every_page_has_cells(backend: str, n_left: int) -> None:
    """After a full index page comes a divider, and then at least one more cell."""
    per_page = (PAGE_BYTES - 8) // 6
    for is_last in (False, True):
        n_packed, (taken, _), *_ = pack_pages(kernels, INDEX_LEAF, [4] * (per_page + n_left), is_last, 3)
        if not is_last:
            assert (n_packed, taken) == ((0, 0) if n_left < 2 else (1, per_page + 1))
        else:
            assert (n_packed, taken) == (1 if n_left == 0 else 2, per_page + n_left)


def test_the_bytes_of_a_page(backend: str) -> None:
    cells, ends = np.frombuffer(b"abcdEFGHIjklm", np.uint8), integers([4, 9, 13])
    pages, parents, state = np.ones(PAGE_BYTES, np.uint8), np.zeros(1040, np.uint8), np.zeros(2, np.int64)
    call = (cells, ends, True, 0x01020304, 5, 1, state, pages, parents, np.zeros(1, np.int64))
    assert kernels.pack_cells(TABLE_INTERIOR, *call) == 1
    head = bytes.fromhex("05 0000 0003 0ff3 00 01020304") + struct.pack(">3H", 4083, 4087, 4092)
    assert pages.tobytes() == head.ljust(PAGE_BYTES - 13, b"\0") + b"abcdEFGHIjklm"
    assert kernels.pack_cells(TABLE_LEAF, cells, ends[:0], *call[2:]) == 1
    assert pages.tobytes() == bytes.fromhex("0d 0000 0000 1000 00").ljust(PAGE_BYTES, b"\0")
    assert state.tolist() == [0, 0]


def test_cython_rejects_invalid_arguments() -> None:
    none, nothing, state = integers([]), np.empty(0, np.uint8), np.zeros(3, np.int64)
    rows, order = np.zeros((2, 2), np.int64), integers([0, 1])
    cells, ends = np.zeros(CELL_ROOM, np.uint8), np.zeros(2, np.int64)
    for columns, message in (([2], "column 2 of rows that have 2"), ([TEXT], "0 texts of 2"), ([0] * 8, "8 columns")):
        with pytest.raises(ValueError, match=message):
            btree_cy.encode_cells(TABLE_LEAF, rows, order, integers(columns), none, none, nothing, state, cells, ends)
    with pytest.raises(ValueError, match="1 ends and 1040 bytes for 2 pages' parents"):
        pages, parents = np.zeros(2 * PAGE_BYTES, np.uint8), np.zeros(1040, np.uint8)
        btree_cy.pack_cells(TABLE_LEAF, cells, ends, True, 0, 1, 1, state, pages, parents, np.zeros(1, np.int64))
