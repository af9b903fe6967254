"""Loss masks and positions by special tokens, on every backend."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastpack import kernels


@given(
    rows=st.lists(st.lists(st.integers(-1, 4), min_size=5, max_size=5), min_size=1, max_size=4),
    padding=st.integers(-1, 4),
    eod=st.integers(-1, 4),
    mask_eod=st.booleans(),
    with_positions=st.booleans(),
    dtype=st.sampled_from(["int32", "int64"]),
)
def test_rows_are_masked_token_by_token(
    backend: str, rows: list[list[int]], padding: int, eod: int, mask_eod: bool, with_positions: bool, dtype: str
) -> None:
    tokens = np.array(rows, dtype)
    labels = np.roll(tokens, -1, axis=1)
    loss_mask, positions = np.full(tokens.shape, 7, np.float32), np.full(tokens.shape, 7, dtype)
    found, found_labels = tokens.copy(), labels.copy()
    chosen = np.arange(len(rows))[::2].copy()
    outputs = (found, found_labels, loss_mask, positions if with_positions else None)
    kernels.mask_tokens(chosen, padding, eod, mask_eod, *outputs)
    for row in range(len(rows)):
        if row % 2:
            assert found[row].tolist() == rows[row]
            assert (loss_mask[row] == 7).all()
            continue
        start = 0
        for i, token in enumerate(rows[row]):
            label = int(labels[row, i])
            assert found[row, i] == (0 if token == padding else token)
            assert found_labels[row, i] == (0 if label == padding else label)
            assert loss_mask[row, i] == float(label != padding and not (mask_eod and token == eod))
            assert positions[row, i] == (i - start if with_positions else 7)
            start = i + 1 if token == eod else start


@pytest.mark.parametrize("row", [-1, 2, 2**40])
def test_rows_outside_the_outputs_are_refused(backend: str, row: int) -> None:
    grid, loss_mask = np.zeros((2, 3), np.int64), np.zeros((2, 3), np.float32)
    with pytest.raises(ValueError, match="a row outside the outputs"):
        kernels.mask_tokens(np.array([row]), -1, 0, False, grid, grid.copy(), loss_mask, None)
    with pytest.raises(ValueError, match="one shape"):
        kernels.mask_tokens(np.array([0]), -1, 0, False, grid, grid[:, :2].copy(), loss_mask, None)
