"""Printing of results on stdout and of messages on stderr."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from fastpack.cli.progress import clear_progress, end_progress
from fastpack.cli.streams import unescaped
from fastpack.escape import escape_line

if TYPE_CHECKING:
    from fastpack.cli.tables import Table

STDOUT = "standard output"  # the file name in an OSError from print()


def emit(
    args: argparse.Namespace,
    result: Mapping[str, Any],
    text: str | Iterable[str],
    tables: Callable[[], Iterable[Table | str]] | None = None,
) -> None:
    """Print a command's result on stdout: `result` with --json, else `text` (nothing with --quiet).

    text: lines, in which line ends (of names) are escaped, or a whole text.
    tables: the same as tables and lines, for a terminal if rich is installed.
    """
    end_progress()
    if args.json:
        put(_json(result))
    elif not args.quiet:
        from fastpack.cli.tables import show, takes_tables

        if tables is not None and takes_tables():
            show(tables())
        else:
            put(text if isinstance(text, str) else "\n".join(map(escape_line, text)))


def _json(result: Mapping[str, Any]) -> str:
    """Return one line of JSON, in which characters that could control a terminal are escaped."""
    return escape_line(json.dumps(result, ensure_ascii=not (sys.stdout.encoding or "utf-8").lower().startswith("utf")))


def put(text: str, *, raw: bool = False) -> None:
    """Print a line on stdout; an OSError names stdout. raw: do not escape the text."""
    try:
        print(text, file=unescaped(sys.stdout) if raw else sys.stdout)
    except OSError as error:
        error.filename = STDOUT
        raise


def say(args: argparse.Namespace, text: str) -> None:
    """Print a message on stderr, unless --quiet."""
    if not args.quiet:
        clear_progress()
        print(escape_line(text), file=sys.stderr)
