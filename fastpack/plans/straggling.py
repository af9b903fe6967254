"""The time that ranks wait for the slowest one, by a cost model."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fastpack.plans.balance import Balance
from fastpack.plans.count_column import Integers
from fastpack.plans.plan_file import PlanFile

_SAMPLED = 4096  # steps whose costs are compared


def measure_balance(plan: PlanFile, balance: Balance, seed: int) -> tuple[float, float]:
    """Return the largest cost of a rank, summed over steps, divided by the mean: in random order, and in the plan's.

    At most 4,096 random steps are read. Both are 1 if there is no whole step.
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
    return float(ranks.max(axis=1).sum() / ranks.mean(axis=1).sum())
