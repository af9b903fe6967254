"""Segments by address: every backend compared with NumPy, and NumPy with expected values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastpack import kernels
from fastpack.kernels import segments_np

DTYPES = ("u1", "u2", "u4", "i1", "i2", "i4", "i8")


def addresses_of(tokens: np.ndarray, starts: list[int]) -> np.ndarray:
    return np.array([tokens.ctypes.data + start * tokens.itemsize for start in starts], np.uint64)


def integers(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


@given(
    dtype=st.sampled_from(DTYPES),
    out_dtype=st.sampled_from(["i8", "i4"]),
    wanted=st.sets(st.integers(1, 3)),
    n_segments=st.integers(0, 12),
    top=st.sampled_from([100, 127, 2**31 - 1, 2**31, 2**62]),
    padding=st.sampled_from([0, -1, 2**31 - 1, 2**31]),
    seed=st.integers(0, 2**32 - 1),
)
def test_compiled_backends_equal_numpy(
    backend: str, dtype: str, out_dtype: str, wanted: set[int], n_segments: int, top: int, padding: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    tokens = rng.integers(0, min(top, np.iinfo(dtype).max), 1000, endpoint=True).astype(dtype)
    lengths = rng.choice([0, 1, 2, 7, 130], n_segments).astype(np.int64)
    sizes = lengths + rng.choice([0, 0, 1, 5, 20], n_segments)
    columns = rng.integers(0, 150 - sizes, endpoint=True)
    rows, numbers = rng.integers(0, 3, n_segments), rng.integers(0, 100, n_segments)
    where = addresses_of(tokens, rng.integers(0, 1000 - lengths, endpoint=True).tolist())
    where[rng.random(n_segments) < 0.2] = 0
    expected = [np.full((3, 150), -7, out_dtype) if k in wanted | {0} else None for k in range(4)]
    found = [None if array is None else array.copy() for array in expected]
    place = (where, rows, columns, lengths)
    misfit = segments_np.fill_segments(*place, sizes, numbers, padding, tokens[:0], *expected)
    assert kernels.fill_segments(*place, sizes, numbers, padding, tokens[:0], *found) == misfit
    if not misfit:
        np.testing.assert_equal(found, expected)
    chosen = where != 0
    copies, others = np.full((2, 3, 150), -7, out_dtype)
    place = (where[chosen], rows[chosen], columns[chosen], lengths[chosen], tokens[:0])
    misfit = segments_np.copy_segments(*place, others)
    assert kernels.copy_segments(*place, copies) == misfit
    if not misfit:
        np.testing.assert_array_equal(copies, others)


def test_numpy_returns_expected_values() -> None:
    tokens = np.array([5, 6, 7, 8, 9], np.uint16)
    place = (addresses_of(tokens, [2, 0]), integers(1, 0), integers(1, 0), integers(3, 2))
    out = [np.full((2, 4), -7) for _ in range(4)]
    assert segments_np.fill_segments(*place, integers(3, 2), integers(4, 0), 0, tokens[:0], *out) == 0
    assert out[0].tolist() == [[5, 6, -7, -7], [-7, 7, 8, 9]]
    assert out[1].tolist() == [[6, -100, -7, -7], [-7, 8, 9, -100]]
    assert out[2].tolist() == [[0, 0, -7, -7], [-7, 4, 4, 4]]
    assert out[3].tolist() == [[0, 1, -7, -7], [-7, 0, 1, 2]]
    gap = (np.zeros(1, np.uint64), integers(0), integers(2), integers(2))
    segments_np.fill_segments(*gap, integers(2), integers(1), 3, tokens[:0], *out)
    assert [array[0].tolist() for array in out] == [[5, 6, 3, 3], [6, -100, -100, -100], [0, 0, 1, 1], [0, 1, 0, 1]]
    padded = (addresses_of(tokens, [1]), integers(0), integers(0), integers(2), integers(4), integers(5))
    segments_np.fill_segments(*padded, 3, tokens[:0], *out)
    assert [array[0].tolist() for array in out] == [[6, 7, 3, 3], [7, -100, -100, -100], [5] * 4, [0, 1, 2, 3]]
    copies = np.full((2, 4), -7, np.int32)
    assert segments_np.copy_segments(*place, tokens[:0], copies) == 0
    assert copies.tolist() == [[5, 6, -7, -7], [-7, 7, 8, 9]]


def test_a_token_that_does_not_fit_is_reported(backend: str) -> None:
    tokens = np.array([1, 2**31], np.uint32)
    place = (addresses_of(tokens, [0]), integers(0), integers(0))
    out = np.zeros((1, 2), np.int32)
    assert kernels.copy_segments(*place, integers(1), tokens[:0], out) == 0
    assert kernels.copy_segments(*place, integers(2), tokens[:0], out) == 1
    others = (tokens[:0], out, None, None, None)
    assert kernels.fill_segments(*place, integers(2), integers(2), integers(0), 0, *others) == 1
    assert kernels.fill_segments(*place, integers(1), integers(2), integers(0), 2**31, *others) == 1
    assert kernels.fill_segments(*place, integers(1), integers(1), integers(0), 2**31, *others) == 0


def test_unequal_lengths_and_shapes_are_rejected(backend: str) -> None:
    tokens = np.arange(9, dtype=np.uint16)
    place = (addresses_of(tokens, [0, 1]), integers(0, 0), integers(0, 0), integers(1, 1))
    out = np.zeros((1, 4), np.int64)
    for odd in range(1, 4):
        short = [array[:1] if k == odd else array for k, array in enumerate(place)]
        with pytest.raises(ValueError, match="one length"):
            kernels.copy_segments(*short, tokens[:0], out)
        others = [np.zeros((1, 3), np.int64) if k == odd else None for k in range(1, 4)]
        with pytest.raises(ValueError, match="one shape"):
            kernels.fill_segments(*place, place[3], place[1], 0, tokens[:0], out, *others)
    for sizes, numbers in ((place[3], integers(0)), (integers(1), place[1])):
        with pytest.raises(ValueError, match="one length"):
            kernels.fill_segments(*place, sizes, numbers, 0, tokens[:0], out, None, None, None)


def test_cython_rejects_unsupported_dtypes() -> None:
    from fastpack.kernels import segments_cy

    place = (np.zeros(1, np.uint64), integers(0), integers(0), integers(1))
    with pytest.raises(TypeError, match="float32"):
        segments_cy.copy_segments(*place, np.empty(0, np.float32), np.zeros((1, 2), np.int64))
    with pytest.raises(ValueError, match="all int64 or all int32"):
        segments_cy.copy_segments(*place, np.empty(0, np.uint8), np.zeros((1, 2), np.float64))


def placing(data: Any) -> tuple[list[Any], int]:
    """Return the arguments of `place_segments` and the number of segments; sometimes they contradict each other."""
    n_rows, width, odd = 4, 9, st.sampled_from([-1, 0, 1, 5, 9, 2**40, 2**62, -(2**62)])
    counts = data.draw(st.lists(st.integers(0, 5), max_size=4))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    starts = rng.integers(0, 40, sum(counts) + 1)
    ends = starts + rng.integers(0, 12, len(starts))
    passes = np.zeros((len(counts), 3), np.int64)
    passes[:, 0] = np.cumsum(counts)
    passes[:, 2] = rng.integers(0, 100, len(counts))
    n = data.draw(st.integers(0, 9)) if sum(counts) else 0
    columns = [np.sort(rng.integers(0, n_rows, n)), rng.integers(0, max(1, sum(counts)), n)]
    columns += [np.zeros(n, np.int64), rng.integers(0, 4, n)]
    columns[3] = np.minimum(columns[3], ends[columns[1]] - starts[columns[1]])
    arrays = [*columns, passes, starts, ends]
    for _ in range(data.draw(st.integers(0, 2))):
        array = arrays[data.draw(st.integers(0, 4))].reshape(-1)
        if len(array):
            array[data.draw(st.integers(0, len(array) - 1))] = data.draw(odd)
    return [*arrays, n_rows, width, data.draw(st.sampled_from([1, 1, 3, 4, 9]))], n


@given(data=st.data())
def test_places_equal_those_of_numpy(backend: str, data: Any) -> None:
    arguments, n = placing(data)
    expected, found = np.full((2, 6, n + 4), -7)
    n_placed = segments_np.place_segments(*arguments, expected)
    assert kernels.place_segments(*arguments, found) == n_placed
    if n_placed >= 0:
        np.testing.assert_array_equal(found, expected)


def test_places_by_hand(backend: str) -> None:
    passes = integers(2, 0, 100, 4, -2, 200).reshape(2, 3)  # documents 2 and 3 are 0 and 1 again, in another file
    starts, ends = integers(0, 6), integers(5, 9)
    placed = np.zeros((6, 6), np.int64)
    segments = integers(0, 0, 2), integers(1, 2, 0), integers(1, 0, 2), integers(3, 5, 5)
    assert kernels.place_segments(*segments, passes, starts, ends, 3, 8, 1, placed) == 6
    assert placed.T.tolist() == [
        [107, 0, 0, 2, 2, 0],
        [200, 0, 2, 5, 5, 1],
        [-1, 0, 7, 0, 1, 2],
        [-1, 1, 0, 0, 8, 0],
        [102, 2, 0, 3, 3, 0],
        [-1, 2, 3, 0, 5, 1],
    ]
    assert kernels.place_segments(*segments, passes, starts, ends, 3, 12, 4, placed) == 5
    assert placed[:, :3].T.tolist() == [[107, 0, 0, 2, 4, 0], [200, 0, 4, 5, 8, 1], [-1, 1, 0, 0, 12, 0]]
    assert kernels.place_segments(*segments, passes, starts, ends, 3, 8, 4, placed) < 0
    for multiple in (0, -1, 9):
        with pytest.raises(ValueError, match="multiple 1 to width"):
            kernels.place_segments(*segments, passes, starts, ends, 3, 8, multiple, placed)
    for width, n_rows in ((6, 3), (8, 2), (8, 0)):
        assert kernels.place_segments(*segments, passes, starts, ends, n_rows, width, 1, placed) < 0
    with pytest.raises(ValueError, match="placed must be"):
        kernels.place_segments(*segments, passes, starts, ends, 4, 8, 1, placed)
    with pytest.raises(ValueError, match=r"length|zip"):
        kernels.place_segments(*segments[:3], integers(3), passes, starts, ends, 3, 8, 1, placed)


@given(data=st.data())
def test_addresses_equal_those_of_numpy(backend: str, data: Any) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    lengths_of_runs = rng.integers(0, 9, data.draw(st.integers(0, 6)))
    ends, bases = np.cumsum(lengths_of_runs), np.array([0, 1000, 2**63, 5000], np.uint64)
    runs = [ends, ends - lengths_of_runs, rng.integers(0, 50, len(ends)), rng.integers(0, 4, len(ends))]
    for _ in range(data.draw(st.integers(0, 2))):
        if len(ends):
            value = data.draw(st.sampled_from([-1, 0, 4, 7, 2**40]))
            runs[data.draw(st.integers(0, 3))][data.draw(st.integers(0, len(ends) - 1))] = value
    n = data.draw(st.integers(0, 9))
    first, lengths = rng.integers(-1, 40, n), rng.integers(-1, 4, n)
    expected, found = np.full((2, n), 7, np.uint64)
    located = segments_np.locate_segments(first, lengths, *runs, bases, 2, expected)
    assert kernels.locate_segments(first, lengths, *runs, bases, 2, found) == located
    np.testing.assert_array_equal(found[:located], expected[:located])


def test_arrays_of_different_lengths_are_rejected(backend: str) -> None:
    runs = [integers(9), integers(0), integers(0), integers(0), np.array([1000], np.uint64)]
    addresses, pair = np.zeros(2, np.uint64), integers(1, 1)
    for arguments in ((integers(1), pair, *runs), (pair, pair, integers(9, 9), *runs[1:])):
        with pytest.raises(ValueError, match="one length"):
            kernels.locate_segments(*arguments, 2, addresses)
