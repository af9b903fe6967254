"""quickstart: from text to batches; the reported numbers match the files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import orjson
import pytest
from command_line import Cli

import fastpack
from fastpack.cli import main
from fastpack.cli.quickstart import texts

STAGES = ["gather", "index", "pack", "batches"]


def test_real_text_becomes_batches(tmp_path: Path, cli: Cli) -> None:
    words = ["quickstart", str(tmp_path / "q"), "--seq-len", "512", "--batch-size", "8", "--seconds", "0.2", "--json"]
    result = json.loads(cli(*words).out)
    assert [stage["stage"] for stage in result["stages"]] == STAGES
    assert all(stage["seconds"] > 0 and stage["rate"] > 0 for stage in result["stages"])
    assert result["memcpy_ratio"] > 0
    lines = [orjson.loads(line) for line in Path(result["files"]["jsonl"]).read_bytes().splitlines()]
    assert len(lines) > 300
    assert {Path(line["path"]).suffix for line in lines} == {".py", ".txt"}
    documents = fastpack.PackedMemMapDatasetBase(result["files"]["pbin"], "tokens")
    assert len(documents) == len(lines) == len(fastpack.read_raw_index(result["files"]["idx"]))
    for i in (0, len(lines) // 2, len(lines) - 1):
        tokens = documents[i]["tokens"]
        assert tokens[-1] == 256
        assert tokens[:-1].astype(np.uint8).tobytes().decode() == lines[i]["text"]


def test_one_line_per_stage_and_a_second_run_replaces_the_first(tmp_path: Path, cli: Cli) -> None:
    for _ in range(2):
        lines = cli("quickstart", tmp_path, "--seconds", "0").out.splitlines()
        assert [line.split()[0] for line in lines[:4]] == STAGES
        n_bytes = sum(path.stat().st_size for path in tmp_path.iterdir())
        assert lines[4].endswith(
            f" x memcpy of the same arrays; files of {n_bytes / 1e6:.1f} MB in {tmp_path.resolve()}"
        )
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "stdlib.idx",
        "stdlib.jsonl",
        "stdlib.pbin",
        "stdlib.pbin.fptok",
    ]


@pytest.mark.parametrize("words", [["DIR"], ["--keep", "DIR"]])
def test_a_named_folder_is_kept(words: list[str], tmp_path: Path, cli: Cli) -> None:
    words = [word.replace("DIR", str(tmp_path / "kept")) for word in words]
    result = cli.json("quickstart", *words, "--seconds", "0")
    paths = [Path(path) for path in result["files"].values()]
    assert {path.parent for path in paths} == {(tmp_path / "kept").resolve()}
    assert result["bytes"] == sum(path.stat().st_size for path in paths)


def test_without_a_folder_no_files_remain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    (tmp_path / "current").mkdir()
    (tmp_path / "temporary").mkdir()
    monkeypatch.chdir(tmp_path / "current")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    assert cli("quickstart", "--seconds", "0").out.endswith(
        " MB in a temporary folder, now removed (--keep DIR keeps them)\n"
    )
    result = cli.json("quickstart", "--seconds", "0")
    assert result["bytes"] > 1_000_000
    assert result["files"] is None
    assert [*(tmp_path / "current").iterdir(), *(tmp_path / "temporary").iterdir()] == []


def test_a_batch_larger_than_the_corpus_is_reduced(tmp_path: Path, cli: Cli) -> None:
    words = ["quickstart", str(tmp_path), "--seconds", "0", "--seq-len", "4000000", "--batch-size", "64"]
    assert "of [" in cli(*words).out


def test_usage(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--seq-len", "0"], ["--batch-size", "-1"], ["a", "--keep", "b"]):
        with pytest.raises(SystemExit) as stopped:
            main(["quickstart", *words])
        assert stopped.value.code == 2
    errors = capsys.readouterr().err
    assert errors.count("is not at least 1") == 2
    assert "not allowed with argument" in errors


def test_files_that_are_not_utf8_are_skipped(tmp_path: Path) -> None:
    (tmp_path / "site-packages").mkdir()
    (tmp_path / "site-packages" / "other.py").write_text("x")
    (tmp_path / "latin.py").write_bytes(b"# \xe9")
    (tmp_path / "empty.py").touch()
    (tmp_path / "b.txt").write_text("bé", encoding="utf-8")
    (tmp_path / "a.py").write_text("a")
    (tmp_path / "c.rst").write_text("c")
    assert list(texts(tmp_path)) == [("a.py", "a"), ("b.txt", "bé")]
