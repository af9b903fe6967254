"""A Sphinx extension with the directive `commands`: a section for each command, made from the argument parser."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from fastpack.cli.parser import build_parser


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("commands", CommandsDirective)
    return {"parallel_read_safe": True}


class CommandsDirective(SphinxDirective):
    """Insert the sections of all commands."""

    def run(self) -> list[nodes.Node]:
        return self.parse_text_to_nodes(reference(), allow_section_headings=True)


def reference() -> str:
    """Return the sections of all commands as Markdown."""
    return "\n".join(line for names, parser in commands() for line in section(names, parser))


def commands() -> list[tuple[list[str], argparse.ArgumentParser]]:
    """Return the names of each command, aliases last, with its parser."""
    (choices,) = (a.choices for a in build_parser()._actions if isinstance(a, argparse._SubParsersAction))
    names: dict[argparse.ArgumentParser, list[str]] = {}
    for name, parser in choices.items():
        names.setdefault(parser, []).append(name)
    return [(given, parser) for parser, given in names.items()]


def section(names: list[str], parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yield the lines of the section of one command."""
    yield f"## {names[0]}\n"
    yield f"{cell(parser.description)}\n"
    if names[1:]:
        yield f"Aliases: {', '.join(f'`{name}`' for name in names[1:])}.\n"
    if examples := [line.removeprefix("example: ") for line in (parser.epilog or "").splitlines()]:
        yield "\n".join(["```text", *examples, "```\n"])
    for group in parser._action_groups:
        actions = [action for action in group._group_actions if action.help != argparse.SUPPRESS]
        actions = [action for action in actions if "--help" not in action.option_strings]
        if actions and group.title != "common options":
            yield f"| {group.title} | |\n|---|---|"
            yield from (f"| {invocation(action)} | {cell(action.help)} |" for action in actions)
            yield ""
    yield "Common options: `--json`, `--quiet` (`-q`), `--no-progress`, `--kernels`, `--debug`.\n"


def invocation(action: argparse.Action) -> str:
    """Return an option with its value, or the name of a positional argument, as code."""
    names = [name for name in action.option_strings if "_" not in name]
    value = "" if action.nargs == 0 else action.metavar or f"{{{','.join(map(str, action.choices or ()))}}}"
    if value in ("", "{}"):
        value = "" if action.nargs == 0 else "N"
    return f"`{cell(' '.join(filter(None, [', '.join(names), str(value)])), code=True)}`"


def cell(text: str | None, code: bool = False) -> str:
    """Return one line of Markdown for a table cell."""
    line = " ".join((text or "").replace("%%", "%").split()).replace("|", "\\|")
    return line if code else line.replace("<", "&lt;")
