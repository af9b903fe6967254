"""The `megatron_blocks` kernel in Numba."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fastpack.kernels.jit import jit


@jit
def block_starts(rows, block_bytes, first, starts):
    """Write the offset of each block of `block_bytes`; return the number of blocks.

    See `fastpack.kernels.megatron_blocks_np.block_starts`.
    """
    if rows.shape[1] != 2 or len(starts) < len(rows):
        raise ValueError("rows must be [n, 2] and starts as long")
    start, gathered, n_blocks = first, 0, 0
    for k in range(len(rows)):
        offset, length = rows[k, 0], rows[k, 1]
        if gathered + length < block_bytes:
            gathered += length
            continue
        starts[n_blocks] = start
        n_blocks += 1
        if gathered + length == block_bytes or length > block_bytes:
            start, gathered = start + block_bytes, 0
        else:
            start, gathered = offset, length
    return n_blocks


def compile_all(_token_dtypes: Sequence[str], _out_dtypes: Sequence[str]) -> None:
    """Compile for writeable and read-only rows (a read-only array is another signature)."""
    for writeable in (True, False):
        rows = np.array([[0, 1]])
        rows.flags.writeable = writeable
        block_starts(rows, 1, 0, np.empty(1, np.int64))
