"""`verify` by ranks gives the report and exit code of a local run."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import Cli
from distributed_sources import write_sound_and_damaged

from fastpack.analysis.findings import VerifyReport
from fastpack.analysis.options import VerifyOptions
from fastpack.cli import main
from fastpack.distributed.ranks import run_rank
from fastpack.distributed.verify_tasks import collect_verify, plan_verify
from fastpack.inspection.verify import verify
from fastpack.tokens.pbin.packed_writer import PackedWriter


@pytest.fixture
def folder(tmp_path: Path, golden: Path) -> Path:
    write_sound_and_damaged(tmp_path, golden)
    return tmp_path / "data"


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("deep", [False, True])
def test_report_equals_that_of_a_local_run(
    folder: Path, tmp_path: Path, size: int, deep: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(VerifyReport, "max_findings", 3)
    paths = [folder, tmp_path / "web", folder / "0.pbin", tmp_path / "absent.pbin", tmp_path]
    for vocab_size in (None, 4):
        plan = plan_verify(paths, VerifyOptions(deep=deep, vocab_size=vocab_size))
        for rank in range(size):
            run_rank(plan, rank, size)
        distributed = collect_verify(plan)
        local = [verify(path, deep=deep, vocab_size=vocab_size) for path in paths[:3]]
        assert distributed[:3] == local
        assert local[0].n_more > 0
        assert isinstance(distributed[3], FileNotFoundError)
        assert "not one of what can be verified" in str(distributed[4])


def test_changed_file_is_verified_again(folder: Path) -> None:
    plan = plan_verify([folder / "0.pbin"], VerifyOptions())
    run_rank(plan, 0, 1)
    with PackedWriter(folder / "0.pbin", 2, if_exists="overwrite") as writer:
        writer.append([5])
    assert plan_verify([folder / "0.pbin"], VerifyOptions()).identity != plan.identity


def test_task_files_inside_the_verified_folder_are_ignored(
    folder: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    monkeypatch.chdir(folder)
    for words in (["verify", "."], ["verify", "../web", "--task-folder", "../web/scratch"]):
        expected = main(["verify", words[1]])
        for rank in "01":
            cli(*words, "--rank", rank, "--world-size", "2")
        cli(*words, "--collect", code=expected)
    assert not list(folder.parent.rglob("*.parts"))
