"""NumPy's legacy shuffle on every backend, compared with numpy.random.RandomState."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastpack import kernels

AROUND_BLOCKS = [1, 2, 3, 511, 512, 513, 623, 624, 625, 1023, 1024, 1025, 4097]


def seeded(seed: int) -> np.ndarray:
    state = np.empty(625, np.uint32)
    kernels.seed_generator(state, seed)
    return state


@settings(max_examples=40)
@given(
    lengths=st.lists(st.one_of(st.integers(0, 70), st.sampled_from(AROUND_BLOCKS)), min_size=1, max_size=4),
    dtype=st.sampled_from(["int32", "int64"]),
    seed=st.integers(0, 2**32 - 1),
)
def test_arrays_are_shuffled_as_by_numpy_and_the_stream_continues(
    backend: str, lengths: list[int], dtype: str, seed: int
) -> None:
    numpy_state, state = np.random.RandomState(seed), seeded(seed)
    for length in lengths:
        expected, found = np.arange(length, dtype=dtype), np.arange(length, dtype=dtype)
        numpy_state.shuffle(expected)
        kernels.legacy_shuffle(state, found)
        assert np.array_equal(found, expected)


@pytest.mark.parametrize("dtype", ["int32", "uint32", "int64"])
def test_a_long_array_is_shuffled_as_by_numpy(backend: str, dtype: str) -> None:
    n = 3000 if backend == "numpy" else 300_000
    expected, found = np.arange(n, dtype=dtype), np.arange(n, dtype=dtype)
    np.random.RandomState(1234).shuffle(expected)
    kernels.legacy_shuffle(seeded(1234), found.view(np.int32) if dtype == "uint32" else found)
    assert np.array_equal(found, expected)


def test_an_array_that_draws_64_bits_is_refused(backend: str, tmp_path: Path) -> None:
    if backend == "numpy":
        pytest.skip("NumPy shuffles it")
    values = np.memmap(tmp_path / "empty", np.int32, "w+", shape=(1 << 32,))  # takes no memory
    with pytest.raises(ValueError, match="from 2\\^32"):
        kernels.legacy_shuffle(seeded(0), values)
