"""`verify` by ranks gives the report and exit code of a local run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from fastpack.analysis.findings import VerifyReport
from fastpack.analysis.options import VerifyOptions
from fastpack.cli import main
from fastpack.distributed.ranks import run_rank
from fastpack.distributed.verify_tasks import collect_verify, plan_verify
from fastpack.documents.create_index import create_raw_index
from fastpack.documents.raw_index import write_raw_index
from fastpack.inspection.verify import verify
from fastpack.tokens.pbin.packed_writer import PackedWriter


@pytest.fixture
def folder(tmp_path: Path, golden: Path) -> Path:
    """Write sound and damaged files of all kinds, one with checksums, and a WebDataset."""
    data = tmp_path / "data"
    data.mkdir()
    for number in range(4):
        with PackedWriter(data / f"{number}.pbin", 2) as writer:
            for length in range(1, 30):
                writer.append([number + 1] * length)
    content = bytearray((data / "1.pbin").read_bytes())
    content[200:204] = b"\xff\xff\xff\xff"
    (data / "1.pbin").write_bytes(content)
    (data / "2.pbin").write_bytes((data / "2.pbin").read_bytes()[:-9])
    for name in ("a", "b"):
        (data / f"{name}.jsonl").write_text('{"a": 1}\n' * 50)
        create_raw_index(data / f"{name}.jsonl")
    write_raw_index(data / "b.idx", [(0, 8), (9, 3)] + [(18 + 9 * k, 8) for k in range(1500)])
    assert main(["verify", str(data / "3.pbin"), "--write-checksums", "-q"]) == 0
    (data / "3.pbin").write_bytes((data / "3.pbin").read_bytes() + b"x")
    shutil.copytree(golden / "energon" / "split", tmp_path / "web")
    return data


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


def test_command_line(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for paths, code in (([folder], 3), ([folder / "0.pbin"], 0), ([folder / "0.pbin", tmp_path / "absent.pbin"], 1)):
        words = ["verify", *map(str, paths)]
        assert main([*words, "--json"]) == code
        local = capsys.readouterr()
        assert main([*words, "--collect", "--task-folder", str(tmp_path / "scratch")]) == 1
        assert "are not done" in capsys.readouterr().err
        for rank in "01":
            command = [*words, "--task-folder", str(tmp_path / "scratch"), "--json"]
            assert main([*command, "--rank", rank, "--world-size", "2"]) == 0
        assert json.loads(capsys.readouterr().out.splitlines()[-1])["left"] == 0
        assert main([*command, "--collect"]) == code
        assert capsys.readouterr() == local
    assert not list((tmp_path / "scratch").iterdir())
    assert main(["verify", str(tmp_path / "absent.pbin"), "--collect"]) == 1
    assert "absent.pbin" in capsys.readouterr().err
    assert main(["verify", str(folder), "--collect", "--write-checksums"]) == 2


def test_changed_file_is_verified_again(folder: Path) -> None:
    plan = plan_verify([folder / "0.pbin"], VerifyOptions())
    run_rank(plan, 0, 1)
    with PackedWriter(folder / "0.pbin", 2, if_exists="overwrite") as writer:
        writer.append([5])
    assert plan_verify([folder / "0.pbin"], VerifyOptions()).identity != plan.identity


def test_task_files_inside_the_verified_folder_are_ignored(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    for words in (["verify", "."], ["verify", "../web", "--task-folder", "../web/scratch"]):
        expected = main(["verify", words[1]])
        for rank in "01":
            assert main([*words, "--rank", rank, "--world-size", "2"]) == 0
        assert main([*words, "--collect"]) == expected
        capsys.readouterr()
    assert not list(folder.parent.rglob("*.parts"))
