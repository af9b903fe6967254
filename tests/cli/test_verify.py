"""`fastpack verify`, also called `lint`."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from fastpack.cli import main


@pytest.fixture
def prepared(golden: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(golden / "energon" / "split", tmp_path / "prepared"))


@pytest.mark.parametrize("name", ["verify", "lint"])
def test_a_sound_dataset(prepared: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, str(prepared), "--threads", "1"]) == 0
    assert capsys.readouterr().out == (
        f"{prepared}: webdataset: 10 shards, 19 samples, 76 parts, 76 members: sound, 0 warnings\n"
    )


def test_damage_is_reported(prepared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.truncate(prepared / "train" / "part_00.tar", 0)
    assert main(["verify", str(prepared)]) == 3
    out = capsys.readouterr().out
    assert f"error: {prepared}/train/part_00.tar: at byte 0: found an empty file" in out
    assert main(["verify", "--json", str(prepared)]) == 3
    found = json.loads(capsys.readouterr().out)
    assert found["sound"] is False
    assert found["findings"][0]["offset"] == 0
    assert main(["verify", "-q", str(prepared)]) == 3
    assert capsys.readouterr().out == ""


def test_several_paths(prepared: Path, golden: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.truncate(prepared / "train" / "part_00.tar", 0)
    assert main(["verify", "--json", str(golden / "energon" / "split"), str(prepared)]) == 3
    found = json.loads(capsys.readouterr().out)
    assert found["sound"] is False
    assert [report["sound"] for report in found["reports"]] == [True, False]


def test_unknown_formats_are_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(tmp_path)]) == 1
    assert "not one of what can be verified" in capsys.readouterr().err
    assert main(["verify", str(tmp_path / "absent")]) == 1


def test_unprepared_tars(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.tar").write_bytes(bytes(10240))
    assert main(["verify", str(tmp_path)]) == 1
    assert "run `fastpack prepare` first" in capsys.readouterr().err
