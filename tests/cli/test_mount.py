"""`fastpack mount`, without a real mount."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from command_line import Cli


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
    golden: Path, tmp_path: Path, mounted: list[dict[str, Any]], options: list[str], cli: Cli
) -> None:
    printed = cli("mount", golden / "energon" / "split", tmp_path, *options)
    (call,) = mounted
    assert call["target"] == str(tmp_path)
    assert call["foreground"] == (not options)
    assert call["ro"] is True
    name = "/train_part_00_0/jpg" if options else "/train_part_00_0.jpg"
    assert call["operations"].getattr(name)["st_size"] == 631
    assert bool(printed.err) == ("-q" not in options)


def test_unmountable_datasets_are_errors(golden: Path, tmp_path: Path, mounted: list[dict[str, Any]], cli: Cli) -> None:
    assert "absent: Not a directory" in cli("mount", golden / "energon" / "split", tmp_path / "absent", code=1).err
    assert "is not prepared" in cli("mount", tmp_path, tmp_path, code=1).err
    assert mounted == []


def test_missing_or_failing_fuse_is_an_error(
    golden: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    dataset = str(golden / "energon" / "split")
    monkeypatch.setitem(sys.modules, "mfusepy", None)
    assert "fastpack-llm[mount]" in cli("mount", dataset, tmp_path, code=1).err

    def refuse(*_: Any, **__: Any) -> None:
        raise RuntimeError(1)  # before init is called

    monkeypatch.setitem(sys.modules, "mfusepy", SimpleNamespace(FUSE=refuse))
    out, err = cli("mount", dataset, tmp_path, code=1)
    assert err.startswith("fastpack: error: ")
    assert "/dev/fuse" in err
    assert cli("mount", dataset, tmp_path, "--json", code=1).out == out == ""
