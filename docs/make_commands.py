"""Writes docs/commands.md from the parser: `python docs/make_commands.py` (a test tells when it is needed)."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from fastpack.cli.argument_parser import parsers_of
from fastpack.cli.parser import build_parser

PAGE = Path(__file__).with_name("commands.md")
HEAD = """\
# Commands

Made from the parser by `docs/make_commands.py`. `fastpack help COMMAND` prints the same; `man fastpack` has it too.

Results go to stdout, messages and progress to stderr. `--json` prints the result as one JSON object. A command behind
the word `data`, as in `fastpack data create_raw_index`, is the same command.

| exit code | meaning |
|---|---|
| 0 | done, also where the output was there and is kept |
| 1 | failed: one line on stderr says what, where and what to do |
| 2 | wrong usage |
| 3 | `verify` found damage |
| 130, 143 | ended by Ctrl-C, or SIGTERM; partial files are removed, but for what `--resume` continues |
| 141 | the reader of stdout went away |

| variable | effect |
|---|---|
| `NO_COLOR` | no colour on a terminal, if it holds anything |
| `TERM=dumb` | neither colour nor bars nor tables on a terminal |
| `FASTPACK_KERNELS` | the backend of the kernels: `numba`, `cython` or `numpy`; `--kernels` wins |

Files and pipes never get colour or tables, so that what a script reads does not depend on what is installed.
"""


def page() -> str:
    """The whole page."""
    return "\n".join([HEAD, *(line for item in parsers_of(build_parser()).items() for line in section(*item))])


def section(names: tuple[str, ...], parser: argparse.ArgumentParser) -> Iterator[str]:
    """The part about one command."""
    yield f"## {names[0]}\n"
    yield f"{text(parser.description)}\n"
    if names[1:]:
        yield f"Other names: {', '.join(f'`{name}`' for name in names[1:])}.\n"
    for example in (parser.epilog or "").splitlines():
        yield f"    {example.removeprefix('example: ')}\n"
    for group in parser._action_groups:
        actions = [action for action in group._group_actions if action.help != argparse.SUPPRESS]
        actions = [action for action in actions if "--help" not in action.option_strings]
        if actions and group.title != "common options":
            yield f"| {group.title} | |\n|---|---|"
            yield from (f"| {invocation(action)} | {text(action.help)} |" for action in actions)
            yield ""
    yield "With the common options `--json`, `--quiet` (`-q`), `--no-progress`, `--kernels`, `--debug`.\n"


def invocation(action: argparse.Action) -> str:
    """The option with its value, or the place, as code."""
    names = [name for name in action.option_strings if "_" not in name]
    value = "" if action.nargs == 0 else action.metavar or f"{{{','.join(map(str, action.choices or ()))}}}"
    if value in ("", "{}"):
        value = "" if action.nargs == 0 else "N"
    return f"`{text(' '.join(filter(None, [', '.join(names), str(value)])))}`"


def text(words: str | None) -> str:
    """One line of Markdown, for a cell of a table."""
    return " ".join((words or "").replace("%%", "%").split()).replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    PAGE.write_text(page())
