"""Reading rows of plans, on every backend, compared with NumPy, with valid and with random contents."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastpack import kernels
from fastpack.kernels import plan_rows_np

CAPACITY, LENGTH_BITS, WIDTH = 16, 4, 2


def columns(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    sums = np.add.reduceat(counts, np.arange(0, len(counts), 64), dtype=np.int64) if len(counts) else counts
    return counts.astype(np.uint8), np.asarray(np.cumsum(sums) - sums, np.int64)


@given(
    n_documents=st.integers(0, 300),
    n_rows=st.integers(0, 300),
    seed=st.integers(0, 2**32),
    damage=st.sampled_from([0, 0, 1, 5]),
    n_segments=st.sampled_from([1, 100, 5000]),
)
def test_every_backend_equals_numpy(
    backend: str, n_documents: int, n_rows: int, seed: int, damage: int, n_segments: int
) -> None:
    rng = np.random.default_rng(seed)
    full, full_sums = columns(rng.integers(0, 3, n_documents))
    sizes, size_sums = columns(rng.integers(1, 4, n_rows))
    values = rng.integers(0, max(1, n_documents), int(sizes.sum())) << LENGTH_BITS | rng.integers(
        1, 6, int(sizes.sum())
    )
    pieces = values.astype("<u2").view(np.uint8)
    for array in (full, full_sums, sizes, size_sums, pieces):
        if damage and len(array) and rng.random() < 0.4:
            array[rng.integers(0, len(array), damage)] = rng.integers(0, 256, damage)
    rows = rng.integers(-1 if damage else 0, max(1, int(full.sum()) + n_rows), 40)
    outs = np.full((2, 4, n_segments), 7, np.int64)
    inputs = (rows, CAPACITY, full, full_sums, sizes, size_sums, pieces, LENGTH_BITS, WIDTH)
    expected = plan_rows_np.read_rows(*inputs, outs[0])
    assert kernels.read_rows(*inputs, outs[1]) == expected
    done = max(expected, 0)
    assert (outs[0, :, :done] == outs[1, :, :done]).all()
    assert damage or expected >= 0 or n_segments < 5000 or not n_documents


def test_wrong_shapes_are_errors(backend: str) -> None:
    data, sums = np.zeros(1, np.uint8), np.zeros(1, np.int64)
    for width, shape in ((2, (3, 5)), (9, (4, 5)), (0, (4, 5))):
        with pytest.raises(ValueError, match=r"out must have four rows|1 to 8 bytes"):
            kernels.read_rows(sums, 8, data, sums, data, sums, data, 3, width, np.zeros(shape, np.int64))
