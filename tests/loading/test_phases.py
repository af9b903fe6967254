"""Phases and annealing as KempnerForge's training loop applies them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastpack import MixtureSampler, PhaseSchedule, TrainingPhase

PEER = json.loads((Path(__file__).parents[1] / "golden" / "kempnerforge" / "mixture_sampler.json").read_text())
NAMES, WEIGHTS = ["web", "code", "books"], [0.5, 0.3, 0.2]
PHASES = [TrainingPhase(4, {"books": 0.9}, 0.5), TrainingPhase(7, {"web": 1.0, "code": 0.0}, 0.1)]


class Recorder:
    """A sampler that records its weights."""

    def __init__(self) -> None:
        self.given: list[tuple[list[float], float]] = []

    def update_weights(self, weights: list[float], temperature: float = 1.0) -> None:
        self.given.append((list(weights), temperature))


def test_phases_start_at_their_step_and_do_not_accumulate() -> None:
    sampler = Recorder()
    schedule = PhaseSchedule(PHASES, sampler, NAMES, WEIGHTS, temperature=2.0)
    assert [schedule.advance(step) for step in range(1, 10)] == [
        *[(False, 1.0)] * 3, (True, 0.5), *[(False, 0.5)] * 2, (True, 0.1), *[(False, 0.1)] * 2,
    ]  # fmt: skip
    assert sampler.given == [([0.5, 0.3, 0.9], 2.0), ([1.0, 0.0, 0.2], 2.0)]
    assert schedule.phase_idx == 2


def test_a_restart_replays_every_phase_up_to_its_step() -> None:
    for step in range(10):
        going, restarted = Recorder(), Recorder()
        schedule = PhaseSchedule(PHASES, going, NAMES, WEIGHTS)
        for done in range(1, step + 1):
            schedule.advance(done)
        again = PhaseSchedule(PHASES, restarted, NAMES, WEIGHTS)
        again.advance(step)
        assert restarted.given == going.given
        assert (again.lr_scale, again.phase_idx) == (schedule.lr_scale, schedule.phase_idx)


def test_one_step_may_start_several_phases_in_any_order() -> None:
    sampler = Recorder()
    schedule = PhaseSchedule(PHASES[::-1], sampler, NAMES, WEIGHTS)
    assert schedule.advance(100) == (True, 0.1)
    assert len(sampler.given) == 2


def test_annealing_is_one_phase_with_an_unchanged_learning_rate() -> None:
    sampler = Recorder()
    schedule = PhaseSchedule.annealing(3, {"code": 5.0}, sampler, NAMES, WEIGHTS)
    assert [schedule.advance(step) for step in (2, 3, 4)] == [(False, 1.0), (True, 1.0), (False, 1.0)]
    assert sampler.given == [([0.5, 5.0, 0.2], 1.0)]
    assert PhaseSchedule.annealing(1, {"code": 5.0}).phases == [TrainingPhase(1, {"code": 5.0})]
    assert PhaseSchedule.annealing(0, {"code": 5.0}, sampler, NAMES, WEIGHTS).phases == []
    assert PhaseSchedule.annealing(9, {}, sampler, NAMES, WEIGHTS).phases == []


def test_without_a_sampler_only_the_learning_rate_changes() -> None:
    schedule = PhaseSchedule([TrainingPhase(1, {"anything": 1.0}, 0.25)])
    assert schedule.advance(5) == (False, 0.25)


def test_a_phase_within_an_epoch_matches_kempnerforge() -> None:
    (case,) = [case for case in PEER if case.get("steps") and case["steps"][1]["op"][0] == "weights"]
    kinds = [step["op"][0] for step in case["steps"][:5]]
    assert kinds == ["iter", "weights", "iter", "skip", "iter"]
    start = [0, *np.cumsum(case["sizes"]).tolist()]
    second = dict(zip(NAMES, case["steps"][1]["op"][1], strict=True))
    for resumed in (False, True):
        sampler = MixtureSampler(start, case["weights"], **case["kw"])
        schedule = PhaseSchedule([TrainingPhase(5, second)], sampler, NAMES, case["weights"])
        changes = [schedule.advance(step).weights_changed for step in ([5] if resumed else range(1, 6))]
        assert changes == [*[False] * (len(changes) - 1), True]
        assert sampler.target_counts == case["steps"][1]["target_counts"]
        sampler.set_skip(case["steps"][3]["op"][1])  # as the loader does for the batches yielded so far
        assert list(sampler) == case["steps"][4]["out"]["full"]
        whole = np.asarray(list(sampler), "<i8").tobytes()
        assert hashlib.sha256(whole).hexdigest() == case["steps"][2]["out"]["sha256"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((-1,), "start_step must be non-negative"),
        ((3, {"web": -1.0}), "must be non-negative"),
        ((3, {}, 0.0), "lr_scale must be positive"),
    ],
)
def test_invalid_phases_are_refused(arguments: tuple[Any, ...], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        TrainingPhase(*arguments)


def test_phases_with_the_same_start_step_are_refused() -> None:
    with pytest.raises(ValueError, match="strictly increasing"):
        PhaseSchedule([TrainingPhase(3), TrainingPhase(3)], Recorder(), NAMES, WEIGHTS)


def test_an_unknown_dataset_is_ignored_with_a_warning() -> None:
    sampler = Recorder()
    with pytest.warns(UserWarning, match=r"names \['wob'\], the datasets are"):
        schedule = PhaseSchedule([TrainingPhase(3, {"wob": 1.0, "web": 2.0})], sampler, NAMES, WEIGHTS)
    schedule.advance(3)
    assert sampler.given == [([2.0, 0.3, 0.2], 1.0)]


def test_names_and_weights_must_match() -> None:
    with pytest.raises(ValueError, match="3 names and 2 weights"):
        PhaseSchedule([], Recorder(), NAMES, WEIGHTS[:2])
