"""`fastpack trace`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from command_line import Cli

import fastpack

TEXTS = [b"first document", b"second", b"the third document of the corpus"]
EOS = 256


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Describe a run over three documents whose tokens are bytes, of which step 1 is skipped."""
    with fastpack.PackedWriter(tmp_path / "a.pbin", token_size_in_bytes=2) as writer:
        for text in TEXTS:
            writer.append([*text, EOS])
    dataset = fastpack.PackedMemMapDatasetContinuous(tmp_path / "a.pbin", "text", 13, True, eos_token_id=EOS)
    sampler = fastpack.DistributedSampler(dataset, 1, 0, shuffle=False)
    loader = fastpack.StatefulDataLoader(dataset, 1, sampler, prefetch=0)
    loader.skip(steps=(1, 1))
    assert len(list(loader)) == len(dataset) - 1
    (tmp_path / "run.json").write_text(json.dumps(loader.describe()))
    return tmp_path / "run.json"


def test_a_step_as_text(run: Path, cli: Cli) -> None:
    path = run.parent / "a.pbin"
    assert cli("trace", run, "--step", 1, "--text", "--tokenizer", "bytes").out.splitlines() == [
        "step 1 was skipped; it would have contained:",
        f"rank 0  row 0  dataset  {path}  document 0  tokens 12 to 15",
        "    nt<|endoftext|>",
        f"rank 0  row 0  dataset  {path}  document 1  tokens 15 to 22",
        "    second<|endoftext|>",
        f"rank 0  row 0  dataset  {path}  document 2  tokens 22 to 25",
        "    the",
    ]


def test_a_step_and_a_document_as_json(run: Path, cli: Cli) -> None:
    rows = cli.json("trace", run, "--step", 0, "--rank", 0)["rows"]
    assert [(row["document"], row["start"], row["end"], row["column"]) for row in rows] == [(0, 0, 13, 0)]
    found = cli.json("trace", run, "--document", f"{run.parent / 'a.pbin'}:1")
    assert [(row["step"], row.get("skipped", False)) for row in found["rows"]] == [(1, True)]
    assert cli("trace", run, "--document", f"{run.parent / 'a.pbin'}:1").out == (
        "step 1  rank 0  row 0  dataset  (skipped)\n"
    )


def test_a_step_that_the_run_has_not_reached(run: Path, cli: Cli) -> None:
    found = cli.json("trace", run, "--step", 10_000)
    assert found["step"] > found["steps"] == json.loads(run.read_text())["run"]["step"]
    lines = cli("trace", run, "--step", 10_000).out.splitlines()
    assert lines[0] == f"the run has had {found['steps']} steps; step 10000 is predicted, as if nothing changed:"
    assert lines[1].startswith("rank 0  row 0  dataset")


def test_files_that_changed_and_descriptions_that_are_none(run: Path, cli: Cli) -> None:
    path = run.parent / "a.pbin"
    with fastpack.PackedWriter(path, token_size_in_bytes=2, if_exists="overwrite") as writer:
        writer.append([*b"another corpus of one document", EOS])
    err = cli("trace", run, "--step", 0, code=1).err
    assert "a.pbin" in err
    assert "is not the dataset of the run: its files changed (it has 2 samples, the run's had 4)" in err
    path.unlink()
    assert f"{path}: No such file" in cli("trace", run, "--step", 0, code=1).err
    (run.parent / "other.json").write_text("{}")
    assert "this is not the description of a run" in cli("trace", run.parent / "other.json", "--step", 0, code=1).err
    description = {**json.loads(run.read_text()), "version": 99}
    run.write_text(json.dumps(description))
    assert "of version 99, this fastpack reads" in cli("trace", run, "--step", 0, code=1).err


def test_the_mixture_of_an_old_step(tmp_path: Path, cli: Cli) -> None:
    """A state keeps the newest changes of a mixture; a description made from it says from which step on."""
    paths = [tmp_path / "a.npy", tmp_path / "b.npy"]
    for path in paths:
        np.save(path, np.arange(400, dtype=np.uint16))
    parts = [fastpack.MemoryMappedDataset(path, 5) for path in paths]
    dataset, state = fastpack.MixtureDataset(parts, ["a", "b"]), None
    for _ in range(2):
        sampler = fastpack.MixtureSampler(dataset.cumulative_sizes, [1, 1], 1, 0, no_repeat=True, names=["a", "b"])
        loader = fastpack.StatefulDataLoader(dataset, 1, sampler, prefetch=0)
        if state is not None:
            loader.load_state_dict(state)
        iter(loader)
        for step in range(0 if state else 400):
            sampler.update_weights([1, step + 1])
            if next(loader, None) is None:
                next(iter(loader))
        state = loader.state_dict()
    (tmp_path / "run.json").write_text(json.dumps(loader.describe()))
    err = cli("trace", tmp_path / "run.json", "--step", 3, code=1).err
    first = int(err.partition("from step ")[2].split()[0])
    assert "the mixture of step 3 is not in this description" in err
    assert cli("trace", tmp_path / "run.json", "--step", first).out


def test_wrong_questions(run: Path, cli: Cli) -> None:
    assert "--text requires --step and --tokenizer" in cli("trace", run, "--step", 0, "--text", code=1).err
    assert "is not FILE:NUMBER" in cli("trace", run, "--document", "a", code=1).err
    assert "rank 3: step 0 had 1 ranks" in cli("trace", run, "--step", 0, "--rank", 3, code=1).err
    assert "one of the arguments" in cli("trace", run, code=2).err
