"""Newlines of a byte buffer: the specification of the `lines` kernels, in NumPy."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

NEWLINE = 10


def count_newlines(data: npt.NDArray[np.uint8]) -> int:
    """Return the number of newlines in `data`, uint8 [n]."""
    return int(np.count_nonzero(data == NEWLINE))


def index_lines(
    data: npt.NDArray[np.uint8], base: int, line_start: int, out: npt.NDArray[np.int64]
) -> tuple[int, int, int]:
    """Write the position and length of each line that ends in a window of a file.

    data: uint8 [n], the window. base: position of its first byte in the file. line_start: position where the current
    line began (at most `base`: a line may span windows). out: int64 [m, 2], positions and lengths in bytes, without
    newlines.

    Returns (rows written, bytes of `data` consumed, start of the next line). All n bytes are consumed, unless `out` is
    full: then at least up to the newline of its last row, and never past another newline. Bytes after the last newline
    are not a line yet; the caller handles them.
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
