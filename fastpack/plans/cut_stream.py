"""Cutting the concatenation of all documents into rows (the algorithm none), a shard of documents at a time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fastpack import kernels
from fastpack.plans.plan_settings import PlanSettings

_Numbers = npt.NDArray[np.uint32]


class StreamCutter:
    """Cuts documents into rows.

    Attributes
    ----------
    n_rows, n_segments
        Number of rows that are complete, and of documents and pieces of documents in them.
    """

    def __init__(self, settings: PlanSettings) -> None:
        self._seq_length, self._most, self._balance = settings.seq_length, settings.max_documents, settings.balance
        self._rest = np.empty(0, np.uint32)  # tokens of each document in the row that is not complete
        self.n_rows = self.n_segments = 0

    def add(self, used: _Numbers) -> tuple[_Numbers, npt.NDArray[np.float64]]:
        """Return tokens and cost of the rows that these documents complete; the costs are for balanced plans.

        used: tokens of each document, uint32 [n].
        """
        lengths = np.concatenate([self._rest, used[used > 0]])
        ends = np.cumsum(lengths, dtype=np.int64)
        rows = self._cut(lengths, ends)
        n_tokens = int(rows.sum(dtype=np.int64))
        after = int(np.searchsorted(ends, n_tokens, "right"))  # the first document that is not in these rows as a whole
        self._rest = lengths[after:].copy()
        if after < len(lengths):
            self._rest[0] = int(ends[after]) - n_tokens
        return rows, self._count(rows, ends)

    def finish(self) -> tuple[_Numbers, npt.NDArray[np.float64]]:
        """Return tokens and cost of the last row, if it is not complete, as `add`."""
        rows = self._rest.sum(keepdims=True, dtype=np.uint32)[: len(self._rest)]
        return rows, self._count(rows, np.cumsum(self._rest, dtype=np.int64))

    def _cut(self, lengths: _Numbers, ends: npt.NDArray[np.int64]) -> _Numbers:
        n_tokens = int(ends[-1]) if len(ends) else 0
        if self._most is None:
            return np.full(n_tokens // self._seq_length, self._seq_length, np.uint32)
        rows = np.empty(n_tokens // self._seq_length + len(lengths) // self._most + 1, np.uint32)
        rows = rows[: kernels.cut_stream(lengths, self._seq_length, self._most, rows)]
        if not len(rows):
            return rows
        n_documents = len(ends) - np.searchsorted(ends, n_tokens - int(rows[-1]), "right")
        is_complete = rows[-1] == self._seq_length or n_documents == self._most
        return rows.copy() if is_complete else rows[:-1].copy()

    def _count(self, rows: _Numbers, ends: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """Count the rows and their segments; return their costs."""
        row_ends = np.cumsum(rows, dtype=np.int64)
        n_tokens = int(row_ends[-1]) if len(rows) else 0
        self.n_rows += len(rows)
        ends = ends[: np.searchsorted(ends, n_tokens, "right")]
        inside = np.searchsorted(ends, row_ends)
        is_cut = (inside == len(ends)) | (np.append(ends, -1)[inside] != row_ends)
        self.n_segments += len(ends) + int(np.count_nonzero(is_cut))
        if self._balance is None:
            return np.empty(0)
        cuts = np.sort(np.concatenate([ends, row_ends[is_cut]]), kind="stable")
        return self._balance.costs(np.searchsorted(row_ends, cuts), np.diff(cuts, prepend=0), len(rows))
