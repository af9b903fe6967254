"""Frequencies of token ids."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fastpack import kernels
from fastpack.analysis.document_lengths import add_counts

# No vocabulary is this large. Two uint16 ids read as one uint32 exceed it if the second id is 16 or more.
LARGEST_PLAUSIBLE_ID = 1 << 20
_BLOCK_TOKENS = 1 << 18  # tokens counted by one kernel call
_MAX_RECENT = 1 << 32  # tokens counted in a uint32 table, which misses the cache half as often as an int64 table

Counts = npt.NDArray[np.int64]


class IdCounter:
    """Counts the occurrences of each token id. `outside` counts the tokens whose id is not plausible."""

    def __init__(self) -> None:
        self.outside = 0
        self._counts = np.zeros(0, np.int64)
        self._recent = np.zeros(0, np.uint32)  # recent counts, added to _counts before one of them can overflow
        self._n_recent = 0

    @property
    def counts(self) -> Counts:
        """The number of occurrences of each id, int64 [largest id + 1]."""
        self._flush()
        return self._counts

    def add(self, tokens: npt.NDArray[Any]) -> None:
        """Count the ids of integer tokens [n], of a dtype that the kernels support."""
        n_ids = LARGEST_PLAUSIBLE_ID if tokens.itemsize > 2 else 1 << 8 * tokens.itemsize
        if len(self._recent) < n_ids:
            self._flush()
            self._recent = np.zeros(n_ids, np.uint32)
        for start in range(0, len(tokens), _BLOCK_TOKENS):
            block = tokens[start : start + _BLOCK_TOKENS]
            if self._n_recent + len(block) >= _MAX_RECENT:
                self._flush()
            self.outside += kernels.count_tokens(block, self._recent)
            self._n_recent += len(block)

    def _flush(self) -> None:
        if self._n_recent:
            n_ids = int(np.flatnonzero(self._recent).max(initial=-1)) + 1
            self._counts = add_counts(self._counts, self._recent[:n_ids].astype(np.int64))
            self._recent[:n_ids] = 0
            self._n_recent = 0

    def merge(self, other: IdCounter) -> None:
        """Add the counts of another counter."""
        self._flush()
        self._counts = add_counts(self._counts, other.counts.copy())
        self.outside += other.outside
