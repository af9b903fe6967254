"""The command line as a whole: names, help, exit codes, and one-line failures."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import fastpack
from fastpack.cli import main
from fastpack.cli.failures import describe
from fastpack.cli.parser import COMMANDS, build_parser


def commands() -> dict[str, argparse.ArgumentParser]:
    parser = build_parser()
    (action,) = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return dict(action.choices)


@pytest.mark.parametrize("name", commands())
def test_every_command_has_help_and_an_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    parser = commands()[name]
    assert parser.description
    assert parser.epilog
    assert parser.epilog.startswith("example: fastpack ")
    for action in parser._actions:
        assert action.help, f"{name} {action.option_strings or action.dest} has no help"
    with pytest.raises(SystemExit) as stopped:
        main([name, "--help"])
    assert stopped.value.code == 0
    assert "--json" in capsys.readouterr().out


@pytest.mark.parametrize("module", COMMANDS)
def test_the_table_of_commands_matches_their_modules(module: str) -> None:
    for word in COMMANDS[module]:
        parser = build_parser(word)
        (action,) = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
        assert tuple(action.choices) == COMMANDS[module]


@pytest.mark.parametrize("name", commands())
def test_multi_word_options_accept_both_spellings(name: str) -> None:
    for action in commands()[name]._actions:
        for option in action.option_strings:
            if option.startswith("--") and "-" in option[2:] and option != "--no-progress":
                assert "--" + option[2:].replace("-", "_") in action.option_strings, f"{name} {option}"


def test_old_names_also_work_after_the_word_data(tmp_path: Path) -> None:
    assert {"create_raw_index", "create_memmap_index", "pack_encoded_data", "create_packed_data"} <= set(commands())
    for number, words in enumerate((["index"], ["create_raw_index"], ["data", "create_raw_index"])):
        source = tmp_path / f"{number}.jsonl"
        source.write_text('{"text": "a"}\n')
        assert main([*words, str(source), "-q"]) == 0
        assert len(fastpack.read_raw_index(source.with_suffix(".idx"))) == 1


def test_usage_errors_exit_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["index"], ["nonsense"], ["index", "--nonsense", "x"]):
        with pytest.raises(SystemExit) as stopped:
            main(words)
        assert stopped.value.code == 2
    assert main([]) == 2
    assert "usage: fastpack" in capsys.readouterr().err


def test_failures_are_one_line_and_exit_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad.pbin").write_bytes(b"\xff" * 40)
    for path in (tmp_path / "missing.jsonl", tmp_path / "bad.pbin", tmp_path):
        assert main(["info", str(path)]) == 1
        printed = capsys.readouterr()
        assert printed.out == ""
        assert printed.err.startswith("fastpack: error: ")
        assert str(path) in printed.err
        assert printed.err.count("\n") == 1
    with pytest.raises(FileNotFoundError):
        main(["info", str(tmp_path / "missing.jsonl"), "--debug"])


def test_describe_names_the_kind_of_failure() -> None:
    assert describe(MemoryError()) == "out of memory"
    assert describe(OSError(28, "No space left on device", "/data/a")) == "/data/a: No space left on device"
    assert describe(ValueError("two\nlines")) == "two lines"
    assert describe(KeyError("x")).startswith("internal error: KeyError")


def test_info_prints_facts_or_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(__file__).parents[1] / "golden" / "modalities" / "pbin" / "docs_bpe2000.pbin"
    assert main(["info", str(path)]) == 0
    assert "\ndocuments              60\n" in capsys.readouterr().out
    assert main(["info", str(path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["documents"], found["tokens"]) == (60, 9239)
    assert main(["info", str(path), "--quiet"]) == 0
    assert capsys.readouterr().out == ""


def run(*words: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "fastpack", *words], capture_output=True, text=True, timeout=120)


def test_kernels_option_and_variable_select_the_kernels(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n')
    done = run("index", str(tmp_path / "a.jsonl"), "--kernels", "numpy", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["entries"] == 1


def test_version_prints_the_facts_for_a_bug_report() -> None:
    done = run("--version")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert lines[0] == f"fastpack {fastpack.__version__}"
    assert [line.split()[0] for line in lines[1:]] == ["python", "numpy", "numba", "processor"]


def test_broken_pipe_is_silent() -> None:
    path = Path(__file__).parents[1] / "golden" / "modalities" / "pbin" / "docs_bpe2000.pbin"
    code = (
        "import os, sys; from fastpack.cli import main; r, w = os.pipe(); os.close(r); os.dup2(w, 1);"
        f"sys.exit(main(['info', {str(path)!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_a_command_and_leaves_no_partial_file(sent: signal.Signals, code: int, tmp_path: Path) -> None:
    source = tmp_path / "a.jsonl"
    source.write_bytes(b'{"text": "%s"}\n' % (b"x" * 200) * 400_000)
    # On the slow backend, so that the signal arrives while the command runs.
    env = os.environ | {"FASTPACK_KERNELS": "numpy"}
    command = [sys.executable, "-m", "fastpack", "index", str(source), "-q"]
    # A shell that starts this suite in the background makes it ignore SIGINT, and children inherit that.
    process = subprocess.Popen(
        command,
        env=env,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler) and None,
    )
    partial, deadline = tmp_path / ".a.idx.partial", time.monotonic() + 60
    while not partial.exists() and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.002)
    process.send_signal(sent)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (code, "")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.jsonl"]


def test_a_signal_in_a_finaliser_ends_the_command() -> None:
    code = """
import os, signal, sys, time
from fastpack import cli

class Fragile:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.05)

def work(args):
    Fragile()
    time.sleep(30)

import fastpack.cli.info
fastpack.cli.info.run_info = work
sys.exit(cli.main(["info", "x"]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=20)
    assert (done.returncode, done.stderr) == (143, "")


def test_former_names_of_options_are_accepted() -> None:
    words = ["merge", "a", "b", "--part-bytes", "5", "--parts_folder", "x", "--file_existence_policy", "override"]
    args = build_parser("merge").parse_args(words)
    assert (args.task_bytes, args.task_folder, args.if_exists) == (5, "x", "overwrite")
