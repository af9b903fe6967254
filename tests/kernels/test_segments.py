"""Segments by address: every backend compared with NumPy, and NumPy with expected values."""

from __future__ import annotations

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
    columns = rng.integers(0, 150 - lengths, endpoint=True)
    rows, numbers = rng.integers(0, 3, n_segments), rng.integers(0, 100, n_segments)
    where = addresses_of(tokens, rng.integers(0, 1000 - lengths, endpoint=True).tolist())
    where[rng.random(n_segments) < 0.2] = 0
    expected = [np.full((3, 150), -7, out_dtype) if k in wanted | {0} else None for k in range(4)]
    found = [None if array is None else array.copy() for array in expected]
    place = (where, rows, columns, lengths)
    misfit = segments_np.fill_segments(*place, numbers, padding, tokens[:0], *expected)
    assert kernels.fill_segments(*place, numbers, padding, tokens[:0], *found) == misfit
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
    assert segments_np.fill_segments(*place, integers(4, 0), 0, tokens[:0], *out) == 0
    assert out[0].tolist() == [[5, 6, -7, -7], [-7, 7, 8, 9]]
    assert out[1].tolist() == [[6, -100, -7, -7], [-7, 8, 9, -100]]
    assert out[2].tolist() == [[0, 0, -7, -7], [-7, 4, 4, 4]]
    assert out[3].tolist() == [[0, 1, -7, -7], [-7, 0, 1, 2]]
    gap = (np.zeros(1, np.uint64), integers(0), integers(2), integers(2))
    segments_np.fill_segments(*gap, integers(1), 3, tokens[:0], *out)
    assert [array[0].tolist() for array in out] == [[5, 6, 3, 3], [6, -100, -100, -100], [0, 0, 1, 1], [0, 1, 0, 1]]
    copies = np.full((2, 4), -7, np.int32)
    assert segments_np.copy_segments(*place, tokens[:0], copies) == 0
    assert copies.tolist() == [[5, 6, -7, -7], [-7, 7, 8, 9]]


def test_a_token_that_does_not_fit_is_reported(backend: str) -> None:
    tokens = np.array([1, 2**31], np.uint32)
    place = (addresses_of(tokens, [0]), integers(0), integers(0))
    out = np.zeros((1, 2), np.int32)
    assert kernels.copy_segments(*place, integers(1), tokens[:0], out) == 0
    assert kernels.copy_segments(*place, integers(2), tokens[:0], out) == 1
    assert kernels.fill_segments(*place, integers(2), integers(0), 0, tokens[:0], out, None, None, None) == 1


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
            kernels.fill_segments(*place, place[1], 0, tokens[:0], out, *others)
    with pytest.raises(ValueError, match="one length"):
        kernels.fill_segments(*place, integers(0), 0, tokens[:0], out, None, None, None)


def test_cython_rejects_unsupported_dtypes() -> None:
    from fastpack.kernels import segments_cy

    place = (np.zeros(1, np.uint64), integers(0), integers(0), integers(1))
    with pytest.raises(TypeError, match="float32"):
        segments_cy.copy_segments(*place, np.empty(0, np.float32), np.zeros((1, 2), np.int64))
    with pytest.raises(ValueError, match="all int64 or all int32"):
        segments_cy.copy_segments(*place, np.empty(0, np.uint8), np.zeros((1, 2), np.float64))
