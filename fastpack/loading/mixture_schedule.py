"""The source of each position of a mixture, computed for any position, with every source close to its share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fastpack import kernels

SCHEDULE_STREAM = 1 << 63  # the permutations of sources use smaller stream numbers


class ShareSchedule:
    """An endless sequence of sources in which each source has its share of every prefix, with a bounded error.

    Splits pairs of sources recursively, the smallest shares first (a Huffman tree). The error of one split is below
    1 position, and so is that of two sources. A split's error reaches a source multiplied by its share of that split,
    which the tree keeps below 2/3 for pairs, so with any number of sources the error is below 4 positions. After the
    shares themselves only integers are used, so every machine computes the same sequence.

    Parameters
    ----------
    shares
        The share of each source, >= 0 and not all 0; a source with share 0 has no position.
    key
        Selects the sequence; None selects the most regular one.
    """

    def __init__(self, shares: Sequence[float], key: int | None) -> None:
        self._n_sources, self._mixed = len(shares), key is not None
        sources = [source for source, share in enumerate(shares) if share > 0]
        sums = np.empty(2 * len(sources) - 1)
        sums[: len(sources)] = [shares[source] for source in sources]
        self._tree = np.empty((len(sources), 4), np.uint64)
        kernels.share_tree(np.array(sources), sums, np.uint64(key or 0), self._tree)

    def assign(self, positions: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the source of each position, and how many positions before it have the same source: both int64."""
        sources, numbers = np.empty(len(positions), np.int64), np.empty(len(positions), np.int64)
        kernels.share_sources(self._tree, self._mixed, positions, sources, numbers)
        return sources, numbers

    def counts(self, n: int) -> npt.NDArray[np.int64]:
        """Return how many of the first `n` positions each source has: int64 [sources]."""
        counts: npt.NDArray[np.int64] = self.counts_at(np.array([n]))[0]
        return counts

    def counts_at(self, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return how many of the positions before each of these each source has: int64 [n, sources]."""
        counts = np.zeros((len(positions), self._n_sources), np.int64)
        kernels.share_counts(self._tree, self._mixed, positions, np.empty(len(self._tree), np.uint64), counts)
        return counts
