"""The script of CI that finds other Pythons accepts usable ones and gives a reason for the others."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / ".ci" / "pythons.py"
OWN = f"{sys.version_info[0]}.{sys.version_info[1]}"
SUPPORTED = ["3.11", "3.12", "3.13", "3.14"]
OTHERS = [version for version in SUPPORTED if version != OWN]


def write_interpreter(path: Path, script: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def found(tmp_path: Path) -> tuple[list[str], list[str]]:
    """Return the lines of stdout and stderr of a run that sees only bin/ and pyenv/ of the folder."""
    env = {"PATH": str(tmp_path / "bin"), "PYENV_ROOT": str(tmp_path / "pyenv"), "HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, SCRIPT], env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines(), done.stderr.splitlines()


def test_missing_pythons_are_listed(tmp_path: Path) -> None:
    names, messages = found(tmp_path)
    assert names == []
    expected = dict.fromkeys(SUPPORTED, "NOT RUN: no usable interpreter found")
    expected |= {OWN: f"{sys.executable} (this interpreter)"}
    assert messages == [f"python {version}: {what}" for version, what in expected.items()]


def test_pyenv_replaces_a_failing_shim(tmp_path: Path) -> None:
    version = OTHERS[0]
    shim = write_interpreter(tmp_path / f"bin/python{version}", "echo 'pyenv: command not found' >&2; exit 127")
    real = write_interpreter(tmp_path / f"pyenv/versions/{version}.1/bin/python{version}", f"echo {version}")
    names, messages = found(tmp_path)
    assert names == [f"{version} {real}"]
    assert f"python {version}: not {shim}: pyenv: command not found" in messages
    assert f"python {version}: {real}" in messages


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("echo without its C headers >&2; exit 1", "without its C headers"),
        ("exit 3", "exit code 3"),
        ("echo 2.7", "it reports version 2.7"),
    ],
)
def test_an_unusable_interpreter_is_rejected(tmp_path: Path, script: str, problem: str) -> None:
    path = write_interpreter(tmp_path / f"bin/python{OTHERS[1]}", script)
    names, messages = found(tmp_path)
    assert names == []
    assert f"python {OTHERS[1]}: not {path}: {problem}" in messages


def test_the_probe_accepts_this_python(tmp_path: Path) -> None:
    space = {"__file__": str(SCRIPT), "__name__": "pythons"}
    exec(compile(SCRIPT.read_text(), str(SCRIPT), "exec"), space)
    assert space["problem_of"](sys.executable, OWN) == ""
    assert space["problem_of"](sys.executable, "2.7") == f"it reports version {OWN}"
