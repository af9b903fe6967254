"""Terminals, pipes, full and closed outputs, Ctrl-C: output and exit codes."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import Cli
from terminal import run_on_terminal

from fastpack import PackedWriter
from fastpack.cli.progress import _Bar, _LogLines, end_progress, progress

PACKED = Path(__file__).parents[1] / "golden" / "modalities" / "pbin" / "docs_bpe2000.pbin"
FASTPACK = [sys.executable, "-m", "fastpack"]
FULL = "fastpack: error: standard output: No space left on device: the result is not written\n"
CLOSED = "fastpack: error: standard output: Bad file descriptor: the result is not written\n"


@pytest.fixture
def slow_source(tmp_path: Path) -> Path:
    """A file that the slow backend needs seconds to index."""
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text": "%s"}\n' % (b"x" * 200) * 150_000)
    return path


SLOW = {"FASTPACK_KERNELS": "numpy"}


def shell(line: str, *, buffered: bool = True) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    env |= {} if buffered else {"PYTHONUNBUFFERED": "1"}
    env |= {"PYTHON": sys.executable, "PACKED": str(PACKED)}
    line = line.replace("fastpack", '"$PYTHON" -m fastpack')
    return subprocess.run(["bash", "-c", line], capture_output=True, text=True, env=env, timeout=60)


@pytest.mark.parametrize(
    ("line", "code", "errors"),
    [
        ("fastpack info $PACKED --json >/dev/full", 1, FULL),
        ("fastpack --help >/dev/full", 1, FULL),
        ("fastpack --version >/dev/full", 1, FULL),
        ("fastpack completion bash >/dev/full", 1, FULL),
        ("fastpack info $PACKED >&-", 1, CLOSED),
        ("fastpack info $PACKED -q >&-", 0, ""),
        ("fastpack info /nonesuch 2>&-", 1, ""),
        ("fastpack info $PACKED <&- >/dev/null", 0, ""),
        ("fastpack --help | head -0; exit ${PIPESTATUS[0]}", 141, ""),
        ("fastpack info $PACKED | head -0; exit ${PIPESTATUS[0]}", 141, ""),
        ("set -o pipefail; fastpack info $PACKED --json | cat >/dev/null", 0, ""),
    ],
)
def test_exit_codes_of_failing_outputs(line: str, code: int, errors: str) -> None:
    # A reader that exits late would still receive a short text: wait until it has exited.
    line = line.replace("fastpack info $PACKED |", "(sleep 0.3; fastpack info $PACKED) |")
    line = line.replace("fastpack --help |", "(sleep 0.3; fastpack --help) |")
    done = shell(line)
    assert (done.returncode, done.stderr) == (code, errors)


def test_a_full_unbuffered_output_is_an_error() -> None:
    for line in ("fastpack info $PACKED --json >/dev/full", "fastpack --help >/dev/full"):
        done = shell(line, buffered=False)
        assert (done.returncode, done.stderr) == (1, FULL)


def test_opened_files_do_not_replace_closed_outputs(tmp_path: Path) -> None:
    source = tmp_path / "a.jsonl"
    source.write_text('{"text": "a"}\n' * 10)
    done = shell(f"fastpack index {source} <&- >&- 2>&-")
    assert done.returncode == 1  # the index is written, but its message is lost
    sound = shell(f"fastpack verify {source}")
    assert sound.returncode == 0, sound.stdout


def test_a_terminal_shows_and_clears_a_progress_bar(slow_source: Path) -> None:
    seen = run_on_terminal([*FASTPACK, "index", str(slow_source)], env=SLOW)
    assert seen.code == 0
    assert "index:" in seen.text
    assert "%|" in seen.text
    assert "B/s" in seen.text
    assert "<00:" in seen.text, "no time left"
    last = seen.text.replace("\r\n", "\n").rstrip("\n").split("\n")[-1].split("\r")[-1]
    assert last == f"{slow_source.with_suffix('.idx')}: 150,000 lines, {slow_source.stat().st_size:,} bytes indexed"


def test_no_progress_bar_if_disabled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    args = argparse.Namespace(quiet=False, no_progress=False)
    assert isinstance(progress(args, "index"), _Bar)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(progress(args, "index"), _LogLines)
    end_progress()
    for name in ("quiet", "no_progress"):
        assert progress(argparse.Namespace(**(vars(args) | {name: True})), "index") is None


def test_ctrl_c_removes_the_bar_and_the_partial_file(slow_source: Path) -> None:
    seen = run_on_terminal(
        [*FASTPACK, "index", str(slow_source)], env=SLOW, when=lambda text: "%|" in text, send="\x03"
    )
    assert seen.code == 130
    assert "Traceback" not in seen.text
    left = seen.text.split("^C")[-1].replace("\r\n", "\n")
    assert left.split("\r")[-1].strip() == "", "the bar was not cleared"
    assert [path.name for path in slow_source.parent.iterdir()] == ["a.jsonl"]


@pytest.mark.slow
def test_an_error_clears_the_bar(slow_source: Path) -> None:
    with slow_source.open("ab") as file:
        file.write(b"no json\n")
    seen = run_on_terminal([*FASTPACK, "index", str(slow_source)], env=SLOW)
    assert seen.code == 1
    assert "%|" in seen.text
    assert seen.text.split("\r")[-2].startswith("fastpack: error: ")


def test_a_pipe_gets_a_line_every_ten_seconds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    args = argparse.Namespace(quiet=False, no_progress=False)
    update, counts = progress(args, "pack"), progress(args, "verify", "samples")
    assert update is not None
    assert counts is not None
    for second in range(1, 26):
        now[0] = second
        update(second << 20, 50 << 20)
        if second == 20:
            counts(10_000, 40_000)
    assert capsys.readouterr().err.splitlines() == [
        "pack: 20%, 1.0 MiB/s, 40 s left",
        "pack: 40%, 1.0 MiB/s, 30 s left",
        "verify: 25%, 500.0 samples/s, 60 s left",
    ]


def test_packing_shows_a_bar_with_rates_immediately(tmp_path: Path) -> None:
    source = tmp_path / "a.jsonl"
    source.write_bytes(b'{"text": "%s"}\n' % (b"some words " * 50) * 40_000)
    tokenizer = str(Path(__file__).parents[1] / "golden" / "modalities" / "tokenizers" / "tok_bpe2000")
    words = ["pack", str(source), "--tokenizer", tokenizer, "--eod-token", "<|endoftext|>", "--engine", "tokenizers"]
    seen = run_on_terminal([*FASTPACK, *words, "--num-cpus", "1"], env={"COLUMNS": "160"})
    assert seen.code == 0
    bars = seen.text.split("pack: ")
    assert bars[1].startswith("0.00B"), "no bar before the first documents"
    assert "documents/s" in seen.text
    assert "tokens/s" in bars[-1]
    assert "%|" in seen.text


def test_packing_reports_its_rates_to_a_pipe(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    update = progress(argparse.Namespace(quiet=False, no_progress=False), "pack", at_once=True)
    assert isinstance(update, _LogLines)
    now[0] = 20.0
    update.count(2000, 1_000_000)
    update(10 << 20, 20 << 20)
    assert capsys.readouterr().err == "pack: 50%, 0.5 MiB/s, 100 documents/s, 50,000 tokens/s, 20 s left\n"


LONG_COMMANDS = {
    "merge": "merge a.pbin b.pbin c.pbin",
    "shuffle": "shuffle a.pbin c.pbin --seed 1",
    "chunk": "chunk a.pbin b.pbin -o c.pbin --chunk-id 0 --num-chunks 2 --seed 1",
    "filter": "filter a.pbin c.pbin --min-length 1",
    "convert": "convert a.pbin b.pbin -o c --to megatron",
    "verify": "verify a.pbin",
    "verify a folder": "verify .",
    "verify shards": "verify a.npy",
    "report": "report a.pbin b.pbin -o c.html",
}


@pytest.mark.parametrize("name", LONG_COMMANDS)
def test_long_commands_show_a_bar_at_once_with_rates(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    monkeypatch.chdir(tmp_path)
    for letter in "ab":
        with PackedWriter(f"{letter}.pbin", 2) as writer:
            writer.append_many(np.arange(60_000) % 1000, np.full(600, 100))
    cli("convert", "a.pbin", "-o", "a.npy", "-q")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    calls: list[tuple[object, ...]] = []
    for method in ("start", "count", "__call__"):
        original = getattr(_Bar, method)

        def recorded(self: _Bar, *given: int, method: str = method, original: Any = original, **more: Any) -> None:
            calls.append((method, *given))
            original(self, *given, **more)

        monkeypatch.setattr(_Bar, method, recorded)
    cli(*LONG_COMMANDS[name].split())
    assert calls[0] == ("start",)
    documents, tokens = next(call[1:] for call in reversed(calls) if call[0] == "count")
    n_files = {"merge": 2, "convert": 2, "verify a folder": 3, "report": 2}.get(name, 1)
    assert tokens == 60_000 * n_files
    assert documents == (0 if name == "verify shards" else 600 * min(n_files, 2))
    done, total = next(call[1:] for call in reversed(calls) if call[0] == "__call__")
    assert done == total


def test_help_is_coloured_only_on_a_terminal() -> None:
    plain = subprocess.run([*FASTPACK, "index", "--help"], capture_output=True, text=True, timeout=60).stdout
    assert "\x1b" not in plain
    colourful = run_on_terminal([*FASTPACK, "index", "--help"], env={"COLUMNS": "80"}).text
    assert "\x1b[36m--force\x1b[0m" in colourful
    for env in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        assert "\x1b" not in run_on_terminal([*FASTPACK, "index", "--help"], env=env).text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["idnex"], "no command 'idnex'; did you mean index?"),
        (["help", "pak"], "no command 'pak'; did you mean pack?"),
        (["zzzzzz"], "no command 'zzzzzz'"),
        (["tokenize", "a.jsonl"], "no command 'tokenize'; did you mean pack?"),
        (["pack", "a.jsonl", "--overwrite"], "unknown option --overwrite; did you mean --force?"),
        (["pack", "a.jsonl", "--eos_tokens", "x"], "unknown option --eos_tokens; did you mean --eos-token?"),
        (["prepare", "a", "--overwrite"], "unknown option --overwrite; did you mean --force-overwrite?"),
        (["index", "a", "--jsn"], "unknown option --jsn; did you mean --json?"),
        (["index", "--file_existence_polcy", "skip", "a"], "unknown option --file_existence_polcy; did you mean"),
        (["--verison"], "unknown option --verison; did you mean --version?"),
        (["index", "a", "--dry"], "unknown option --dry"),
    ],
)
def test_typos_are_answered_with_the_nearest_match(words: list[str], message: str, cli: Cli) -> None:

    error, see = cli(*words, code=2).err.splitlines()
    assert error.startswith(f"fastpack: error: {message}")
    assert see.startswith("see: fastpack ")
    assert see.endswith("--help")
