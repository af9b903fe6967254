"""The `token_masks` kernel in Numba."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fastpack.kernels.jit import jit


@jit
def mask_tokens(rows, padding, eod, mask_eod, tokens, labels, loss_mask, position_ids):
    """Write the loss mask of some rows, 0 or 1, and their position_ids; replace padding in tokens and labels by 0.

    See `fastpack.kernels.token_masks_np.mask_tokens`.
    """
    if labels.shape != tokens.shape or loss_mask.shape != tokens.shape:
        raise ValueError("outputs must have one shape")
    if position_ids is not None and position_ids.shape != tokens.shape:
        raise ValueError("outputs must have one shape")
    length = tokens.shape[1]
    for row in rows:
        if row < 0 or row >= len(tokens):
            raise ValueError("a row outside the outputs")
        if position_ids is not None:
            opened = 0
            for i in range(length):
                position_ids[row, i] = i - opened
                if tokens[row, i] == eod:
                    opened = i + 1
        for i in range(length):
            token, label = tokens[row, i], labels[row, i]
            loss_mask[row, i] = np.float32(label != padding and not (mask_eod and token == eod))
            tokens[row, i] = 0 if token == padding else token
            labels[row, i] = 0 if label == padding else label


def compile_all(_token_dtypes: Sequence[str], out_dtypes: Sequence[str]) -> None:
    """Compile for these dtypes of outputs."""
    for dtype in out_dtypes:
        grid, loss_mask = np.zeros((1, 1), dtype), np.zeros((1, 1), np.float32)
        for position_ids in (None, grid):
            mask_tokens(np.zeros(1, np.int64), -1, -1, False, grid, grid, loss_mask, position_ids)
