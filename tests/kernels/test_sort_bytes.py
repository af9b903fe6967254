"""The order of texts and rows, on every backend, compared with `sorted`."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastpack import kernels
from fastpack.kernels import sort_bytes_cy


def integers(values: list[int]) -> np.ndarray:
    return np.array(values, np.int64)


def joined(texts: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
    return np.frombuffer(b"".join(texts), np.uint8), integers([0, *np.cumsum([len(text) for text in texts]).tolist()])


def sort(texts: list[bytes]) -> tuple[bool, list[int]]:
    n = len(texts)
    order = np.full(n, -1)
    repeats = kernels.sort_texts(*joined(texts), np.full(5 * n + 2, -1), order)
    return repeats, order.tolist()


few = st.binary(max_size=3).map(lambda text: text.replace(b"\x80", b"\0"))
alike = st.tuples(st.sampled_from([b"", b"abc/", b"abc/12345678", b"abc/12345678\0"]), few).map(b"".join)


@given(texts=st.lists(alike, max_size=120), prefix=st.sampled_from([b"", b"x" * 11]))
def test_texts(backend: str, texts: list[bytes], prefix: bytes) -> None:
    texts = [prefix + text for text in texts]
    assert sort(texts) == (len(set(texts)) < len(texts), sorted(range(len(texts)), key=texts.__getitem__))


@pytest.mark.parametrize("n", [1, 2, 23, 24, 25, 1000])
@pytest.mark.parametrize("shape", ["ascending", "descending", "random", "shards", "shards, the last first"])
def test_many_texts(backend: str, n: int, shape: str) -> None:
    rng = np.random.default_rng(n)
    numbers = np.arange(n)
    if shape == "descending":
        numbers = numbers[::-1]
    elif shape == "random":
        rng.shuffle(numbers)
    elif shape.startswith("shards"):
        numbers = np.concatenate([np.sort(chunk) for chunk in np.array_split(rng.permutation(n), 7)])
        numbers = np.roll(numbers, n // 7) if "first" in shape else numbers
    texts = [b"folder/%06d" % number for number in numbers.tolist()]
    assert sort(texts) == (False, np.argsort(numbers).tolist())
    repeated = texts[n // 2]
    for place in (0, n // 3, n):
        again = [*texts[:place], repeated, *texts[place:]]
        assert sort(again) == (True, sorted(range(n + 1), key=again.__getitem__))


def test_no_texts(backend: str) -> None:
    assert sort([]) == (False, [])
    assert sort([b"", b""]) == (True, [0, 1])


@given(
    groups=st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=60), max_size=6),
    room=st.integers(0, 150),
    first=st.integers(0, 2),
)
def test_rows_are_sorted_within_groups(backend: str, groups: list[list[int]], room: int, first: int) -> None:
    names = [b"txt", b"jpg", b"", b"json", b"txt.gz"]
    rows = [(0, number, 8, name) for number, group in enumerate(groups) for name in group]
    matrix = np.array([(-1, 0, 0, 0)] * first + rows, np.int64).reshape(-1, 4)
    order = np.full(room, -5)
    taken = kernels.sort_within(matrix, first, *joined(names), np.empty(5 * room + 2, np.int64), order)
    expected: list[int] = []
    for number in range(len(groups)):
        group = [first + i for i, row in enumerate(rows) if row[1] == number]
        if len(expected) + len(group) > room:
            break
        expected += sorted(group, key=lambda i: names[matrix[i, 3]])
    assert order.tolist() == expected + [-5] * (room - len(expected))
    assert taken == len(expected)


@given(
    rows=st.lists(st.tuples(st.integers(0, 1), st.integers(-1, 1), st.integers(0, 3)), max_size=9), k=st.integers(1, 3)
)
def test_first_unsorted(backend: str, rows: list[tuple[int, ...]], k: int) -> None:
    for table in (rows, sorted(set(rows))):
        heads = [row[:k] for row in table]
        expected = next((i for i in range(1, len(heads)) if heads[i] <= heads[i - 1]), len(heads))
        assert kernels.first_unsorted(np.array(table, np.int64).reshape(-1, 3), k) == expected


def test_cython_rejects_a_short_work_array() -> None:
    data, bounds = joined([b"b", b"a"])
    rows = np.zeros((2, 3), np.int64)
    with pytest.raises(ValueError, match="3 bounds and 11 integers of work for 2 texts"):
        sort_bytes_cy.sort_texts(data, bounds, np.zeros(11, np.int64), integers([0, 0]))
    with pytest.raises(ValueError, match="3 bounds and 17 integers of work for 3 texts"):
        sort_bytes_cy.sort_texts(data, bounds, np.zeros(17, np.int64), integers([0, 0, 0]))
    with pytest.raises(ValueError, match="11 integers of work for 2 rows from 0 of 2"):
        sort_bytes_cy.sort_within(rows, 0, data, bounds, np.zeros(11, np.int64), integers([0, 0]))
    with pytest.raises(ValueError, match="rows from 3 of 2"):
        sort_bytes_cy.sort_within(rows, 3, data, bounds, np.zeros(12, np.int64), integers([0, 0]))
    with pytest.raises(ValueError, match="4 columns of 3"):
        sort_bytes_cy.first_unsorted(rows, 4)
