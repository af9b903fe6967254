"""Balanced plans: the rows that the ranks process at the same time have nearly the same cost.

A group is one row for each rank. It is even if the largest cost is at most LIMIT times the mean. Sorted by cost, nearly
all rows of a plan make up even groups: `sort_rows` finds them, shard by shard. `fastpack.plans.step_order` arranges the
other rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fastpack.errors import spoken
from fastpack.plans.count_column import Integers

LIMIT = 1.02  # largest cost of a rank in a step, divided by the mean of all ranks
Costs = npt.NDArray[np.float64]


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

    def of_one(self, n_tokens: int) -> float:
        """Return the cost of a document of `n_tokens` tokens."""
        return self.linear * n_tokens + self.quadratic * n_tokens**2

    def costs(self, rows: npt.NDArray[Any], lengths: npt.NDArray[Any], n_rows: int) -> npt.NDArray[np.float64]:
        """Return the cost of each row, float64 [n_rows]: rows and tokens of each segment are given."""
        tokens = lengths.astype(np.float64)
        return np.bincount(rows, self.linear * tokens + self.quadratic * tokens * tokens, n_rows).astype(np.float64)


def even_first(costs: Costs, n_ranks: int) -> tuple[Integers, int]:
    """Return the order of rows, int64 [n], and how many of them make up even groups, from the first on.

    Within the even groups, and after them, rows are sorted by descending cost.
    """
    order = np.argsort(-costs, kind="stable")
    sums = np.cumsum(costs[order])
    n_starts = len(costs) - n_ranks + 1
    if n_starts <= 0:
        return order, 0
    of_groups = sums[n_ranks - 1 :] - np.append(0.0, sums[: n_starts - 1])
    is_even = costs[order[:n_starts]] * n_ranks <= LIMIT * of_groups
    starts = _chosen_starts(is_even, n_ranks)
    chosen = np.zeros(len(costs), np.bool_)
    chosen[(starts[:, None] + np.arange(n_ranks)).reshape(-1)] = True
    return np.append(order[chosen], order[~chosen]), n_ranks * len(starts)


def _chosen_starts(is_even: npt.NDArray[np.bool_], n_ranks: int) -> Integers:
    """Return where groups start: at each place where one is even, unless it is in the group before.

    Of the groups that contain a row and none of larger cost, the one of the next rows has the largest mean, so no other
    groups could use rows that are passed over.
    """
    n = len(is_even)
    next_even = np.append(np.flatnonzero(is_even), n)
    # The first group, at a distance of a multiple of n_ranks, that is not even.
    padded = np.zeros(-(-n // n_ranks) * n_ranks, np.bool_)
    padded[:n] = is_even
    rows = np.arange(len(padded)).reshape(-1, n_ranks)
    uneven = np.where(padded.reshape(-1, n_ranks), len(padded), rows)
    next_uneven = np.minimum.accumulate(uneven[::-1], axis=0)[::-1].reshape(-1)
    found: list[Integers] = [np.empty(0, np.int64)]
    place = 0
    while place < n:
        if not is_even[place]:
            place = int(next_even[np.searchsorted(next_even, place)])
            continue
        end = int(next_uneven[place])
        found.append(np.arange(place, end, n_ranks))
        place = end
    return np.concatenate(found)


def sort_rows(
    bins: npt.NDArray[np.uint32],
    lengths: npt.NDArray[np.uint32],
    sizes: npt.NDArray[np.uint32],
    balance: Balance,
    before: Costs,
) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32], Costs, int, int]:
    """Renumber rows so that those in even groups come first.

    before: costs of other rows, not below those of these rows, that take part in the groups. Return the row of each
    piece, the number of pieces of each row, its cost, the number of rows in even groups, and how many of the other rows
    are in none.
    """
    costs = balance.costs(bins, lengths, len(sizes))
    order, n_even = even_first(np.append(before, costs), balance.data_parallel)
    n_skipped = int(np.count_nonzero(order[n_even:] < len(before)))
    order = order[order >= len(before)] - len(before)
    numbers = np.empty(len(order), np.uint32)
    numbers[order] = np.arange(len(order), dtype=np.uint32)
    return numbers[bins], sizes[order], costs[order], n_even - (len(before) - n_skipped), n_skipped
