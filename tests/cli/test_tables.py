"""Tables with rich on a terminal, plain lines otherwise."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from terminal import run_on_terminal

from fastpack.cli import tables

pytest.importorskip("rich", reason="rich is not installed: its tables are not tested")
FASTPACK = [sys.executable, "-m", "fastpack"]


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a"}\nno json\n')
    subprocess.run([*FASTPACK, "index", str(path), "--no-validate", "-q"], check=True, timeout=60)
    return path


def test_verify_on_a_terminal_and_in_a_pipe(damaged: Path) -> None:
    command = [*FASTPACK, "verify", "--deep", str(damaged)]
    piped = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert piped.returncode == 3
    assert "\x1b" not in piped.stdout
    assert "found" in piped.stdout
    seen = run_on_terminal(command, columns=120)
    assert seen.code == 3
    assert "expected" in seen.text
    assert "\x1b[" in seen.text
    assert "─" in seen.text
    plain = run_on_terminal(command, columns=120, env={"TERM": "dumb"})
    assert plain.text.replace("\r\n", "\n").endswith(piped.stdout)


def test_control_characters_are_escaped_in_tables(capsys: pytest.CaptureFixture[str]) -> None:
    tables.show([tables.Table(("file", "n"), [("a\x1b[2Jb", "1")], frozenset({1})), "c\x07d"])
    out = capsys.readouterr().out
    assert "a\\u001b[2Jb" in out
    assert "c\\u0007d" in out
    assert "\x1b" not in out


def test_no_tables_without_a_terminal_or_rich(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not tables.takes_tables()
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    assert tables.takes_tables()
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert not tables.takes_tables()
