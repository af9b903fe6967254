"""What is counted while the documents of a corpus stream by: marked values, places in the corpus, values of a field."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fastpack.inspection.curation.documents import NO_TEXT, Block, Hashed, Numbers

MAX_PLACES = 64
_VALUES = 10_000  # of a field that are counted
_SHOWN = 20
OTHERS = "(others)"
MISSING = "(no value)"


class MarkCounter:
    """Counts the marked values of a stream, and the documents that contain them. first: number of the first of these.

    is_marked: bool [n_ids], for each token id or byte.
    """

    def __init__(self, is_marked: npt.NDArray[np.bool_]) -> None:
        self._is_marked = is_marked
        self._last = -1
        self.n_values = self.n_documents = 0
        self.first: int | None = None

    def add(self, block: Block) -> None:
        """Add a block."""
        if not len(block.values):
            return
        marked = self._is_marked.take(block.values, mode="clip")
        if marked.any():
            self._add(np.flatnonzero(marked), block)

    def _add(self, places: Numbers, block: Block) -> None:
        ends = block.rows[:, 0] + block.rows[:, 1].clip(0)
        numbers = np.unique(np.searchsorted(ends, places, "right")) + block.first
        self.n_values += len(places)
        self.n_documents += len(numbers) - int(numbers[0] == self._last)
        self.first = int(numbers[0]) if self.first is None else self.first
        self._last = int(numbers[-1])


class EosCounter:
    """Counts EOS tokens before the end of their document, and documents that do not end in one."""

    def __init__(self, eos: int) -> None:
        self._eos = eos
        self._last = -1
        self.n_inside = self.n_documents = self.n_without = 0

    def add(self, block: Block) -> None:
        """Add a block."""
        ends = block.rows[:, 0] + block.rows[:, 1]
        filled = block.rows[: block.complete, 1] > 0
        ended = block.values[ends[: block.complete][filled] - 1] == self._eos
        self.n_without += int(np.count_nonzero(~ended))
        places = np.flatnonzero(block.values == self._eos)
        if len(places) == np.count_nonzero(ended):
            return
        numbers = np.searchsorted(ends, places, "right")
        inside = places != ends[numbers] - 1
        found = np.unique(numbers[inside]) + block.first
        self.n_inside += int(np.count_nonzero(inside))
        self.n_documents += len(found) - int(len(found) > 0 and found[0] == self._last)
        self._last = int(found[-1]) if len(found) else self._last


class Places:
    """Sums of amounts over equal parts of a corpus whose number of documents is not known in advance.

    width: documents of a part, a power of two. sums: int64 [2 * MAX_PLACES, n_amounts].
    """

    def __init__(self, n_amounts: int) -> None:
        self.width = 1
        self.sums = np.zeros((2 * MAX_PLACES, n_amounts), np.int64)

    def add(self, numbers: Numbers, amounts: Numbers, column: int = 0) -> None:
        """Add the amounts int64 [k, m] of documents to the columns from `column` on."""
        if not len(numbers):
            return
        while numbers[-1] // self.width >= len(self.sums):
            half = self.sums.reshape(MAX_PLACES, 2, -1).sum(axis=1)
            self.sums = np.concatenate([half, np.zeros_like(half)])
            self.width *= 2
        at = numbers // self.width
        for k in range(amounts.shape[1]):
            counted = np.bincount(at, weights=amounts[:, k], minlength=len(self.sums))
            self.sums[:, column + k] += counted.astype(np.int64)

    def parts(self) -> list[list[int]]:
        """Return the sums of each part that has documents."""
        filled = np.flatnonzero(self.sums[:, 0])
        parts: list[list[int]] = self.sums[: int(filled[-1]) + 1].tolist() if len(filled) else []
        return parts


class GroupCounter:
    """Documents and their total length by the value of a field."""

    def __init__(self) -> None:
        self._counts: dict[str, list[int]] = {}

    def add(self, part: Hashed) -> None:
        """Add documents; those without a text are left out."""
        groups: Sequence[str | None] = part.block.groups or ()
        for value, length in zip(groups, part.lengths.tolist(), strict=True):
            if length == NO_TEXT:
                continue
            name = MISSING if value is None else value
            if name not in self._counts and len(self._counts) >= _VALUES:
                name = OTHERS
            counted = self._counts.setdefault(name, [0, 0])
            counted[0] += 1
            counted[1] += length

    def facts(self, field: str) -> dict[str, Any]:
        """Return the largest values, and the sum of the others."""
        total = max(1, sum(amount for _, amount in self._counts.values()))
        ranked = sorted(self._counts.items(), key=lambda item: -item[1][1])
        shown, rest = ranked[:_SHOWN], ranked[_SHOWN:]
        if rest:
            shown.append((OTHERS, [sum(counted[k] for _, counted in rest) for k in (0, 1)]))
        values = [
            {"value": value, "documents": documents, "amount": amount, "share": amount / total}
            for value, (documents, amount) in shown
        ]
        return {"field": field, "distinct": len(self._counts), "values": values}
