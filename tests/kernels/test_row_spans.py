"""Spans by address: every backend compared with NumPy, and NumPy with expected values."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastpack import kernels
from fastpack.kernels import row_spans_np

DTYPES = ("u1", "u2", "u4", "i1", "i2", "i4", "i8")


def addresses_of(tokens: np.ndarray, starts: list[int]) -> np.ndarray:
    return np.array([tokens.ctypes.data + start * tokens.itemsize for start in starts], np.uint64)


def integers(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


@given(
    dtype=st.sampled_from(DTYPES),
    out_dtype=st.sampled_from(["i8", "i4"]),
    wanted=st.sampled_from([{1}, {1, 2, 3}]),
    n_spans=st.integers(0, 9),
    eos=st.sampled_from([None, 0, 3, 256, 2**40]),
    top=st.sampled_from([4, 127, 2**31 - 1, 2**31, 2**62]),
    seed=st.integers(0, 2**32 - 1),
)
def test_compiled_backends_equal_numpy(
    backend: str, dtype: str, out_dtype: str, wanted: set[int], n_spans: int, eos: int | None, top: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    tokens = rng.integers(0, min(top, np.iinfo(dtype).max), 1000, endpoint=True).astype(dtype)
    lengths = rng.choice([0, 1, 2, 7, 128, 150], n_spans).astype(np.int64)
    columns = rng.integers(0, 160 - lengths, endpoint=True)
    rows, numbers, firsts = rng.integers(0, 3, n_spans), *rng.integers(0, 100, (2, n_spans))
    where = addresses_of(tokens, rng.integers(0, 999 - lengths, endpoint=True).tolist())
    where[rng.random(n_spans) < 0.2] = 0
    expected = [np.full((3, 160), -7, out_dtype) if k in wanted | {0} else None for k in range(4)]
    found = [None if array is None else array.copy() for array in expected]
    spans = (where, rows, columns, lengths, numbers, firsts, tokens[:0], eos)
    misfit = row_spans_np.fill_spans(*spans, *expected)
    assert kernels.fill_spans(*spans, *found) == misfit
    if not misfit:
        np.testing.assert_equal(found, expected)

    for n_tokens, n_ends in ((300, 2000), (1, 4), (130, 5)):
        windows = (addresses_of(tokens, [0, 600, 7]), integers(2, 0, 1), n_tokens, tokens[:0], eos or 0)
        ends, others = np.full((2, n_ends), -7, np.int64)
        assert kernels.document_ends(*windows, ends) == row_spans_np.document_ends(*windows, others)
        np.testing.assert_array_equal(ends, others)


def test_numpy_returns_expected_values() -> None:
    tokens, rows = np.array([5, 0, 6, 7, 0, 8, 9], np.uint16), integers(1, 0)
    ends = np.zeros(9, np.int64)
    assert row_spans_np.document_ends(addresses_of(tokens, [0, 1]), rows, 4, tokens[:0], 0, ends) == 4
    assert ends.tolist() == [6, 8, 1, 4, 0, 0, 0, 0, 0]
    out = [np.full((2, 4), -7) for _ in range(4)]
    where = addresses_of(tokens, [1, 3, 0])
    where[2] = 0
    spans = (where, integers(0, 1, 1), integers(1, 0, 2), integers(3, 2, 1), integers(4, 5, 6), integers(0, 10, 20))
    assert row_spans_np.fill_spans(*spans, tokens[:0], 0, *out) == 0
    assert out[0].tolist() == [[-7, 0, 6, 7], [7, 0, 0, -7]]
    assert out[1].tolist() == [[-7, -100, 7, 0], [0, -100, -100, -7]]
    assert out[2].tolist() == [[-7, 4, 4, 4], [5, 5, 6, -7]]
    assert out[3].tolist() == [[-7, 0, 1, 2], [10, 11, 20, -7]]


def test_arrays_that_do_not_fit_are_rejected(backend: str) -> None:
    tokens = np.arange(20, dtype=np.uint16)
    out = np.full((2, 8), -7)
    where, one = addresses_of(tokens, [0]), integers(1)
    for row, column, length in ((2, 0, 1), (-1, 0, 1), (0, -1, 1), (0, 8, 1), (0, 1, 2**63 - 1), (0, 4, -(2**63))):
        spans = (where, integers(row), integers(column), integers(length), one, one, tokens[:0], None)
        with pytest.raises(ValueError, match="outside the outputs"):
            kernels.fill_spans(*spans, out, out.copy(), None, None)
    with pytest.raises(ValueError, match="one length"):
        kernels.fill_spans(where, one[:0], one, one, one, one, tokens[:0], None, out, None, None, None)
    with pytest.raises(ValueError, match="one shape"):
        kernels.fill_spans(where, *[one * 0] * 5, tokens[:0], None, out, out[:1].copy(), None, None)
    with pytest.raises(ValueError, match="one length"):
        kernels.document_ends(where, one[:0], 4, tokens[:0], 0, one)
    assert (out == -7).all()
