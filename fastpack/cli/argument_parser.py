"""The parser of every command: argparse, with the nearest match for a slip, and help in colour on a terminal.

argparse of Python 3.11 names all choices for a wrong one, ends an unknown option with the usage of another parser, and
takes any beginning of an option for it, so that a script breaks when an option is added.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Sequence
from typing import IO, Any, NoReturn

from fastpack.cli.output import put
from fastpack.cli.streams import unescaped
from fastpack.escape import escape_line

ELSEWHERE = {  # what other tools call it
    "tokenize": "pack",
    "tokenise": "pack",
    "encode": "pack",
    "preprocess": "pack",
    "concat": "merge",
    "concatenate": "merge",
    "inspect": "info",
    "stat": "info",
    "check": "verify",
    "show": "preview",
    "head": "preview",
    "benchmark": "bench",
    "--overwrite": "--force",
    "--clobber": "--force",
    "--replace": "--force",
    "--workers": "--num-workers",
    "--out": "--output",
    "--continue": "--resume",
}


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that takes options by their whole names, and whose errors take two lines."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False, **settings)
        self.color = False  # Python 3.14 would colour help by rules of its own

    def parse_known_args(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, args: Any = None, namespace: Any = None
    ) -> Any:
        """As argparse's; an unknown option ends it here, before anything is said to be missing."""
        words = list(sys.argv[1:] if args is None else args)
        for word in _options(words, only_first=self._subparsers is not None):
            if word not in self._option_string_actions:
                known = [option for option in self._option_string_actions if "_" not in option]
                self.error(f"unknown option {word}{nearest(word, known)}")
        return super().parse_known_args(words, namespace)

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and where help is; exit with 2."""
        self.exit(2, f"fastpack: error: {escape_line(message)}\nsee: {self.prog} --help\n")

    def print_help(self, file: Any = None) -> None:
        """Print the help, in colour where `file` takes colours."""
        stream: IO[str] = file or sys.stdout
        text = self.format_help()
        if takes_colour(stream):
            self._print_message(_in_colour(text), unescaped(stream))
        else:
            self._print_message(text, stream)

    def _print_message(self, message: str, file: Any = None) -> None:
        """As argparse's, which also drops what stdout does not take."""
        if message and file is sys.stdout:
            put(message.removesuffix("\n"))
        else:
            super()._print_message(message, file)


def add_underscore_spellings(parser: argparse.ArgumentParser) -> None:
    """Let every option `--a-b` also be spelled `--a_b`, as in Modalities."""
    for action in parser._actions:
        spellings = [(name, f"--{name[2:].replace('-', '_')}" if name[2:] else name) for name in action.option_strings]
        action.option_strings = list(dict.fromkeys(name for both in spellings for name in both))
        parser._option_string_actions |= dict.fromkeys(action.option_strings, action)


def command_action(parser: argparse.ArgumentParser) -> argparse._SubParsersAction[argparse.ArgumentParser]:
    """Return the action that parses the command."""
    (action,) = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return action


def parsers_of(parser: argparse.ArgumentParser) -> dict[tuple[str, ...], argparse.ArgumentParser]:
    """Return the parser of each command, by its name and aliases."""
    action = command_action(parser)
    names: dict[int, list[str]] = {}
    for name, command in action.choices.items():
        names.setdefault(id(command), []).append(name)
    return {tuple(names.pop(id(command))): command for command in action.choices.values() if id(command) in names}


def nearest(word: str, known: Iterable[str]) -> str:
    """A question that names the known word most like this one; nothing where none is like it."""
    import difflib

    known = list(known)
    meant = ELSEWHERE.get(word.replace("_", "-"), "")
    if meant == "--force" and meant not in known:
        meant = "--force-overwrite"
    if meant in known:
        return f"; did you mean {meant}?"
    like = difflib.get_close_matches(word, list(known), 1)
    return f"; did you mean {like[0]}?" if like else ""


def takes_colour(stream: IO[str]) -> bool:
    """Whether colour is shown: on a terminal that is not dumb, unless NO_COLOR is set; never in a pipe or file."""
    from os import environ

    return not environ.get("NO_COLOR") and environ.get("TERM") != "dumb" and stream.isatty()


def _options(words: Sequence[str], *, only_first: bool) -> list[str]:
    """The long options among the words, without values; `only_first`: those before the command."""
    found = []
    for word in words:
        if word == "--" or (only_first and not word.startswith("-")):
            break
        if word.startswith("--") and " " not in word:  # what has spaces is a value to argparse as well
            found.append(word.partition("=")[0])
    return found


_HEADING = re.compile(r"^(\S[^\n]*:)(?=$| )", re.MULTILINE)
_NAMES = re.compile(r"^( {2,4})(-\S[^\n]*?|[A-Za-z][\w-]*(?: \([^)\n]*\))?)(?= {2}|$)", re.MULTILINE)


def _in_colour(text: str) -> str:
    """Headings bold, names of commands and options cyan."""
    text = _NAMES.sub("\\1\x1b[36m\\2\x1b[0m", text)
    return _HEADING.sub("\x1b[1m\\1\x1b[0m", text)
