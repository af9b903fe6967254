"""`fastpack doctor`."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import Cli

from fastpack import __version__, kernels


def test_a_sound_installation(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTPACK_CACHE_DIR", str(tmp_path / "cache"))
    found = cli.json("doctor")
    assert found["problems"] == []
    assert found["versions"].startswith(f"fastpack {__version__}\n")
    assert found["facts"]["compiled kernels"] == "complete"
    assert found["facts"]["FASTPACK_CACHE_DIR"] == str(tmp_path / "cache")
    assert found["extras"]["zstd"]
    assert not {"test", "check", "docs"} & set(found["extras"])
    assert found["facts"]["numba cache"]
    assert cli("doctor").out.splitlines()[-1] == "no problem found"


def test_missing_extras_are_named_with_the_command_that_installs_them(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastpack.cli.doctor.installed", lambda name: "1.0" if name != "xxhash" else "not installed")
    assert cli.json("doctor")["missing_extras"] == ["checksum"]
    line = "missing extras, if you need them: pip install 'fastpack-llm[checksum]'"
    assert cli("doctor").out.splitlines()[-2:] == [line, "no problem found"]


def test_missing_kernels_are_a_problem(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(kernels.TABLE, "lost", {"numba": "lost_nb", "cython": "lost_cy", "numpy": "lost_np"})
    done = cli("doctor", code=1)
    assert "problem: compiled kernels: lost_cy cannot be imported" in done.out
    assert "reinstall fastpack" in done.out


def test_a_cache_folder_that_is_not_trusted(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTPACK_CACHE_DIR", str(tmp_path))
    tmp_path.chmod(0o777)
    assert "can be written by others" in cli("doctor", code=1).out
    tmp_path.chmod(0o700)
    monkeypatch.setenv("FASTPACK_CACHE_BYTES", "many")
    assert "FASTPACK_CACHE_BYTES is 'many'" in cli("doctor", code=1).out


def test_a_path_is_no_store(cli: Cli, tmp_path: Path) -> None:
    assert "this is no URL of a store" in cli("doctor", str(tmp_path), code=1).out
