"""Statistics of whole shards on every backend, compared with their definitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastpack import kernels


@given(
    dtype=st.sampled_from(["u1", "u2", "u4", "i1", "i2", "i4", "i8"]),
    n_tokens=st.one_of(st.integers(0, 20), st.sampled_from([511, 512, 513, 2000])),
    eos=st.sampled_from([0, 1, 127, -1, 255, 256, 65536, 2**40]),
    rate=st.sampled_from([0.0, 0.01, 1.0]),
    seed=st.integers(0, 2**32 - 1),
)
def test_scan_tokens(backend: str, dtype: str, n_tokens: int, eos: int, rate: float, seed: int) -> None:
    rng, info = np.random.default_rng(seed), np.iinfo(dtype)
    tokens = rng.integers(info.min // 2, info.max, n_tokens, dtype=np.int64, endpoint=True).astype(dtype)
    if info.min <= eos <= info.max:
        tokens[rng.random(n_tokens) < rate] = eos
    tokens.flags.writeable = False
    values = tokens.tolist()
    assert kernels.scan_tokens(tokens, eos) == (min([0, *values]), max([0, *values]), values.count(eos))


@given(
    dtype=st.sampled_from(["u1", "u2", "u4", "i1", "i2", "i4", "i8"]),
    n_tokens=st.one_of(st.integers(0, 20), st.sampled_from([511, 2000])),
    n_ids=st.sampled_from([0, 1, 100, 255, 256, 65535, 65536, 1 << 20]),
    highest=st.sampled_from([3, 300, 70_000, 2**40]),
    seed=st.integers(0, 2**32 - 1),
)
def test_count_tokens(backend: str, dtype: str, n_tokens: int, n_ids: int, highest: int, seed: int) -> None:
    rng, info = np.random.default_rng(seed), np.iinfo(dtype)
    lowest, highest = max(info.min, -2), min(info.max, highest)
    tokens = rng.integers(lowest, highest, n_tokens, dtype=np.int64, endpoint=True).astype(dtype)
    tokens.flags.writeable = False
    # Guards detect a write outside the table.
    guarded = np.full(n_ids + 2, 7, np.uint32)
    inside = [token for token in tokens.tolist() if 0 <= token < n_ids]
    assert kernels.count_tokens(tokens, guarded[1:-1]) == n_tokens - len(inside)
    expected = np.full(n_ids + 2, 7, np.uint32)
    np.add.at(expected, np.array(inside, np.int64) + 1, 1)
    np.testing.assert_array_equal(guarded, expected)


@given(
    n_bytes=st.one_of(st.integers(0, 20), st.sampled_from([4095, 4096, 4097, 65536, 70000])),
    last=st.integers(0, 70000),
)
def test_used_bytes(backend: str, n_bytes: int, last: int) -> None:
    data = np.zeros(n_bytes, np.uint8)
    expected = 0
    if last < n_bytes:
        data[last] = 128
        data[: last // 2] = 1
        expected = last + 1
    data.flags.writeable = False
    assert kernels.used_bytes(data) == expected


def test_cython_rejects_an_unsupported_dtype() -> None:
    from fastpack.kernels import token_statistics_cy

    for dtype in ("f4", "u8", ">u2"):
        with pytest.raises(TypeError, match="no kernel for tokens of dtype"):
            token_statistics_cy.scan_tokens(np.zeros(3, dtype), 0)
        with pytest.raises(TypeError, match="no kernel for tokens of dtype"):
            token_statistics_cy.count_tokens(np.zeros(3, dtype), np.zeros(3, np.uint32))
