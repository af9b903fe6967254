"""Balanced plans: the rows that the ranks process at the same time have nearly the same cost.

The rows of a plan are stored by descending cost. A group is one row for each rank; groups are permuted by the seed, the
rows in a group stay together. Every second group is reversed, so that no rank always gets the larger rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fastpack.errors import spoken
from fastpack.plans.count_column import Integers


@dataclass(frozen=True, slots=True)
class Balance:
    """How the ranks divide the rows of a plan, and the cost of a document of n tokens.

    Attributes
    ----------
    data_parallel
        Number of ranks; rank r takes the rows whose number modulo `data_parallel` is r.
    micro_batches
        Number of rows of a rank in a step.
    linear, quadratic
        The cost is linear * n + quadratic * n**2.
    """

    data_parallel: int
    micro_batches: int = 1
    linear: float = 0.0
    quadratic: float = 1.0

    def __post_init__(self) -> None:
        for name in ("data_parallel", "micro_batches"):
            if not 1 <= getattr(self, name) <= 1 << 20:
                raise ValueError(f"{spoken(name)}: found {getattr(self, name)}, expected 1 to {1 << 20}")
        if not (self.linear >= 0 and self.quadratic >= 0 and 0 < self.linear + self.quadratic < float("inf")):
            found = f"{self.linear}, {self.quadratic}"
            raise ValueError(f"{spoken('cost')}: found {found}, expected two numbers of which one is above 0")

    def costs(self, rows: npt.NDArray[Any], lengths: npt.NDArray[Any], n_rows: int) -> npt.NDArray[np.float64]:
        """Return the cost of each row, float64 [n_rows]: rows and tokens of each segment are given."""
        tokens = lengths.astype(np.float64)
        return np.bincount(rows, self.linear * tokens + self.quadratic * tokens * tokens, n_rows).astype(np.float64)


def sort_rows(
    bins: npt.NDArray[np.uint32], lengths: npt.NDArray[np.uint32], sizes: npt.NDArray[np.uint32], balance: Balance,
    ascending: bool,
) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32]]:  # fmt: skip
    """Renumber rows by cost; return the row of each piece, and the number of pieces of each row."""
    costs = balance.costs(bins, lengths, len(sizes))
    order = np.argsort(costs if ascending else -costs, kind="stable")
    numbers = np.empty(len(order), np.uint32)
    numbers[order] = np.arange(len(order), dtype=np.uint32)
    return numbers[bins], sizes[order]


def row_in_group(groups: Integers, lanes: Integers, size: int) -> Integers:
    """Return the row of lane `lanes` in each group of `size` rows, in the order in which the rows are stored."""
    return groups * size + np.where(groups % 2, size - 1 - lanes, lanes)
