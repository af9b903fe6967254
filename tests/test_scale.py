"""docs/scale.md equals the output of its script; the simulation follows its rules and agrees with a measured run."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import fastpack
from fastpack.distributed.map_concatenate import MAX_TASKS

FOLDER = Path(__file__).parents[1] / "asv_benchmarks"
MIB = 1 << 20


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> tuple[ModuleType, ModuleType]:
    """Import scale.py and scale_simulation.py."""
    monkeypatch.setattr(sys, "path", [str(FOLDER), *sys.path])
    import scale
    import scale_simulation

    return scale, scale_simulation


@pytest.fixture
def measured() -> Any:
    return json.loads((FOLDER / "scale.json").read_text())


@pytest.mark.slow
def test_the_page_equals_the_output_of_the_script(modules: tuple[ModuleType, ModuleType], measured: Any) -> None:
    scale, _ = modules
    current = scale.PAGE.read_text().split(scale.START)[1].split(scale.END)[0]
    assert current.strip() == scale.page(measured).strip(), "run asv_benchmarks/scale.py --write"


@pytest.mark.parametrize("ray", [False, True])
def test_the_rules_of_the_simulation(modules: tuple[ModuleType, ModuleType], measured: Any, ray: bool) -> None:
    _, simulation = modules
    plan = simulation.plan_of("pack, tokenizers", 10 * simulation.TB, measured)
    assert plan.n_tasks == MAX_TASKS

    def run(cluster: Any, of: Any = plan, seed: int = 0) -> Any:
        return simulation.simulate(of, cluster, measured, ray=ray, seed=seed)

    calm = simulation.Cluster(100, slow_share=0.0, node_life=1e30, calls=1e30, storage=1e30, link=1e30, stream=1e30)
    found = run(calm)
    rounds = -(-plan.n_tasks // 3200)
    least = rounds * plan.task_bytes / plan.rate
    assert least <= found.ranks < 1.1 * least
    assert (found.lost, found.busy) == (0, 1.0)
    assert run(replace(calm, nodes=200)).busy == pytest.approx(MAX_TASKS / 6400)
    assert run(replace(calm, slow_share=1.0)).ranks == pytest.approx(3 * found.ranks, rel=0.1)
    unreliable = replace(calm, node_life=50 * least)
    assert run(unreliable) == run(unreliable)
    results = [run(unreliable, seed=seed) for seed in range(20)]
    assert sum(one.lost for one in results) > 0
    assert all(one.ranks >= found.ranks for one in results)
    crowded = run(replace(calm, calls=50_000))
    assert crowded.planning >= found.planning
    assert (crowded.planning > 2 * found.planning) == (not ray)


@pytest.mark.slow
@pytest.mark.parametrize(("job", "n_bytes"), [("index", 96 * MIB), ("pack, bytes", 48 * MIB)])
def test_a_measured_run_agrees_with_the_simulation(
    job: str, n_bytes: int, modules: tuple[ModuleType, ModuleType], measured: Any, tmp_path: Path
) -> None:
    """The CPU time agrees within a factor of 3, for other input sizes and line lengths than those of scale.json."""
    _, simulation = modules
    import scale_measure

    rng = np.random.default_rng(9)
    lengths = rng.integers(500, 4000, n_bytes // 2250)
    words = "".join(rng.choice(list("abcdefgh  "), 4000).tolist())
    (tmp_path / "text.jsonl").write_text("".join(f'{{"text": "{words[:n]}"}}\n' for n in lengths.tolist()))
    n_bytes = (tmp_path / "text.jsonl").stat().st_size
    given = ["index", "text.jsonl", "--index-path", "out"]
    if job != "index":
        fastpack.create_raw_index(tmp_path / "text.jsonl")
        given = ["pack", "text.jsonl", "--tokenizer", "bytes", "-o", "out.pbin"]
    run = scale_measure.run
    took = run(tmp_path, *given, "--rank", 0, "--world-size", 1).cpu + run(tmp_path, *given, "--collect").cpu
    plan = simulation.plan_of(job, n_bytes, measured)
    one = simulation.Cluster(1, cores=1, slow_share=0.0, node_life=1e30, calls=1e30, link=1e30, stream=1e30)
    simulated = simulation.simulate(plan, one, measured).total
    assert simulated / 3 < took < simulated * 3, f"{took:.2f} s of CPU time, simulated {simulated:.2f} s"
