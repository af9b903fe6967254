"""Descriptions of runs that earlier versions wrote are read for ever."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import described_runs
import pytest

import fastpack
from fastpack.inspection.trace import TracedRun
from fastpack.loading.run_description import VERSION

RUNS = Path(__file__).parent.parent / "golden" / "runs"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Write the files that the runs read, and go there."""
    folder, before = tmp_path_factory.mktemp("runs"), Path.cwd()
    os.chdir(folder)
    described_runs.write_data(folder)
    yield folder
    os.chdir(before)


def test_every_version_has_golden_files() -> None:
    """A format that changes needs another version, and its files: see make_run_descriptions.py."""
    found = {path.name: {file.stem for file in path.iterdir()} for path in RUNS.iterdir()}
    assert found == {f"version-{number + 1}": set(described_runs.RUNS) for number in range(VERSION)}


@pytest.mark.parametrize("path", sorted(RUNS.glob("*/*.json")), ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_steps_of_a_golden_run(data: Path, path: Path) -> None:
    saved = json.loads(path.read_text())
    run = TracedRun(saved["description"])
    assert run.order.n_steps == len(saved["samples"]) == 40
    for step, expected in enumerate(saved["samples"]):
        found = run.rows(step, documents=False)
        assert all(row.get("skipped", False) == (not expected) for row in found)
        for rank, samples in enumerate(expected):
            own = {row["row"]: row["sample"] for row in found if row["rank"] == rank}
            assert list(own.values()) == samples


@pytest.mark.parametrize("name", described_runs.RUNS)
def test_runs_are_described_as_the_golden_files_say(data: Path, name: str) -> None:
    """What `describe()` returns changes only together with the version."""
    saved = json.loads((RUNS / f"version-{VERSION}" / f"{name}.json").read_text())
    description, samples = described_runs.run(name)
    assert json.loads(json.dumps(description)) == saved["description"]
    assert samples == saved["samples"]


def test_the_state_of_a_golden_run_is_resumed(data: Path) -> None:
    """A history that an earlier version encoded continues: the samples after it are those that trace predicts."""
    for path in sorted(RUNS.glob("*/no-repeat.json")):
        saved = json.loads(path.read_text())["description"]
        sampler = described_runs.no_repeat(described_runs.mixture(), 1, 0)
        sampler.load_state_dict({"epoch": 0, "mixture": saved["sampler"]["mixture"]})
        sampler.resume_at(saved["run"]["samples"], 2)
        expected = [row["sample"] for step in (40, 41, 42) for row in fastpack.trace(saved, step=step, documents=False)]
        assert sampler.indices()[:12].tolist() == expected
