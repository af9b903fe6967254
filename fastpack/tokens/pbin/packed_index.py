"""The index of a packed file: (offset, length) of each document, computed from the document lengths."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import numpy.typing as npt

from fastpack.io.pickled_index import IndexEncoder

BLOCK_ROWS = 1 << 16  # rows computed at once: they stay in the cache

Rows = npt.NDArray[np.int64]


def index_rows(lengths: Iterable[npt.NDArray[np.int64]], unit: int = 1) -> Iterator[Rows]:
    """Yield the index rows int64 [k, 2], in bytes, of contiguous documents; lengths are in units of `unit` bytes."""
    end = 0
    for array in lengths:
        for first in range(0, len(array), BLOCK_ROWS):
            block = array[first : first + BLOCK_ROWS] * unit
            ends = end + np.cumsum(block)
            yield np.stack([ends - block, block], axis=1)
            end = int(ends[-1])


def write_index(write: Callable[[memoryview], object], blocks: Iterable[Rows]) -> int:
    """Write the pickled index of rows int64 [k, 2] in pieces; return its size in bytes."""
    encoder = IndexEncoder(write)
    for rows in blocks:
        encoder.append(rows)
    encoder.close()
    return encoder.n_bytes


def index_size(blocks: Iterable[Rows]) -> int:
    """Return the size in bytes of the pickled index of rows int64 [k, 2]."""
    return write_index(len, blocks)
