"""The `document_hashes` kernel in Numba."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fastpack.kernels.jit import jit

STEP = np.uint64(0x9E3779B97F4A7C15)
FIRST, SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


@jit
def add_hashes(tokens, rows, sums):
    """Add the hashes of the tokens of each document that are in this block of a stream to the document's sum.

    See `fastpack.kernels.document_hashes_np.add_hashes`.
    """
    if len(rows) != len(sums):
        raise ValueError("expected a sum for each document")
    for number in range(len(rows)):
        start, length = rows[number, 0], rows[number, 1]
        first, end = max(start, 0), min(start + length, len(tokens))
        total, place = np.uint64(0), np.uint64(first - start) * STEP
        for i in range(first, end):
            place += STEP
            value = np.uint64(np.int64(tokens[i])) + place
            value = (value ^ (value >> np.uint64(30))) * FIRST
            value = (value ^ (value >> np.uint64(27))) * SECOND
            total += value ^ (value >> np.uint64(31))
        sums[number] += total


def compile_all(token_dtypes: Sequence[str], _out_dtypes: Sequence[str]) -> None:
    """Compile for tokens of these dtypes."""
    for dtype in token_dtypes:
        add_hashes(np.zeros(1, dtype), np.zeros((1, 2), np.int64), np.zeros(1, np.uint64))
