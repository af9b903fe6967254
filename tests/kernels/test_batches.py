"""Batches by address: every backend compared with NumPy, and NumPy with expected values."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastpack import kernels
from fastpack.kernels import batches_np

DTYPES = ("u1", "u2", "u4", "i1", "i2", "i4", "i8")


def addresses_of(tokens: np.ndarray, starts: list[int]) -> np.ndarray:
    return np.array([tokens.ctypes.data + start * tokens.itemsize for start in starts], np.uint64)


@given(
    dtype=st.sampled_from(DTYPES),
    out_dtype=st.sampled_from(["i8", "i4"]),
    length=st.one_of(st.integers(0, 20), st.sampled_from([127, 128, 129, 300])),
    rows=st.permutations(range(5)).map(lambda order: order[:3]),
    eos=st.sampled_from([0, 3, -1, 200, 256, 2**31, 2**40]),
    rate=st.sampled_from([0.0, 0.01, 0.5, 1.0]),
    top=st.sampled_from([100, 127, 2**31 - 1, 2**31, 2**62]),
    seed=st.integers(0, 2**32 - 1),
)
def test_compiled_backends_equal_numpy(
    backend: str, dtype: str, out_dtype: str, length: int, rows: list[int], eos: int, rate: float, top: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    info = np.iinfo(dtype)
    tokens = rng.integers(0, min(top, info.max), 1000, endpoint=True).astype(dtype)
    if info.min <= eos <= info.max:
        tokens[rng.random(1000) < rate] = eos
    where = addresses_of(tokens, rng.integers(0, 1000 - length, 3).tolist())
    rows_array, like = np.array(rows, np.int64), tokens[:0]
    for kernel, n_outputs in (("fill_packed", 3), ("fill_documents", 4), ("fill_plain", 2), ("fill_tokens", 1)):
        extra = (eos,) if kernel in ("fill_packed", "fill_documents") else ()
        expected = [np.full((5, length), -7, out_dtype) for _ in range(n_outputs)]
        found = [array.copy() for array in expected]
        misfit = getattr(batches_np, kernel)(where, rows_array, like, *extra, *expected)
        assert getattr(kernels, kernel)(where, rows_array, like, *extra, *found) == misfit
        if not misfit:
            for one, other in zip(found, expected, strict=True):
                np.testing.assert_array_equal(one, other)


def test_numpy_returns_expected_values() -> None:
    tokens = np.array([5, 0, 0, 6, 7, 0, 8], np.uint16)
    out = [np.full((2, 5), -7) for _ in range(4)]
    batches_np.fill_documents(addresses_of(tokens, [0, 1]), np.array([1, 0]), tokens[:0], 0, *out)
    assert out[0].tolist() == [[0, 0, 6, 7, 0], [5, 0, 0, 6, 7]]
    assert out[1].tolist() == [[-100, -100, 7, 0, -100], [0, -100, -100, 7, 0]]
    assert out[2].tolist() == [[0, 1, 2, 2, 2], [0, 0, 1, 2, 2]]
    assert out[3].tolist() == [[0, 0, 0, 1, 2], [0, 1, 0, 0, 1]]


def test_other_rows_are_not_modified(backend: str) -> None:
    tokens = np.arange(50, dtype=np.uint32)
    out = np.full((4, 6), -7)
    kernels.fill_tokens(addresses_of(tokens, [9]), np.array([2]), tokens[:0], out)
    assert out.tolist() == [[-7] * 6, [-7] * 6, [9, 10, 11, 12, 13, 14], [-7] * 6]


def test_cython_rejects_an_unsupported_dtype() -> None:
    from fastpack.kernels import batches_cy

    out = np.zeros((1, 2), np.int64)
    with pytest.raises(TypeError, match="float32"):
        batches_cy.fill_tokens(np.zeros(1, np.uint64), np.zeros(1, np.int64), np.empty(0, np.float32), out)
