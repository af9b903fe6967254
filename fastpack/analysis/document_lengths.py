"""How many documents have which length: counted exactly, in memory that does not grow with their number."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Lengths = npt.NDArray[np.int64]

PERCENTILES = (1, 10, 25, 50, 75, 90, 99)
_SHORT = 1 << 20  # lengths below are counted in a table of 8 MiB, those above are kept: at most one in 2^20 tokens
_PENDING = 1 << 20  # lengths that are gathered before they are counted


class Bin(NamedTuple):
    """Documents of `start` <= length < `end`: how many, and how long they are together."""

    start: int
    end: int
    documents: int
    total: int


class LengthCounter:
    """Counts lengths as they come; `table()` is what was counted."""

    def __init__(self) -> None:
        self._short = np.zeros(0, np.int64)
        self._long: list[Lengths] = []
        self._pending: list[Lengths] = []
        self._n_pending = 0

    def add(self, lengths: Lengths) -> None:
        """Count the lengths int64 [n], none of them negative."""
        if len(lengths):
            self._pending.append(lengths)
            self._n_pending += len(lengths)
            if self._n_pending >= _PENDING:
                self._count()

    def _count(self) -> None:
        lengths = np.concatenate([np.empty(0, np.int64), *self._pending])
        self._pending, self._n_pending = [], 0
        is_short = lengths < _SHORT
        counts = np.bincount(lengths[is_short])
        if len(counts) > len(self._short):
            counts[: len(self._short)] += self._short
            self._short = counts
        else:
            self._short[: len(counts)] += counts
        if not is_short.all():
            self._long.append(lengths[~is_short])

    def table(self) -> LengthTable:
        """All lengths so far."""
        self._count()
        values = np.flatnonzero(self._short)
        long, n_long = np.unique(np.concatenate([np.empty(0, np.int64), *self._long]), return_counts=True)
        return LengthTable(np.concatenate([values, long]), np.concatenate([self._short[values], n_long]))


@dataclass(frozen=True, slots=True, eq=False)
class LengthTable:
    """`counts` int64 [k] documents of the lengths `values` int64 [k], ascending."""

    values: Lengths
    counts: Lengths

    @classmethod
    def of(cls, lengths: Lengths) -> LengthTable:
        """The table of lengths int64 [n]."""
        return cls(*np.unique(lengths, return_counts=True))

    @classmethod
    def merged(cls, tables: Iterable[LengthTable]) -> LengthTable:
        """One table of the documents of all."""
        several = list(tables)
        values, places = np.unique(
            np.concatenate([np.empty(0, np.int64), *(one.values for one in several)]), return_inverse=True
        )
        counts = np.zeros(len(values), np.int64)
        np.add.at(counts, places, np.concatenate([np.empty(0, np.int64), *(one.counts for one in several)]))
        return cls(values, counts)

    @property
    def documents(self) -> int:
        """How many there are."""
        return int(self.counts.sum())

    @property
    def total(self) -> int:
        """The sum of all lengths."""
        return int(self.values @ self.counts)

    def percentile(self, percent: int) -> int:
        """The least length that `percent` (1 to 100) in a hundred documents do not exceed; there are documents."""
        ends = np.cumsum(self.counts)
        return int(self.values[np.searchsorted(ends, -(-percent * int(ends[-1]) // 100))])

    def summary(self) -> dict[str, float] | None:
        """{"min", "p1", "p10", "p25", "median", "mean", "p75", "p90", "p99", "max"}; None without any document."""
        if not len(self.values):
            return None
        low = {f"p{percent}": self.percentile(percent) for percent in PERCENTILES if percent < 50}
        high = {f"p{percent}": self.percentile(percent) for percent in PERCENTILES if percent > 50}
        middle = {"median": self.percentile(50), "mean": round(self.total / self.documents, 2)}
        return {"min": int(self.values[0]), **low, **middle, **high, "max": int(self.values[-1])}

    def bins(self, per_octave: int = 1) -> list[Bin]:
        """The documents by length, from the shortest's bin to the longest's; a length of 0 has a bin of its own.

        per_octave: 1 gives bins that end at powers of two, 4 such as are 2 to the 1/4 wide, in whole lengths.
        """
        if not len(self.values):
            return []
        edges = _edges(int(self.values[-1]), per_octave)
        ends = np.searchsorted(self.values, edges)
        documents = _between(self.counts, ends)
        totals = _between(self.counts * self.values, ends)
        filled = np.flatnonzero(documents)
        first, last = int(filled[0]), int(filled[-1])
        return [
            Bin(int(edges[k]), int(edges[k + 1]), int(documents[k]), int(totals[k])) for k in range(first, last + 1)
        ]

    def beyond(self, length: int) -> int:
        """How many tokens lie beyond the first `length` of each document."""
        return int(((self.values - length).clip(0) * self.counts).sum())

    def missing(self, length: int) -> int:
        """How many tokens the documents that are shorter lack to `length`."""
        return int(((length - self.values).clip(0) * self.counts).sum())


def _edges(longest: int, per_octave: int) -> Lengths:
    """0, 1 and on to beyond `longest`, in whole numbers."""
    n_octaves = longest.bit_length()
    steps = 2.0 ** (np.arange(n_octaves * per_octave + 1) / per_octave)
    edges = np.concatenate([[0], np.ceil(steps - 1e-6)]).astype(np.int64)
    return edges[np.diff(edges, prepend=-1) > 0]  # np.unique imports numpy.ma for this: 14 ms


def _between(amounts: Lengths, ends: Lengths) -> Lengths:
    """The sums of `amounts` between one of `ends` and the next."""
    sums = np.concatenate([[0], np.cumsum(amounts)])
    return np.diff(sums[ends])


def shares(bins: list[Bin]) -> list[dict[str, Any]]:
    """The bins as plain data: {"from", "to", "documents", "total"}, `to` excluded."""
    return [{"from": one.start, "to": one.end, "documents": one.documents, "total": one.total} for one in bins]
