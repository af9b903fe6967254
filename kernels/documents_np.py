"""Document boundaries from EOS tokens: the specification of the `documents` kernels, in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def doc_ids(tokens: npt.NDArray[Any], eos: int, out: npt.NDArray[np.int64]) -> None:
    """Write the document number of each token: the number of EOS tokens before it.

    An EOS token belongs to the document that it ends. tokens: integers [n]. out: int64 [n].
    """
    out[:1] = 0
    np.cumsum(tokens[:-1] == eos, out=out[1:])


def mask_labels(tokens: npt.NDArray[Any], eos: int, out: npt.NDArray[np.int64]) -> None:
    """Write the labels of a window: the next token, or -100 after an EOS token.

    tokens: integers [n + 1]. out: int64 [n].
    """
    out[:] = tokens[1:]
    out[tokens[:-1] == eos] = -100


def cu_seqlens(position_ids: npt.NDArray[Any], out: npt.NDArray[np.int32]) -> tuple[int, int]:
    """Write the cumulative document lengths of a batch, all rows concatenated, with a leading 0.

    position_ids: [n_rows, length], int64 or int32: 0 at the start of each document (and in the first column), then
    counting up. out: int32 [n]; unused entries repeat the last value. If `out` is too small, nothing is written.

    Returns (number of entries needed, longest document). Only the last token of each document is read. If its position
    is negative or leads out of the row, the result is (0, index of the token in the batch), and `out` is undefined.
    """
    n_rows, length = position_ids.shape
    ends, longest = [], 0
    for row in reversed(range(n_rows)):
        end = length
        while end > 0:
            position = int(position_ids[row, end - 1])
            if not 0 <= position < end:
                return 0, row * length + end - 1
            ends.append(row * length + end)
            longest = max(longest, position + 1)
            end -= position + 1
    bounds = [0, *reversed(ends)]
    if len(bounds) <= len(out):
        out[: len(bounds)] = bounds
        out[len(bounds) :] = bounds[-1]
    return len(bounds), longest
