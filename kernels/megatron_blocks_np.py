"""Blocks that begin with a document where they can: the specification of the `walk` kernel, in Python."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def block_starts(rows: npt.NDArray[np.int64], block_bytes: int, first: int, starts: npt.NDArray[np.int64]) -> int:
    """Write where each block of `block_bytes` begins, in bytes; return how many blocks there are.

    rows: int64 [n, 2], the documents' offsets and lengths in bytes; first: where the first block begins; starts: int64
    [n], of which as many are written as are returned. Documents are gathered until they fill a block; one that does not
    fit in any more opens the next block. One longer than a block is cut where the block that it fills ends: the next
    block begins there, but what is left of the document does not count towards filling it.
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
