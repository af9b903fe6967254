"""The argparse parser of all commands, with suggestions for misspelled words and coloured help on a terminal.

argparse of Python 3.11 lists all choices for an unknown one, prints the usage of another parser for an unknown option,
and accepts abbreviated options, so that a new option can break a script.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import IO, Any, NoReturn

from fastpack.cli.output import put
from fastpack.cli.streams import unescaped
from fastpack.escape import escape_line

ELSEWHERE = {  # names in other tools
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


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Wrap descriptions, but not examples, which are copied from the terminal."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if text.startswith("example: "):
            return super()._fill_text(text, width, indent)
        return argparse.HelpFormatter._fill_text(self, text, width, indent)


class Parser(argparse.ArgumentParser):
    """An ArgumentParser without abbreviated options, whose errors are two lines."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(formatter_class=_Formatter, allow_abbrev=False, **settings)
        self.color = False  # Python 3.14 would colour the help differently

    def parse_known_args(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, args: Any = None, namespace: Any = None
    ) -> Any:
        """Parse as argparse, but report an unknown option before a missing argument."""
        words = list(sys.argv[1:] if args is None else args)
        for word in _options(words, only_first=self._subparsers is not None):
            if word not in self._option_string_actions:
                known = [option for option in self._option_string_actions if "_" not in option]
                self.error(f"unknown option {word}{nearest(word, known)}")
        return super().parse_known_args(words, namespace)

    def error(self, message: str) -> NoReturn:
        """Print the error and how to get help; exit with 2."""
        self.exit(2, f"fastpack: error: {escape_line(message)}\nsee: {self.prog} --help\n")

    def format_help(self) -> str:
        """Return the help; its usage line names only what a command cannot do without."""
        needed = [action for action in self._actions if action.required or not action.option_strings]
        formatter = self._get_formatter()
        formatter.add_usage(None, needed, [], prefix="")
        words = " ".join(formatter.format_help().split()).removeprefix(self.prog)
        self.usage = f"%(prog)s [OPTIONS]{words.replace('%', '%%')}"
        return super().format_help()

    def print_help(self, file: Any = None) -> None:
        """Print the help, in colour if `file` supports it."""
        stream: IO[str] = file or sys.stdout
        text = self.format_help()
        if takes_colour(stream):
            self._print_message(_in_colour(text), unescaped(stream))
        else:
            self._print_message(text, stream)

    def _print_message(self, message: str, file: Any = None) -> None:
        """Print as argparse, but raise if stdout fails."""
        if message and file is sys.stdout:
            put(message.removesuffix("\n"))
        else:
            super()._print_message(message, file)


class CommandsParser(Parser):
    """The parser of all commands; its help lists them by task.

    groups: title -> names of the commands.
    """

    def __init__(self, groups: Mapping[str, Sequence[str]], **settings: Any) -> None:
        super().__init__(**settings)
        self._groups = groups

    def format_help(self) -> str:
        """Return the help."""
        listed = {action.dest: action for action in command_action(self)._choices_actions}
        formatter = self._get_formatter()
        formatter.add_usage(self.usage, self._actions, self._mutually_exclusive_groups)
        formatter.add_text(self.description)
        sections = {title: [listed[name] for name in names if name in listed] for title, names in self._groups.items()}
        for title, actions in {**sections, "options": self._optionals._group_actions}.items():
            formatter.start_section(title)
            formatter.add_arguments(actions)
            formatter.end_section()
        formatter.add_text(self.epilog)
        return formatter.format_help()


def hide_other_spellings(parser: argparse.ArgumentParser) -> None:
    """Show only the first long spelling of each option; accept all, and `--a_b` for `--a-b`, as in Modalities."""
    for action in parser._actions:
        long = [name for name in action.option_strings if name.startswith("--")]
        parser._option_string_actions |= {f"--{name[2:].replace('-', '_')}": action for name in long}
        action.option_strings = [name for name in action.option_strings if name not in long[1:]]


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
    """Return a question with the most similar known word; empty if no word is similar."""
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
    """Return whether to use colour: on a terminal that is not dumb, unless NO_COLOR is set."""
    from os import environ

    return not environ.get("NO_COLOR") and environ.get("TERM") != "dumb" and stream.isatty()


def _options(words: Sequence[str], *, only_first: bool) -> list[str]:
    """Return the long options among the words, without values; `only_first`: only those before the command."""
    found = []
    for word in words:
        if word == "--" or (only_first and not word.startswith("-")):
            break
        if word.startswith("--") and " " not in word:  # argparse treats words with spaces as values
            found.append(word.partition("=")[0])
    return found


_HEADING = re.compile(r"^(\S[^\n]*:)(?=$| )", re.MULTILINE)
_NAMES = re.compile(r"^( {2,4})(-\S[^\n]*?|[A-Za-z][\w-]*(?: \([^)\n]*\))?)(?= {2}|$)", re.MULTILINE)


def _in_colour(text: str) -> str:
    """Make headings bold, and names of commands and options cyan."""
    text = _NAMES.sub("\\1\x1b[36m\\2\x1b[0m", text)
    return _HEADING.sub("\x1b[1m\\1\x1b[0m", text)
