"""Loss masks and positions by special tokens, as Megatron's GPT samples have them: the specification, in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Output = npt.NDArray[Any]


def mask_tokens(
    rows: npt.NDArray[np.int64],
    padding: int,
    eod: int,
    mask_eod: bool,
    tokens: Output,
    labels: Output,
    loss_mask: npt.NDArray[np.float32],
    position_ids: Output | None,
) -> None:
    """Write the loss mask of some rows, 0 or 1, and their position_ids; replace padding in tokens and labels by 0.

    loss_mask: 0 where the label is `padding` and, with mask_eod, where the token is `eod`. position_ids: from 0 in each
    row and after each `eod`; not written if it is None. rows: int64 [k]. tokens, labels, position_ids: int64 or int32
    [n_rows, length], all of one dtype. loss_mask: float32 [n_rows, length]. Raises ValueError for a row outside the
    outputs.
    """
    arrays = (labels, loss_mask) if position_ids is None else (labels, loss_mask, position_ids)
    if any(array.shape != tokens.shape for array in arrays):
        raise ValueError("outputs must have one shape")
    n_rows, length = tokens.shape
    for row in rows.tolist():
        if not 0 <= row < n_rows:
            raise ValueError("a row outside the outputs")
        ends = tokens[row] == eod
        loss_mask[row] = ~((labels[row] == padding) | (ends & mask_eod))
        if position_ids is not None:
            places = np.arange(length)
            opened = np.zeros(length, np.int64)
            opened[1:] = np.maximum.accumulate(np.where(ends, places + 1, 0))[:-1]
            position_ids[row] = places - opened
        tokens[row][tokens[row] == padding] = 0
        labels[row][labels[row] == padding] = 0
