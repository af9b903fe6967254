"""The order of the rows of a balanced plan: which rows the ranks process in each step.

Rows in even groups (see `fastpack.plans.balance`) are in a step with other even groups, in random order. The other rows
are few, mostly the cheapest ones. They make up groups that are not even, and these come in steps of their own, the last
ones before the steps are permuted. If a rank has several rows in a step, expensive even groups are added, and each is
dealt so that the rank with the smallest sum gets the largest row.

The order is a list of rows. As most rows are in even groups, which are stored one after the other, the list begins with
all rows from the stored row `first` on that are not listed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastpack.plans.balance import LIMIT, Balance, Costs, even_first
from fastpack.plans.count_column import Integers
from fastpack.plans.written_rows import WrittenRows

_TRIED = 1000


class StepOrder(NamedTuple):
    """The order of rows before groups and steps are permuted.

    Attributes
    ----------
    first
        The stored row that comes first.
    listed
        The stored rows that come after those that are not listed, int64.
    n_last_steps
        Number of steps, at the end, whose groups stay where they are.
    n_uneven
        Number of steps of which the largest cost of a rank is above LIMIT times the mean.
    """

    first: int
    listed: Integers
    n_last_steps: int
    n_uneven: int


def arrange_steps(written: WrittenRows, n_rows: int, balance: Balance, seq_length: int) -> StepOrder:
    """Return the order of all rows of a plan; n_rows: with those that one document fills, which are stored first."""
    size, n_full = balance.data_parallel, n_rows - written.n_rows
    full_cost = balance.of_one(seq_length)
    first = written.n_skipped
    n_not_listed = n_full - first + written.n_even
    rows = np.append(np.arange(first), np.arange(n_full + written.n_even, n_rows))
    costs = np.append(np.full(first, full_cost), written.other_costs)
    order, n_even = even_first(costs, size)
    rows, costs = rows[order], costs[order]
    n_rest = n_rows % (size * balance.micro_batches)  # rows in no whole step
    n_uneven = len(rows) - n_even - n_rest
    if n_uneven <= 0:
        return StepOrder(first, rows, 0, 0)
    n_before = _rest_before(costs[n_even:], n_rest, size)
    rows[n_even:], costs[n_even:] = np.roll(rows[n_even:], -n_before), np.roll(costs[n_even:], -n_before)
    uneven = slice(n_even, n_even + n_uneven)
    spare = [np.full(min(n_full - first, n_uneven * balance.micro_batches), full_cost), written.even_costs]
    if len(written.even_costs) == written.n_even:
        spare.append(costs[:n_even])
    found = _last_steps(costs[uneven], np.concatenate(spare), balance)
    if found is None:
        return StepOrder(first, rows, 0, n_uneven // size)
    added, dealt, ratios = found
    taken = min(added, n_not_listed)
    of_steps = np.concatenate([rows[uneven], first + np.arange(taken), rows[: added - taken]])[dealt]
    listed = np.concatenate([rows[added - taken : n_even], of_steps, rows[n_even + n_uneven :]])
    return StepOrder(first + taken, listed, len(ratios), int(np.count_nonzero(ratios > LIMIT)))


def _rest_before(costs: Costs, n_rest: int, size: int) -> int:
    """Return how many of `n_rest` rows to leave out are the first ones, so that the groups of the others are most even.

    costs: of rows in no even group, descending.
    """
    n = len(costs) - n_rest
    starts = range(min(n_rest, _TRIED) + 1)
    return min(starts, key=lambda start: size * costs[start : start + n : size].sum() - costs[start : start + n].sum())


def _last_steps(uneven: Costs, spare: Costs, balance: Balance) -> tuple[int, Integers, Costs] | None:
    """Return how many rows of `spare` are added, the order of uneven and added rows, and the ratios of their steps.

    Both are sorted by descending cost in each group. The number of uneven groups in a step is the one that gives the
    fewest uneven steps, and of these the smallest sum of the largest costs. None if there are too few rows to add.
    """
    size, n_groups = balance.data_parallel, len(uneven) // balance.data_parallel
    best = None
    for per_step in {1 << k for k in range(balance.micro_batches.bit_length())} | {balance.micro_batches}:
        n_steps = -(-n_groups // per_step)
        added = n_steps * balance.micro_batches * size - len(uneven)
        if added > len(spare):
            continue
        groups = np.append(uneven, spare[:added]).reshape(balance.micro_batches, n_steps, size)
        dealt, sums = _deal(groups)
        ratios = sums.max(axis=1) / sums.mean(axis=1)
        score = int(np.count_nonzero(ratios > LIMIT)), float(sums.max(axis=1).sum()), n_steps
        if best is None or score < best[0]:
            best = score, added, dealt, ratios
    return None if best is None else best[1:]


def _deal(groups: Costs) -> tuple[Integers, Costs]:
    """Return the order of the rows of groups, float64 [n_in_step, n_steps, n_ranks], step by step, and the sums."""
    n_in_step, n_steps, n_ranks = groups.shape
    sums = np.zeros((n_steps, n_ranks))
    dealt = np.empty((n_steps, n_in_step, n_ranks), np.int64)
    numbers = np.arange(groups.size).reshape(groups.shape)
    for k, costs in enumerate(groups):
        by_cost = np.argsort(-costs, axis=1, kind="stable")
        ranks = np.argsort(sums, axis=1, kind="stable")
        np.put_along_axis(dealt[:, k], ranks, np.take_along_axis(numbers[k], by_cost, 1), 1)
        np.put_along_axis(sums, ranks, np.take_along_axis(sums, ranks, 1) + np.take_along_axis(costs, by_cost, 1), 1)
    return dealt.reshape(-1), sums
