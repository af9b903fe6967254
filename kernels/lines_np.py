"""Newlines of a byte buffer: the specification of the `lines` kernels, in NumPy."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

NEWLINE = 10


def count_newlines(data: npt.NDArray[np.uint8]) -> int:
    """How many bytes of `data` (uint8 [n]) are newlines."""
    return int(np.count_nonzero(data == NEWLINE))


def index_lines(
    data: npt.NDArray[np.uint8], base: int, line_start: int, out: npt.NDArray[np.int64]
) -> tuple[int, int, int]:
    """Write a row (position of the line, its bytes without the newline) for each line that ends in `data`.

    data: uint8 [n], a window of the file, whose first byte has position `base` in it; line_start: position where the
    line that is open there began (at most `base`: a line may reach over many windows); out: int64 [m, 2].
    Returns (rows written, bytes of `data` consumed, position where the next line starts). Consumed is n, or, once `out`
    is full, at least up to the newline of its last row and never beyond another newline. What follows the last newline
    is no line yet: that is the caller's business.
    """
    newlines = base + np.flatnonzero(data == NEWLINE)
    n_rows = min(len(newlines), len(out))
    if n_rows == 0:
        return 0, len(data) if len(out) else 0, line_start
    newlines = newlines[:n_rows]
    starts = np.concatenate(([line_start], newlines[:-1] + 1))
    out[:n_rows, 0] = starts
    out[:n_rows, 1] = newlines - starts
    next_start = int(newlines[-1]) + 1
    return n_rows, next_start - base if n_rows == len(out) else len(data), next_start
