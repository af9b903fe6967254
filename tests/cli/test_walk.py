"""A walk over the parser: every command has help, an example that parses, documentation, and a test."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path

import pytest
from command_line import Cli, actions

from fastpack.cli.argument_parser import parsers_of
from fastpack.cli.parser import COMMANDS, build_parser, manual_parser, normal

PARSERS = parsers_of(build_parser())
ROOT = Path(__file__).parents[2]
MOST_OPTIONS = 11  # per group; longer lists are hard to read


def examples(parser: argparse.ArgumentParser) -> list[str]:
    """Return the commands of the epilog: `example: fastpack A && fastpack B        (or: fastpack C)`."""
    found = []
    for line in (parser.epilog or "").removeprefix("example: ").splitlines():
        command, _, remark = line.partition("        (")
        found += command.split(" && ")
        if remark.startswith("or: "):
            found.append(remark.removeprefix("or: ").removesuffix(")"))
    return found


def test_the_walk_visits_every_command() -> None:
    assert list(COMMANDS.values()) == [
        tuple(name for names in PARSERS for name in names if name in words) for words in COMMANDS.values()
    ]


@pytest.mark.parametrize("names", PARSERS, ids=lambda names: names[0])
def test_help_example_and_groups(names: tuple[str, ...]) -> None:
    parser = PARSERS[names]
    assert parser.description
    assert parser.description.endswith(".")
    assert examples(parser), names
    for group in parser._action_groups:
        assert len(group._group_actions) <= MOST_OPTIONS, f"{names[0]}: {group.title}: too many for one group"
    for action in actions(parser):
        assert action.help, f"{names[0]} {action.option_strings or action.dest} has no help"


@pytest.mark.parametrize("names", PARSERS, ids=lambda names: names[0])
def test_examples_parse(names: tuple[str, ...]) -> None:
    for example in examples(PARSERS[names]):
        words = shlex.split(example)
        if words[0] == "eval":  # eval "$(fastpack ...)"
            words = shlex.split(words[1].removeprefix("$(").removesuffix(")"))
        assert words[0] == "fastpack", example
        args = build_parser(words[1]).parse_args(normal(words[1:]))
        assert args.command in names or "&&" in (PARSERS[names].epilog or "")


@pytest.mark.parametrize("names", PARSERS, ids=lambda names: names[0])
def test_help_of_each_name(names: tuple[str, ...], cli: Cli) -> None:
    texts = set()
    for words in ([names[0], "--help"], ["help", names[0]], ["data", names[-1], "-h"]):
        texts.add(cli(*words).out.replace(names[-1], names[0]).partition("\n\n")[2])
    assert len(texts) == 1, "one help, however it is asked for"
    assert examples(PARSERS[names])[0] in texts.pop().replace(names[-1], names[0]) or names[-1] != names[0]


def test_the_man_page_has_every_command_and_option() -> None:
    include = ROOT / "docs" / "fastpack.1.inc"
    if not include.is_file():
        pytest.skip("the manual pages are not part of an installed package")
    manpage = pytest.importorskip("argparse_manpage.manpage", reason="argparse-manpage is not installed")
    data = {"description": "d", "include": str(include)}
    text = str(manpage.Manpage(manual_parser(), data, format="single-commands-section"))
    for title in ("SYNOPSIS", "COMMANDS", "EXIT STATUS", "ENVIRONMENT", "FILES", "EXAMPLES"):
        assert f".SH {title}\n" in text or f".SH\n{title}\n" in text, title
    plain = text.replace("\\-", "-")
    for names, parser in PARSERS.items():
        assert f"fastpack {names[0]}" in plain
        assert all(example in plain for example in examples(parser))
        for action in actions(parser):
            if action.help != argparse.SUPPRESS:
                assert all(option in plain for option in action.option_strings if option not in ("-h", "--help"))


def test_building_the_parser_imports_only_the_standard_library() -> None:
    import subprocess

    code = "import sys; from fastpack.cli.parser import build_parser; build_parser(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert not {"numpy", "numba", "rich", "tqdm", "yaml", "orjson"} & set(done.stdout.split())
