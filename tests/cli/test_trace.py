"""`fastpack trace`."""

from __future__ import annotations

import json
from pathlib import Path

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


def test_wrong_questions(run: Path, cli: Cli) -> None:
    assert "--text requires --step and --tokenizer" in cli("trace", run, "--step", 0, "--text", code=1).err
    assert "is not FILE:NUMBER" in cli("trace", run, "--document", "a", code=1).err
    assert "rank 3: step 0 had 1 ranks" in cli("trace", run, "--step", 0, "--rank", 3, code=1).err
    assert "one of the arguments" in cli("trace", run, code=2).err
