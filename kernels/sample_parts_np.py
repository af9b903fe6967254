"""The parts of documents that samples of fixed length consist of: the specification, in NumPy.

The documents, in a shuffled order, form one sequence of tokens, and a sample is a range of it. Where the ranges begin
is not stored: the ends of blocks of documents lead to the first document of a sample.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]
Documents = npt.NDArray[np.int32]


def part_blocks(documents: Documents, starts: Numbers, ends: Numbers, block: int, out: Numbers) -> None:
    """Write the end of each block of `block` documents in the sequence of all documents, in tokens.

    documents: int32 [m], the order. starts, ends: int64 [n], of each document, in tokens. out: int64 [ceil(m / block)].
    Raises ValueError for a document outside [0, n).
    """
    _check(documents, starts, ends, block, out)
    lengths = np.concatenate([np.zeros(1, np.int64), np.cumsum(ends[documents] - starts[documents])])
    out[:] = lengths[np.minimum(np.arange(1, len(out) + 1) * block, len(documents))]


def sample_parts(
    positions: Numbers,
    length: int,
    extra: int,
    documents: Documents,
    starts: Numbers,
    ends: Numbers,
    block: int,
    block_ends: Numbers,
    sizes: Numbers,
    out: Numbers,
) -> int:
    """Write the parts of documents that samples consist of, and return their number.

    Sample k consists of `length` tokens from positions[k] on in the sequence of all documents, or of fewer at its end.
    Its first document is the first that ends at or after positions[k] + extra (for position 0, the first of all); the
    documents up to its last token follow, empty ones included. positions: int64 [b]. documents, starts, ends, block:
    as for `part_blocks`. block_ends: its result. sizes: int64 [b], the tokens of each sample. out: int64 [4, p]: the
    sample of each part, the part's first token in the sample, its first token in the file, and its length.

    If there are more than p parts, only the first p are written. Raises ValueError for a document outside [0, n).
    """
    _check(documents, starts, ends, block, block_ends)
    if len(sizes) != len(positions) or len(out) != 4:
        raise ValueError("sizes must be as long as positions, and out have 4 rows")
    n_parts, before = 0, np.concatenate([np.zeros(1, np.int64), np.cumsum(ends[documents] - starts[documents])])
    for k, position in enumerate(positions.tolist()):
        at = 0 if position <= 0 else int(np.searchsorted(before[1:], position + extra, "left"))
        offset, left = position - int(before[min(at, len(documents))]), length
        while at < len(documents):
            document = int(documents[at])
            taken = min(int(ends[document] - starts[document]) - offset, left)
            if n_parts < out.shape[1]:
                out[:, n_parts] = k, length - left, starts[document] + offset, taken
            n_parts, left, offset, at = n_parts + 1, left - taken, 0, at + 1
            if left <= 0:
                break
        sizes[k] = length - left
    return n_parts


def _check(documents: Documents, starts: Numbers, ends: Numbers, block: int, block_ends: Numbers) -> None:
    if block < 1 or len(starts) != len(ends) or len(block_ends) != -(-len(documents) // max(block, 1)):
        raise ValueError("starts and ends must have one length, and every block of documents an end")
    if len(documents) and not 0 <= int(documents.min()) <= int(documents.max()) < len(starts):
        raise ValueError("a document outside [0, n)")
