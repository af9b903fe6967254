"""The newline kernels compared with `bytes.split`, on every backend and at every window boundary."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fastpack import kernels
from fastpack.kernels import lines_cy

Rows = list[tuple[int, int]]

# A small alphabet gives dense newlines; the data is long enough for every SIMD loop and its tail.
texts = st.lists(st.sampled_from([b"\n", b"a", b"\r", b"\x0b", b"\x8a", b"x" * 60, b"y" * 700]), max_size=60).map(
    b"".join
)


def split_rows(data: bytes) -> Rows:
    rows, start = [], 0
    for line in data.split(b"\n")[:-1]:
        rows.append((start, len(line)))
        start += len(line) + 1
    return rows


def index_in_windows(data: bytes, window: int, capacity: int) -> tuple[Rows, int]:
    """Return the rows of `data`, indexed in windows of `window` bytes, `capacity` rows, and the last line's start."""
    array = np.frombuffer(data, np.uint8)
    out = np.full((capacity, 2), -1, np.int64)
    rows: Rows = []
    line_start = 0
    for first in range(0, len(data), window):
        at, end = first, min(first + window, len(data))
        while at < end:
            n_rows, consumed, line_start = kernels.index_lines(array[at:end], at, line_start, out)
            assert n_rows == capacity or consumed == end - at
            rows += [(offset, length) for offset, length in out[:n_rows].tolist()]
            at += consumed
    return rows, line_start


@given(data=texts, window=st.integers(1, 2000), capacity=st.integers(1, 40))
@example(data=b"", window=1, capacity=1)
@example(data=b"\n", window=1, capacity=1)
@example(data=b"\n" * 9000, window=8191, capacity=4096)
@example(data=b"\n" * 5000 + b"z" * 5000 + b"\n", window=4096, capacity=7)
def test_rows_equal_those_of_split(backend: str, data: bytes, window: int, capacity: int) -> None:
    rows, line_start = index_in_windows(data, window, capacity)
    assert rows == split_rows(data)
    assert line_start == data.rfind(b"\n") + 1


def test_every_window_boundary(backend: str) -> None:
    data = b"ab\n\n" + b"c" * 130 + b"\n" + b"d\n" * 70 + b"tail"
    for window in range(1, len(data) + 1):
        assert index_in_windows(data, window, 50)[0] == split_rows(data)


def test_every_length_and_position(backend: str) -> None:
    """One newline at each position of buffers with lengths around the SIMD widths."""
    out = np.empty((4, 2), np.int64)
    for n_bytes in (1, 31, 32, 33, 63, 64, 65, 255, 256, 257, 300):
        for at in range(n_bytes):
            data = np.full(n_bytes, ord("a"), np.uint8)
            data[at] = 10
            assert kernels.count_newlines(data) == 1
            assert kernels.index_lines(data, 100, 90, out) == (1, n_bytes, 100 + at + 1)
            assert out[0].tolist() == [90, 10 + at]


def test_a_full_output_stops_after_its_newline(backend: str) -> None:
    data = np.frombuffer(b"a\nbb\nccc\n", np.uint8)
    out = np.empty((2, 2), np.int64)
    assert kernels.index_lines(data, 0, 0, out) == (2, 5, 5)
    assert out.tolist() == [[0, 1], [2, 2]]
    assert kernels.index_lines(data, 0, 0, out[:0]) == (0, 0, 0)


def test_positions_beyond_32_bits(backend: str) -> None:
    data = np.frombuffer(b"a\nbb\n" + b"c" * 300 + b"\n", np.uint8)
    out = np.empty((9, 2), np.int64)
    base = 2**40 + 3
    assert kernels.index_lines(data, base, base - 2**33, out) == (3, len(data), base + len(data))
    assert out[:3].tolist() == [[base - 2**33, 2**33 + 1], [base + 2, 2], [base + 5, 300]]


@given(data=texts)
def test_count_newlines(backend: str, data: bytes) -> None:
    assert kernels.count_newlines(np.frombuffer(data, np.uint8)) == data.count(b"\n")


def test_count_many_newlines(backend: str) -> None:
    """More newlines in one vector lane than a narrow counter can count."""
    assert kernels.count_newlines(np.full(100_000, 10, np.uint8)) == 100_000


@pytest.mark.parametrize("writeable", [True, False])
def test_writeable_and_read_only_buffers(backend: str, writeable: bool) -> None:
    data = np.frombuffer(b"a\n", np.uint8).copy()
    data.flags.writeable = writeable
    assert kernels.index_lines(data, 0, 0, np.empty((1, 2), np.int64)) == (1, 2, 2)


@given(data=texts, capacity=st.integers(1, 5000))
def test_portable_c_equals_simd(data: bytes, capacity: int) -> None:
    array = np.frombuffer(data * 20, np.uint8)
    found = []
    try:
        for enabled in (True, False):
            lines_cy.use_simd(enabled)
            out = np.zeros((capacity, 2), np.int64)
            n_rows, consumed, line_start = lines_cy.index_lines(array, 5, 2, out)
            found.append((n_rows, consumed, line_start, out[:n_rows].tolist(), lines_cy.count_newlines(array)))
    finally:
        lines_cy.use_simd(True)
    assert found[0] == found[1]


def test_cython_rejects_an_output_of_another_shape() -> None:
    with pytest.raises(ValueError, match="two columns"):
        lines_cy.index_lines(np.zeros(3, np.uint8), 0, 0, np.zeros((3, 3), np.int64))
