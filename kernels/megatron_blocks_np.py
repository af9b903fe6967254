"""Blocks that start at document boundaries: the specification of the `megatron_blocks` kernel, in Python."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def block_starts(rows: npt.NDArray[np.int64], block_bytes: int, first: int, starts: npt.NDArray[np.int64]) -> int:
    """Write the offset of each block of `block_bytes`; return the number of blocks.

    rows: int64 [n, 2], offsets and lengths of documents, in bytes. first: offset of the first block. starts: int64 [n],
    of which the returned number is written. Documents are added until they fill a block; a document that does not fit
    starts the next block. A document longer than a block is cut at the end of the block that it fills: the next block
    starts there, but the rest of the document does not count towards it.
    """
    start, gathered, n_blocks = first, 0, 0
    for offset, length in rows.tolist():
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
