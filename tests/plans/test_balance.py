"""Balanced plans: ranks of a step have nearly the same cost, and the rows are those of the plan without balance."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastpack
from fastpack.plans.balance import even_first
from fastpack.plans.plan_file import PlanFile

Corpus = Callable[..., Path]


def costs_of(plan: PlanFile) -> np.ndarray:
    segments = plan.segments(range(plan.n_rows))
    return np.bincount(segments.row, (segments.end - segments.start).astype(float) ** 2, plan.n_rows)


def ratios_of(costs: np.ndarray, ranks: int, micro_batches: int) -> np.ndarray:
    """Return the largest cost of a rank in each step, divided by the mean."""
    n_steps = len(costs) // (ranks * micro_batches)
    sums = costs[: n_steps * ranks * micro_batches].reshape(n_steps, micro_batches, ranks).sum(axis=1)
    return np.asarray(sums.max(axis=1) / sums.mean(axis=1))


@pytest.mark.parametrize("algorithm", ["best_fit", "first_fit", "none"])
@pytest.mark.parametrize("shard", [1 << 26, 7000])
@pytest.mark.parametrize(("ranks", "micro_batches"), [(8, 1), (8, 4), (3, 2), (64, 1), (64, 2)])
def test_ranks_have_the_same_cost(
    tmp_path: Path, corpus: Corpus, ranks: int, micro_batches: int, shard: int, algorithm: str
) -> None:
    rng = np.random.default_rng(0)
    source = corpus(np.maximum(1, rng.lognormal(4, 1, 20_000)).astype(int).tolist())
    options: dict[str, Any] = {"seq_length": 256, "shard_documents": shard, "algorithm": algorithm, "seed": 5}
    plain = fastpack.plan(source, tmp_path / "plain.plan", **options)
    options |= {"balance": "attention", "data_parallel": ranks, "micro_batches": micro_batches}
    result = fastpack.plan(source, tmp_path / "a.plan", **options)
    costs = costs_of(PlanFile(tmp_path / "a.plan"))
    assert result.n_rows == plain.n_rows == len(costs)
    assert sorted(costs) == sorted(costs_of(PlanFile(tmp_path / "plain.plan")))
    ratios = ratios_of(costs, ranks, micro_batches)
    assert result.uneven_steps == np.count_nonzero(ratios > 1.02)
    assert result.uneven_steps <= (1 if ranks < 10 and micro_batches > 1 else 15)  # of 54 to 1162 steps
    assert result.straggling is not None
    assert result.straggling_before is not None
    assert result.straggling <= 1.015
    assert result.straggling_before > 1.03
    assert result.time_saved == pytest.approx(1 - result.straggling / result.straggling_before)
    steps = costs[: len(ratios) * ranks * micro_batches].reshape(len(ratios), -1).sum(axis=1)
    if len(steps) > 50:
        assert abs(np.corrcoef(np.arange(len(steps)), steps)[0, 1]) < 0.3, "the order of steps is random"


@given(
    lengths=st.lists(st.integers(0, 40), max_size=120),
    options=st.fixed_dictionaries(
        {
            "seq_length": st.sampled_from([4, 7, 16]),
            "algorithm": st.sampled_from(["best_fit", "first_fit", "none"]),
            "max_documents": st.sampled_from([None, 2]),
            "shard_documents": st.sampled_from([7, 1000]),
            "data_parallel": st.sampled_from([1, 2, 3, 5]),
            "micro_batches": st.sampled_from([1, 2, 3]),
            "cost": st.sampled_from([(0.0, 1.0), (5.0, 1.0), (1.0, 0.0)]),
        }
    ),
)
def test_a_balanced_plan_has_the_same_rows(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], options: dict[str, Any]
) -> None:
    folder = tmp_path_factory.mktemp("plan")
    with fastpack.PackedWriter(folder / "a.pbin", 2) as writer:
        writer.append_many(np.arange(sum(lengths)) % 99, lengths)
    result = fastpack.plan(folder / "a.pbin", folder / "a.plan", balance="attention", **options)
    plain = {name: options[name] for name in ("seq_length", "algorithm", "max_documents", "shard_documents")}
    fastpack.plan(folder / "a.pbin", folder / "plain.plan", **plain)
    plans = PlanFile(folder / "a.plan"), PlanFile(folder / "plain.plan")
    rows: list[list[Any]] = []
    for plan in plans:
        segments = plan.segments(range(plan.n_rows))
        rows.append([[] for _ in range(plan.n_rows)])
        for row, *segment in zip(*(column.tolist() for column in segments), strict=True):
            rows[-1][row].append(segment)
    assert sorted(rows[0]) == sorted(rows[1])
    linear, quadratic = options["cost"]
    costs = np.array([sum(linear * (e - s) + quadratic * (e - s) ** 2 for _, s, e in row) for row in rows[0]])
    ratios = ratios_of(costs, options["data_parallel"], options["micro_batches"])
    assert result.uneven_steps is not None
    assert np.count_nonzero(ratios > 1.02 + 1e-9) <= result.uneven_steps


@given(costs=st.lists(st.integers(1, 60), min_size=2, max_size=9), ranks=st.integers(2, 3))
def test_no_other_groups_have_fewer_uneven_steps(costs: list[int], ranks: int) -> None:
    """Compared with all divisions of the rows into groups, of which one is not a whole step."""
    _, n_even = even_first(np.array(costs, float), ranks)

    def most(left: list[int]) -> int:
        best = 0
        for chosen in combinations(range(len(left)), ranks):
            group = [left[k] for k in chosen]
            if max(group) * ranks <= 1.02 * sum(group):
                best = max(best, 1 + most([cost for k, cost in enumerate(left) if k not in chosen]))
        return best

    assert n_even == ranks * most(costs)


def test_the_seed_of_a_balanced_plan(tmp_path: Path, corpus: Corpus) -> None:
    source = corpus([5, 30, 17, 8, 1] * 40)
    found = []
    for name, seed in (("a", None), ("b", 0), ("c", 1)):
        options: dict[str, Any] = {"seq_length": 16, "balance": "attention", "data_parallel": 4, "seed": seed}
        fastpack.plan(source, tmp_path / f"{name}.plan", **options)
        plan = PlanFile(tmp_path / f"{name}.plan")
        assert sorted(plan.stored_rows(np.arange(plan.n_rows)).tolist()) == list(range(plan.n_rows))
        found.append(costs_of(plan).tolist())
    assert found[0] == found[1] != found[2]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"balance": "tokens", "data_parallel": 2}, "found 'tokens'"),
        ({"balance": "attention"}, "pass data_parallel"),
        ({"data_parallel": 2}, "pass balance"),
        ({"balance": "attention", "data_parallel": 0}, "data_parallel: found 0"),
        ({"balance": "attention", "data_parallel": 2, "micro_batches": 0}, "micro_batches: found 0"),
        ({"balance": "attention", "data_parallel": 2, "cost": (0, 0)}, "cost: found 0, 0"),
    ],
)
def test_wrong_arguments(tmp_path: Path, corpus: Corpus, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fastpack.plan(corpus([1]), tmp_path / "a.plan", seq_length=8, **options)


def test_more_ranks_than_rows(tmp_path: Path, corpus: Corpus) -> None:
    result = fastpack.plan(corpus([1, 9]), tmp_path / "a.plan", seq_length=8, balance="attention", data_parallel=64)
    assert (result.straggling_before, result.straggling) == (1.0, 1.0)
    assert len(PlanFile(tmp_path / "a.plan").segments([0, 1]).row) >= 2
