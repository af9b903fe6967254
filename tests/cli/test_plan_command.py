"""`fastpack plan`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from command_line import Cli

import fastpack


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    with fastpack.PackedWriter(tmp_path / "a.pbin", 2) as writer:
        writer.append_many(np.arange(20), lengths=[5, 11, 1, 3])
    return tmp_path / "a.pbin"


def test_the_result_is_printed(packed: Path, cli: Cli) -> None:
    out = packed.with_name("a.plan")
    found = cli.json("plan", packed, "--seq-len", "8", "-o", out)
    assert (found["n_rows"], found["n_padding"], found["padding_share"], found["written"]) == (3, 4, 4 / 24, True)
    assert "exists" in cli("plan", packed, "--seq-len", "8", "-o", out, code=1).err
    assert "exists, kept" in cli("plan", packed, "--seq-len", "8", "-o", out, "--if-exists", "skip").out
    text = cli("plan", packed, "--seq-len", "8", "-o", out, "--force", "--long", "truncate", "--seed", "3").out
    assert "3 rows of 8 tokens: 4 documents, 17 tokens" in text
    assert "left out: 3 tokens at the end of long documents" in text


def test_messages_name_the_flags(packed: Path, cli: Cli, tmp_path: Path) -> None:
    out = packed.with_name("a.plan")
    assert "--repeat: found 2 numbers" in cli("plan", packed, "--repeat", 1, 2, "--seq-len", 8, "-o", out, code=1).err
    np.save(tmp_path / "a.npy", np.arange(5, dtype=np.uint16))
    assert "pass --eos-token-id" in cli("plan", tmp_path / "a.npy", "--seq-len", 8, "-o", out, code=1).err
    assert not out.exists()


def test_documents_are_padded_to_multiples(packed: Path, cli: Cli) -> None:
    found = cli.json("plan", packed, "--seq-len", 8, "--pad-to-multiple", 4, "-o", packed.with_name("a.plan"))
    assert (found["n_rows"], found["n_tokens"], found["n_padding"]) == (4, 20, 12)
    words = ("plan", packed, "--seq-len", 8, "--pad-to-multiple", 3, "-o", packed.with_name("b.plan"))
    assert "--pad-to-multiple: found 3, expected a divisor of --seq-len 8" in cli(*words, code=1).err


def test_a_plan_is_inspected_and_verified(packed: Path, cli: Cli) -> None:
    plan = packed.with_name("a.plan")
    cli("plan", packed, "--seq-len", 8, "-o", plan)
    assert "seq length             8" in cli("info", plan).out
    assert "3 rows, 4 documents: sound" in cli("verify", plan).out
    plan.write_bytes(plan.read_bytes()[:-1])
    assert "found a file of" in cli("verify", plan, code=3).out
    assert "found a file of" in cli("info", plan, code=1).err
