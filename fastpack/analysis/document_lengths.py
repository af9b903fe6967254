"""Exact distributions of document lengths, in memory that does not grow with the number of documents."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Lengths = npt.NDArray[np.int64]

PERCENTILES = (1, 10, 25, 50, 75, 90, 99)
_SHORT = 1 << 20  # shorter lengths are counted in a table of 8 MiB; longer ones are stored: at most one in 2^20 tokens
_PENDING = 1 << 20  # lengths gathered before they are counted


class Bin(NamedTuple):
    """Documents with `start` <= length < `end`: their number and their total length."""

    start: int
    end: int
    documents: int
    total: int


def add_counts(total: Lengths, counts: Lengths) -> Lengths:
    """Return the sum of two tables of counts, in the longer of the two."""
    longer, shorter = (counts, total) if len(counts) > len(total) else (total, counts)
    longer[: len(shorter)] += shorter
    return longer


class LengthCounter:
    """Counts document lengths incrementally; `table()` returns the result."""

    def __init__(self) -> None:
        self._short = np.zeros(0, np.int64)
        self._long: list[Lengths] = []
        self._pending: list[Lengths] = []
        self._n_pending = 0

    def add(self, lengths: Lengths) -> None:
        """Count non-negative lengths int64 [n]."""
        if len(lengths):
            self._pending.append(lengths)
            self._n_pending += len(lengths)
            if self._n_pending >= _PENDING:
                self._count()

    def _count(self) -> None:
        lengths = np.concatenate([np.empty(0, np.int64), *self._pending])
        self._pending, self._n_pending = [], 0
        is_short = lengths < _SHORT
        self._short = add_counts(self._short, np.bincount(lengths[is_short]))
        if not is_short.all():
            self._long.append(lengths[~is_short])

    def table(self) -> LengthTable:
        """Return the distribution of all lengths added so far."""
        self._count()
        values = np.flatnonzero(self._short)
        long, n_long = np.unique(np.concatenate([np.empty(0, np.int64), *self._long]), return_counts=True)
        return LengthTable(np.concatenate([values, long]), np.concatenate([self._short[values], n_long]))


class DocumentStatistics:
    """Lengths of documents, and how many of them are cut by blocks of each of `seq_lens` tokens."""

    def __init__(self, seq_lens: Sequence[int]) -> None:
        self.lengths = LengthCounter()
        self.cut = dict.fromkeys(seq_lens, 0)

    def add(self, starts: Lengths, lengths: Lengths) -> None:
        """Add documents of one file by their starts in the file and their lengths, in tokens, int64 [n] each."""
        self.lengths.add(lengths)
        filled = lengths > 0
        first, last = starts[filled], (starts + lengths)[filled] - 1
        for seq_len in self.cut:
            self.cut[seq_len] += int(np.count_nonzero(first // seq_len != last // seq_len))


@dataclass(frozen=True, slots=True, eq=False)
class LengthTable:
    """`counts` int64 [k] documents of the lengths `values` int64 [k], ascending."""

    values: Lengths
    counts: Lengths

    @classmethod
    def of(cls, lengths: Lengths) -> LengthTable:
        """Return the table of lengths int64 [n]."""
        return cls(*np.unique(lengths, return_counts=True))

    @classmethod
    def merged(cls, tables: Iterable[LengthTable]) -> LengthTable:
        """Return one table with the documents of all tables."""
        several = [cls(np.empty(0, np.int64), np.empty(0, np.int64)), *tables]
        values, places = np.unique(np.concatenate([one.values for one in several]), return_inverse=True)
        counts = np.zeros(len(values), np.int64)
        np.add.at(counts, places, np.concatenate([one.counts for one in several]))
        return cls(values, counts)

    @property
    def documents(self) -> int:
        """The number of documents."""
        return int(self.counts.sum())

    @property
    def total(self) -> int:
        """The sum of all lengths."""
        return int(self.values @ self.counts)

    def percentile(self, percent: int) -> int:
        """Return the smallest length that at least `percent` (1 to 100) percent of the documents do not exceed."""
        ends = np.cumsum(self.counts)
        return int(self.values[np.searchsorted(ends, -(-percent * int(ends[-1]) // 100))])

    def summary(self) -> dict[str, float] | None:
        """Return min, p1, p10, p25, median, mean, p75, p90, p99 and max; None if there are no documents."""
        if not len(self.values):
            return None
        low = {f"p{percent}": self.percentile(percent) for percent in PERCENTILES if percent < 50}
        high = {f"p{percent}": self.percentile(percent) for percent in PERCENTILES if percent > 50}
        middle = {"median": self.percentile(50), "mean": round(self.total / self.documents, 2)}
        return {"min": int(self.values[0]), **low, **middle, **high, "max": int(self.values[-1])}

    def bins(self, per_octave: int = 1) -> list[Bin]:
        """Return a histogram from the shortest to the longest document; length 0 has its own bin.

        `per_octave` is the number of bins per power of two; bin edges are rounded up to integers.
        """
        if not len(self.values):
            return []
        edges = _edges(int(self.values[-1]), per_octave)
        ends = np.searchsorted(self.values, edges)
        documents = _sums_between(self.counts, ends)
        totals = _sums_between(self.counts * self.values, ends)
        filled = np.flatnonzero(documents)
        first, last = int(filled[0]), int(filled[-1])
        return [
            Bin(int(edges[k]), int(edges[k + 1]), int(documents[k]), int(totals[k])) for k in range(first, last + 1)
        ]

    def beyond(self, length: int) -> int:
        """Return the number of tokens after the first `length` tokens of each document."""
        return int(((self.values - length).clip(0) * self.counts).sum())

    def missing(self, length: int) -> int:
        """Return the number of padding tokens that extend all shorter documents to `length`."""
        return int(((length - self.values).clip(0) * self.counts).sum())


def _edges(longest: int, per_octave: int) -> Lengths:
    """Ascending integer bin edges: 0, 1, ... to beyond `longest`."""
    n_octaves = longest.bit_length()
    steps = 2.0 ** (np.arange(n_octaves * per_octave + 1) / per_octave)
    edges = np.concatenate([[0], np.ceil(steps - 1e-6)]).astype(np.int64)
    return edges[np.diff(edges, prepend=-1) > 0]  # np.unique imports numpy.ma here, which takes 14 ms


def _sums_between(amounts: Lengths, ends: Lengths) -> Lengths:
    """Return the sums of `amounts` between consecutive `ends`."""
    sums = np.concatenate([[0], np.cumsum(amounts)])
    return np.diff(sums[ends])


def shares(bins: list[Bin]) -> list[dict[str, Any]]:
    """Return bins as plain data: {"from", "to" (exclusive), "documents", "total"}."""
    return [{"from": one.start, "to": one.end, "documents": one.documents, "total": one.total} for one in bins]
