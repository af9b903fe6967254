"""`fastpack completion bash|zsh|fish`: what a shell completes after `fastpack`.

The scripts are made of `build_parser()` when they are asked for, and are complete in themselves: no key press starts
Python. Of the libraries, shtab writes no fish, and argcomplete asks the program at every press; neither knows the names
behind `data`.
"""

from __future__ import annotations

import argparse
from typing import Any

from fastpack.cli.argument_parser import parsers_of
from fastpack.cli.options import Commands, new_command
from fastpack.cli.output import emit
from fastpack.cli.shells import WRITERS, Command, Option, Value

SHELLS = ("bash", "zsh", "fish")
# What a value is, by the name that help gives it; a value with another name is completed by nothing.
FILES = frozenset(
    {"PATH", "SRC", "DST", "TARGET", "T", "LIST", "CONFIG.yaml", "CONFIG.yaml|SRC", "REPORT.html", "FILE", "OTHER"}
)
FOLDERS = frozenset({"DIR", "NEWDIR", "ROOT"})


def add_commands(commands: Commands) -> list[argparse.ArgumentParser]:
    """The command `completion`."""
    parser = new_command(
        commands,
        "completion",
        run=run_completion,
        help="print the script by which a shell completes commands, options and files",
        example='fastpack completion bash        (in .bashrc: eval "$(fastpack completion bash)"; .zshrc the same; '
        "config.fish: fastpack completion fish | source)",
    )
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help="bash, zsh or fish")
    return [parser]


def run_completion(args: argparse.Namespace) -> int:
    """Print the script."""
    script = WRITERS[args.shell](commands_of(args.build_parser()))
    emit(args, {"shell": args.shell, "script": script}, script.removesuffix("\n"))
    return 0


def commands_of(parser: argparse.ArgumentParser) -> list[Command]:
    """The commands of a parser."""
    return [_command(names, command) for names, command in parsers_of(parser).items()]


def _command(names: tuple[str, ...], parser: argparse.ArgumentParser) -> Command:
    options, places = [], []
    for action in parser._actions:
        value = _value(action)
        if not action.option_strings:
            places.append(value or Value("word"))
        elif action.help != argparse.SUPPRESS:
            given = tuple(action.option_strings)
            old = tuple(name for name in given if "_" in name)
            plain = tuple(name for name in given if name not in old)
            options.append(Option(plain, old, _one_line(action.help), value))
    return Command(names, _one_line(parser.description), tuple(options), tuple(places))


def _value(action: argparse.Action) -> Value | None:
    if action.nargs == 0:
        return None
    choices: tuple[Any, ...] = tuple(action.choices or ())
    many = action.nargs in ("*", "+")
    if choices:
        return Value("choice", tuple(map(str, choices)), many)
    kind = "file" if action.metavar in FILES else "folder" if action.metavar in FOLDERS else "word"
    return Value(kind, (), many)


def _one_line(text: str | None) -> str:
    return " ".join((text or "").replace("%%", "%").split())
