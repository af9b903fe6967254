"""Balanced plans: ranks of a step have nearly the same cost, and the rows are those of the plan without balance."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastpack
from fastpack.plans import pack_bins
from fastpack.plans.plan_file import PlanFile

Corpus = Callable[..., Path]


def costs_of(plan: PlanFile) -> np.ndarray:
    segments = plan.segments(range(plan.n_rows))
    return np.bincount(segments.row, (segments.end - segments.start).astype(float) ** 2, plan.n_rows)


@pytest.mark.parametrize("shard", [1 << 26, 1500])
@pytest.mark.parametrize(("ranks", "micro_batches"), [(8, 1), (8, 4), (3, 2)])
def test_ranks_have_the_same_cost(
    tmp_path: Path, corpus: Corpus, ranks: int, micro_batches: int, shard: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pack_bins, "SHARD_DOCUMENTS", shard)
    rng = np.random.default_rng(0)
    source = corpus(np.maximum(1, rng.lognormal(4, 1, 5000)).astype(int).tolist())
    options: dict[str, Any] = {"seq_length": 256, "data_parallel": ranks, "micro_batches": micro_batches, "seed": 5}
    plain = fastpack.plan(source, tmp_path / "plain.plan", seq_length=256, seed=5)
    result = fastpack.plan(source, tmp_path / "a.plan", balance="attention", **options)
    plan = PlanFile(tmp_path / "a.plan")
    costs = costs_of(plan)
    assert result.n_rows == plain.n_rows == len(costs)
    assert sorted(costs) == sorted(costs_of(PlanFile(tmp_path / "plain.plan")))
    n_used = len(costs) // (ranks * micro_batches) * ranks * micro_batches
    of_ranks = costs[:n_used].reshape(-1, micro_batches, ranks).sum(axis=1)
    straggling = of_ranks.max(axis=1) / of_ranks.mean(axis=1)
    assert straggling.mean() <= (1.02 if shard > 5000 else 1.04)  # each shard has its own few rows that are not full
    assert result.straggling is not None
    assert result.straggling_before is not None
    assert result.straggling == pytest.approx(straggling.mean(), abs=0.01)
    assert result.straggling_before > 1.05
    assert result.time_saved == pytest.approx(1 - result.straggling / result.straggling_before)
    steps = of_ranks.sum(axis=1)
    assert abs(np.corrcoef(np.arange(len(steps)), steps)[0, 1]) < 0.3, "the order of steps is random"


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
        ({"balance": "attention", "data_parallel": 2, "algorithm": "none"}, "choose another one"),
    ],
)
def test_wrong_arguments(tmp_path: Path, corpus: Corpus, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fastpack.plan(corpus([1]), tmp_path / "a.plan", seq_length=8, **options)


def test_more_ranks_than_rows(tmp_path: Path, corpus: Corpus) -> None:
    result = fastpack.plan(corpus([1, 9]), tmp_path / "a.plan", seq_length=8, balance="attention", data_parallel=64)
    assert (result.straggling_before, result.straggling) == (1.0, 1.0)
    assert len(PlanFile(tmp_path / "a.plan").segments([0, 1]).row) >= 2
