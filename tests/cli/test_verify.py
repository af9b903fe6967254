"""`fastpack verify`, also called `lint`."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from command_line import Cli


@pytest.fixture
def prepared(golden: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(golden / "energon" / "split", tmp_path / "prepared"))


@pytest.mark.parametrize("name", ["verify", "lint"])
def test_a_sound_dataset(prepared: Path, name: str, cli: Cli) -> None:
    assert cli(name, prepared, "--threads", "1").out == (
        f"{prepared}: webdataset: 10 shards, 19 samples, 76 parts, 76 members: sound, 0 warnings\n"
    )


def test_damage_is_reported(prepared: Path, cli: Cli) -> None:
    os.truncate(prepared / "train" / "part_00.tar", 0)
    out = cli("verify", prepared, code=3).out
    assert f"error: {prepared}/train/part_00.tar: at byte 0: found an empty file" in out
    found = cli.json("verify", prepared, code=3)
    assert found["sound"] is False
    assert found["findings"][0]["offset"] == 0
    assert cli("verify", "-q", prepared, code=3).out == ""


def test_several_paths(prepared: Path, golden: Path, cli: Cli) -> None:
    os.truncate(prepared / "train" / "part_00.tar", 0)
    found = cli.json("verify", golden / "energon" / "split", prepared, code=3)
    assert found["sound"] is False
    assert [report["sound"] for report in found["reports"]] == [True, False]


def test_unknown_formats_are_errors(tmp_path: Path, cli: Cli) -> None:
    assert "not one of what can be verified" in cli("verify", tmp_path, code=1).err
    cli("verify", tmp_path / "absent", code=1)


def test_unprepared_tars(tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "a.tar").write_bytes(bytes(10240))
    assert "run `fastpack prepare` first" in cli("verify", tmp_path, code=1).err
