"""`fastpack merge` and its old name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fastpack import PackedFile, PackedWriter
from fastpack.cli import main


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    """A folder of two packed files of 30 tokens."""
    for number in range(2):
        with PackedWriter(tmp_path / f"packed/{number}.pbin", 2) as writer:
            writer.append_many(range(30), [10, 20])
    return tmp_path / "packed"


@pytest.mark.parametrize("words", [["merge"], ["merge_packed_data"], ["data", "merge_packed_data"]])
def test_merge(packed: Path, capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    target = packed.with_name("all.pbin")
    assert main([*words, str(packed / "0.pbin"), str(packed / "1.pbin"), str(target)]) == 0
    n_bytes = target.stat().st_size
    assert capsys.readouterr() == (f"{target}: 4 documents, 60 tokens, {n_bytes} bytes from 2 files\n", "")
    with PackedFile(target) as file:
        assert file.index[:, 0].tolist() == [0, 20, 60, 80]


def test_a_folder_and_dry_run(packed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = packed.with_name("all.pbin")
    assert main(["merge", str(packed), str(target), "--dry-run", "--json"]) == 0
    planned = json.loads(capsys.readouterr().out)
    assert not target.exists()
    assert main(["merge", str(packed), str(target), "--json"]) == 0
    done = json.loads(capsys.readouterr().out)
    assert planned == done | {"written": False, "dry_run": True}
    assert done["bytes"] == target.stat().st_size
    assert done == {
        "path": str(target),
        "documents": 4,
        "tokens": 60,
        "bytes": done["bytes"],
        "sources": 2,
        "left_out": 0,
        "written": True,
        "kept_existing": False,
        "dry_run": False,
    }


def test_compat_and_token_size(packed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = packed.with_name("all.pbin")
    assert main(["merge", str(packed), str(target), "--compat", "modalities-0.5"]) == 0
    with PackedFile(target) as file:
        assert file.index[:, 0].tolist() == [0, 20, 48, 68]
    assert main(["merge", str(packed), str(target), "--force", "--token_size", "4", "-q"]) == 0
    with PackedFile(target) as file:
        assert file.token_size_in_bytes == 4
    assert capsys.readouterr().out.count("\n") == 1


def test_failures_are_one_line(packed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = packed.with_name("all.pbin")
    (packed / "2.pbin").write_bytes((packed / "1.pbin").read_bytes()[:30])
    assert main(["merge", str(packed), str(target)]) == 1
    assert f"fastpack: error: {packed}/2.pbin: at byte 0" in capsys.readouterr().err
    assert main(["merge", str(packed / "none"), str(target)]) == 1
    assert capsys.readouterr().err == f"fastpack: error: {packed}/none does not exist\n"
    target.write_bytes(b"old")
    assert main(["merge", str(packed / "0.pbin"), str(target)]) == 1
    assert "exists. Pass --force to overwrite it." in capsys.readouterr().err
    assert main(["merge", str(packed / "0.pbin"), str(target), "--file_existence_policy", "skip"]) == 0
    assert capsys.readouterr().out == f"{target}: exists, kept\n"
    assert target.read_bytes() == b"old"


def test_a_warning_goes_to_stderr(packed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = str(packed / "0.pbin")
    assert main(["merge", source, source, str(packed / "all")]) == 0
    assert capsys.readouterr().err == f"merged more than once: {source}\n"


@pytest.mark.parametrize("words", [[], ["one"], ["a", "b", "--compat", "energon"], ["a", "b", "--token-size", "3"]])
def test_usage(words: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["merge", *words])
    assert caught.value.code == 2
