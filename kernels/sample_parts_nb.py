"""The `sample_parts` kernels in Numba."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fastpack.kernels.jit import jit


@jit
def _check(documents, starts, ends, block, block_ends):
    if block < 1 or len(starts) != len(ends) or len(block_ends) != (len(documents) + block - 1) // block:
        raise ValueError("starts and ends must have one length, and every block of documents an end")


@jit
def part_blocks(documents, starts, ends, block, out):
    """Write the end of each block of `block` documents in the sequence of all documents, in tokens.

    See `fastpack.kernels.sample_parts_np.part_blocks`.
    """
    _check(documents, starts, ends, block, out)
    n, end = np.uint64(len(starts)), np.int64(0)
    for k in range(len(out)):
        for i in range(k * block, min((k + 1) * block, len(documents))):
            document = documents[i]
            if np.uint64(document) >= n:
                raise ValueError("a document outside [0, n)")
            end += ends[document] - starts[document]
        out[k] = end


@jit
def _first_block(block_ends, target):
    """Return the number of the first block that ends at or after `target`."""
    low, high = np.int64(0), np.int64(len(block_ends))
    while low < high:
        middle = (low + high) // 2
        if block_ends[middle] < target:
            low = middle + 1
        else:
            high = middle
    return low


@jit
def sample_parts(positions, length, extra, documents, starts, ends, block, block_ends, sizes, out):
    """Write the parts of documents that samples consist of, and return their number.

    See `fastpack.kernels.sample_parts_np.sample_parts`.
    """
    _check(documents, starts, ends, block, block_ends)
    if len(sizes) != len(positions) or len(out) != 4:
        raise ValueError("sizes must be as long as positions, and out have 4 rows")
    n, n_parts = np.uint64(len(starts)), np.int64(0)
    for k in range(len(positions)):
        target, searching = positions[k] + extra, positions[k] > 0
        number = _first_block(block_ends, target) if searching else np.int64(0)
        before = block_ends[number - 1] if number > 0 else np.int64(0)  # tokens before the document
        left = np.int64(length)
        for i in range(number * block, len(documents)):
            document = documents[i]
            if np.uint64(document) >= n:
                raise ValueError("a document outside [0, n)")
            start, size = starts[document], ends[document] - starts[document]
            if searching:
                if before + size < target:
                    before += size
                    continue
                searching = False
            offset, before = positions[k] - before, positions[k]
            taken = min(size - offset, left)
            if n_parts < out.shape[1]:
                out[0, n_parts] = k
                out[1, n_parts] = length - left
                out[2, n_parts] = start + offset
                out[3, n_parts] = taken
            n_parts += 1
            left -= taken
            if left <= 0:
                break
        sizes[k] = length - left
    return n_parts


def compile_all(_token_dtypes: Sequence[str], _out_dtypes: Sequence[str]) -> None:
    """Compile for writeable and read-only ends; the arguments do not matter here."""
    for writeable in (True, False):
        bounds = np.array([0, 1])
        bounds.flags.writeable = writeable
        documents, ends = np.zeros(1, np.int32), np.empty(1, np.int64)
        part_blocks(documents, bounds[:1], bounds[1:], 1, ends)
        out = np.empty((4, 1), np.int64)
        sample_parts(np.zeros(1, np.int64), 1, 0, documents, bounds[:1], bounds[1:], 1, ends, ends.copy(), out)
