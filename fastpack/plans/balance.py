"""Balanced plans: the rows that the ranks process at the same time have nearly the same cost.

The rows of a plan are stored by descending cost. A group is one row for each rank; groups are permuted by the seed, the
rows in a group stay together. Every second group is reversed, so that no rank always gets the larger rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fastpack.errors import spoken
from fastpack.plans.count_column import Integers

if TYPE_CHECKING:
    from fastpack.plans.plan_file import PlanFile

_SAMPLED = 4096  # steps whose costs are compared


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


def measure_balance(plan: PlanFile, balance: Balance, seed: int) -> tuple[float, float]:
    """Return the mean over steps of the largest cost of a rank divided by the mean: in random order, and in the plan's.

    At most 4,096 steps are read. Both are 1 if there is no whole step.
    """
    per_step = balance.data_parallel * balance.micro_batches
    n_steps = plan.n_rows // per_step
    if n_steps == 0:
        return 1.0, 1.0
    rng = np.random.default_rng(seed)
    steps = np.unique(rng.integers(0, n_steps, min(n_steps, max(1, (1 << 22) // per_step), _SAMPLED)))
    rows = (steps[:, None] * per_step + np.arange(per_step)).reshape(-1)
    drawn = rng.integers(0, plan.n_rows, len(rows))
    return _straggling(_costs(plan, drawn, balance), balance), _straggling(_costs(plan, rows, balance), balance)


def _costs(plan: PlanFile, rows: Integers, balance: Balance) -> npt.NDArray[np.float64]:
    segments = plan.segments(rows)
    return balance.costs(segments.row, segments.end - segments.start, len(rows))


def _straggling(costs: npt.NDArray[np.float64], balance: Balance) -> float:
    ranks = costs.reshape(-1, balance.micro_batches, balance.data_parallel).sum(axis=1)
    return float((ranks.max(axis=1) / ranks.mean(axis=1)).mean())
