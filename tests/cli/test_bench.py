"""bench: all kinds of data, consistent numbers, and messages about missing packages."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from command_line import Cli

import fastpack
from fastpack.cli import main
from fastpack.cli.bench import share_in_cache

PBIN = Path(__file__).parents[1] / "golden" / "modalities" / "pbin" / "docs_bpe2000.pbin"
SMALL = ["--seq-len", "64", "--batch-size", "4", "--seconds", "0.05"]


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    for number in range(2):
        np.save(tmp_path / f"{number}.npy", rng.integers(0, 50, 20_000, dtype=np.uint16))
    return tmp_path


@pytest.mark.parametrize("packed", [False, True])
def test_folders_of_shards(shards: Path, packed: bool, cli: Cli) -> None:
    found = cli.json("bench", *SMALL, str(shards), *(["--eos-token-id", "3"] if packed else []))
    assert found["samples"] == 2 * (20_000 // 65)
    assert found["outputs"] == ["input_ids", "labels"] + ["doc_ids"] * packed
    assert (found["seq_len"], found["batch_size"], found["path"]) == (64, 4, str(shards))
    for side in ("warm", "cold", "memcpy"):
        assert found[side]["tokens_per_second"] > 0
        assert found[side]["tokens_per_cpu_second"] > 0
    ratio = found["warm"]["tokens_per_cpu_second"] / found["memcpy"]["tokens_per_cpu_second"]
    assert found["memcpy_ratio"] == pytest.approx(ratio, abs=0.001)
    assert 0 <= found["cold"]["in_cache_before"] <= 1


def test_packed_files_and_raw_shards(tmp_path: Path, cli: Cli) -> None:
    assert cli.json("bench", *SMALL, str(PBIN), "--eos_token_id", "0")["samples"] == (9239 - 65) // 64 + 1
    (tmp_path / "a.bin").write_bytes(np.arange(4000, dtype="<u4").tobytes())
    assert cli.json("bench", *SMALL, str(tmp_path))["samples"] == 4000 // 65
    assert cli.json("bench", *SMALL, str(tmp_path), "--file_pattern", "a.*")["samples"] == 4000 // 65


def test_rows_of_a_plan(tmp_path: Path, cli: Cli) -> None:
    n_rows = fastpack.plan(PBIN, tmp_path / "a.plan", seq_length=256).n_rows
    found = cli.json("bench", *SMALL, str(tmp_path / "a.plan"))
    assert (found["samples"], found["seq_len"]) == (n_rows, 256)
    assert found["outputs"] == ["input_ids", "labels", "doc_ids"]


def test_text_output_has_one_line_per_measurement(shards: Path, cli: Cli) -> None:
    lines = cli("bench", shards, *SMALL).out.splitlines()
    for line, start in zip(lines, ("fastpack, files in memory", "fastpack, files dropped", "memcpy"), strict=False):
        assert line.startswith(start)
        assert "Mtok/s of CPU" in line
    assert "x memcpy" in lines[0]


def test_torch_is_measured_if_installed(shards: Path, cli: Cli) -> None:
    pytest.importorskip("torch", reason="torch is not installed: its DataLoader cannot be measured")
    assert cli.json("bench", *SMALL, str(shards))["torch"]["tokens_per_cpu_second"] > 0
    assert cli("bench", shards, *SMALL).out.splitlines()[3].startswith("torch DataLoader, sample by sample")


def test_a_missing_torch_is_reported(shards: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "fastpack.torch", raising=False)
    monkeypatch.setitem(sys.modules, "torch", None)
    printed = cli("bench", shards, *SMALL)
    assert len(printed.out.splitlines()) == 3
    assert printed.err.splitlines()[-1] == "torch is not installed: its DataLoader was not measured"
    assert cli.json("bench", *SMALL, str(shards), "--quiet")["torch"] is None


def test_few_and_no_samples(shards: Path, cli: Cli) -> None:
    assert cli.json("bench", shards, "--seq-len", "15000", "--seconds", "0.01")["batch_size"] == 2
    assert (
        "holds no sample of 30001 tokens: choose a shorter --seq-len"
        in cli("bench", shards, "--seq-len", "30000", code=1).err
    )
    cli("bench", shards / "missing", code=1)
    with pytest.raises(SystemExit):
        main(["bench", str(shards), "--batch-size", "0"])


def test_the_share_in_the_page_cache(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 10_000)
    (tmp_path / "empty").touch()
    assert share_in_cache([tmp_path / "a", tmp_path / "empty"]) == 1  # just written
    assert share_in_cache([tmp_path / "empty"]) == 0
