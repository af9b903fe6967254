"""`fastpack mount`, without a real mount."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fastpack.cli import main


@pytest.fixture
def mounted(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """A replacement for mfusepy that records the mounts."""
    calls: list[dict[str, Any]] = []

    def mount(operations: Any, target: str, **options: Any) -> None:
        calls.append({"operations": operations, "target": target, **options})
        if options["foreground"]:
            operations.init("/")

    monkeypatch.setitem(sys.modules, "mfusepy", SimpleNamespace(FUSE=mount))
    return calls


@pytest.mark.parametrize("options", [[], ["-s", "-d"], ["--sample_folders", "--detach", "-q"]])
def test_options_are_passed_to_fuse(
    golden: Path, tmp_path: Path, mounted: list[dict[str, Any]], options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["mount", str(golden / "energon" / "split"), str(tmp_path), *options]) == 0
    (call,) = mounted
    assert call["target"] == str(tmp_path)
    assert call["foreground"] == (not options)
    assert call["ro"] is True
    name = "/train_part_00_0/jpg" if options else "/train_part_00_0.jpg"
    assert call["operations"].getattr(name)["st_size"] == 631
    assert bool(capsys.readouterr().err) == ("-q" not in options)


def test_unmountable_datasets_are_errors(
    golden: Path, tmp_path: Path, mounted: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["mount", str(golden / "energon" / "split"), str(tmp_path / "absent")]) == 1
    assert "absent: Not a directory" in capsys.readouterr().err
    assert main(["mount", str(tmp_path), str(tmp_path)]) == 1
    assert "is not prepared" in capsys.readouterr().err
    assert mounted == []


def test_missing_or_failing_fuse_is_an_error(
    golden: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    dataset = str(golden / "energon" / "split")
    monkeypatch.setitem(sys.modules, "mfusepy", None)
    assert main(["mount", dataset, str(tmp_path)]) == 1
    assert "fastpack-llm[mount]" in capsys.readouterr().err

    def refuse(*_: Any, **__: Any) -> None:
        raise RuntimeError(1)  # before init is called

    monkeypatch.setitem(sys.modules, "mfusepy", SimpleNamespace(FUSE=refuse))
    assert main(["mount", dataset, str(tmp_path)]) == 1
    out, err = capsys.readouterr()
    assert err.startswith("fastpack: error: ")
    assert "/dev/fuse" in err
    assert main(["mount", dataset, str(tmp_path), "--json"]) == 1
    assert capsys.readouterr().out == out == ""
