"""The command line as a whole: names, help, exit codes, and one-line failures."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from pathlib import Path

import pytest
from command_line import FASTPACK, Cli, actions, commands, run_process, run_python, started

import fastpack
from fastpack.cli import main
from fastpack.cli.argument_parser import parsers_of
from fastpack.cli.failures import describe
from fastpack.cli.parser import GROUPS, build_parser

COMMANDS = commands()


@pytest.mark.parametrize("name", COMMANDS)
def test_multi_word_options_accept_both_spellings(name: str) -> None:
    spellings = COMMANDS[name]._option_string_actions
    for action in actions(COMMANDS[name]):
        for option in action.option_strings:
            if option.startswith("--"):
                assert spellings["--" + option[2:].replace("-", "_")] is action, f"{name} {option}"


def test_old_names_also_work_after_the_word_data(tmp_path: Path) -> None:
    assert {"create_raw_index", "create_memmap_index", "pack_encoded_data", "create_packed_data"} <= set(COMMANDS)
    for number, words in enumerate((["index"], ["create_raw_index"], ["data", "create_raw_index"])):
        source = tmp_path / f"{number}.jsonl"
        source.write_text('{"text": "a"}\n')
        assert main([*words, str(source), "-q"]) == 0
        assert len(fastpack.read_raw_index(source.with_suffix(".idx"))) == 1


def test_usage_errors_exit_with_2(cli: Cli) -> None:
    for words in (["index"], ["nonsense"], ["index", "--nonsense", "x"]):
        cli(*words, code=2)
    assert "usage: fastpack" in cli(code=2).err


def test_failures_are_one_line_and_exit_with_1(tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "bad.pbin").write_bytes(b"\xff" * 40)
    for path in (tmp_path / "missing.jsonl", tmp_path / "bad.pbin", tmp_path):
        printed = cli("info", path, code=1)
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


def test_kernels_option_and_variable_select_the_kernels(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n')
    done = run_process([*FASTPACK, "index", str(tmp_path / "a.jsonl"), "--kernels", "numpy", "--json"])
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["entries"] == 1


def test_version_prints_the_facts_for_a_bug_report() -> None:
    done = run_process([*FASTPACK, "--version"])
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
    done = run_python(code)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_a_command_and_leaves_no_partial_file(sent: signal.Signals, code: int, tmp_path: Path) -> None:
    source = tmp_path / "a.jsonl"
    source.write_bytes(b'{"text": "%s"}\n' % (b"x" * 200) * 400_000)
    # On the slow backend, so that the signal arrives while the command runs.
    partial, environment = tmp_path / ".a.idx.partial", os.environ | {"FASTPACK_KERNELS": "numpy"}
    with started([*FASTPACK, "index", str(source), "-q"], env=environment) as process:
        while not partial.exists() and process.poll() is None:
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
    done = run_python(code, timeout=20)
    assert (done.returncode, done.stderr) == (143, "")


@pytest.mark.parametrize("name", COMMANDS)
def test_help_shows_one_spelling_of_an_option(name: str) -> None:
    text = COMMANDS[name].format_help()
    for action in actions(COMMANDS[name]):
        assert len([option for option in action.option_strings if option.startswith("--")]) <= 1
    for spelling in ("--file-existence-policy", "--num-cpus", "--part-bytes"):
        assert spelling not in text
    assert not re.search("--[a-z]+_", text)


def test_help_lists_commands_by_task_and_not_their_other_names(cli: Cli) -> None:
    text = cli("--help").out
    assert [name for names in GROUPS.values() for name in names] == re.findall(r"(?m)^  ([a-z][\w-]*) ", text)
    assert re.findall(r"(?m)^([a-z].*):$", text) == [*GROUPS, "options"]
    assert not [name for name in COMMANDS if "_" in name and name in text]
    assert max(map(len, text.partition("example:")[0].splitlines())) < 80
    assert sorted(name for names in GROUPS.values() for name in names) == sorted(
        {names[0] for names in parsers_of(build_parser())}
    )


def test_every_other_name_is_documented() -> None:
    pages = Path(__file__).parents[2] / "docs"
    text = "".join((pages / f"from-{name}.md").read_text() for name in ("modalities", "energon", "kempnerforge"))
    for names, parser in parsers_of(build_parser()).items():
        for name in names[1:]:
            assert re.search(rf"\b{name.replace('_', '[-_]')}\b", text), name
        for option, action in parser._option_string_actions.items():
            if option.startswith("--") and "_" not in option and option not in action.option_strings:
                assert f"`{option}" in text, option


def test_former_names_of_options_are_accepted() -> None:
    words = ["merge", "a", "b", "--part-bytes", "5", "--parts_folder", "x", "--file_existence_policy", "override"]
    args = build_parser("merge").parse_args(words)
    assert (args.task_bytes, args.task_folder, args.if_exists) == (5, "x", "overwrite")


def test_the_process_ends_with_the_exit_code_after_exit_functions_and_all_output(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n')
    code = (
        "import atexit, sys; from fastpack.cli.process import run; sys.argv = ['fastpack', *sys.argv[1:]]\n"
        "atexit.register(print, 'at exit')\n"
        "run()"
    )
    done = run_python(code, "index", str(tmp_path / "a.jsonl"))
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "at exit")
    assert run_python(code, "verify", str(tmp_path / "none.pbin")).returncode == 1
    assert run_python(code, "nonsense").returncode == 2


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs Linux")
def test_a_full_standard_output_is_a_failure_of_the_process(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n')
    done = run_process(["sh", "-c", f"{' '.join(FASTPACK)} index {tmp_path / 'a.jsonl'} --json > /dev/full"])
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
