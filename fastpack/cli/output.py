"""Printing of results on stdout and of messages on stderr."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fastpack.cli.progress import clear_progress, end_progress
from fastpack.cli.streams import unescaped
from fastpack.escape import escape_line

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from fastpack.cli.tables import Table

_MAX_SKIPPED = 5  # skipped documents with a message each
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


def fields_of(result: DataclassInstance) -> dict[str, Any]:
    """Return the fields of a result, with its path as text."""
    names = (field.name for field in dataclasses.fields(result))
    return {name: str(getattr(result, name)) if name == "path" else getattr(result, name) for name in names}


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


def flush() -> None:
    """Write what is buffered for stdout; an OSError names stdout."""
    try:
        sys.stdout.flush()
    except OSError as error:
        error.filename = STDOUT
        raise


@contextlib.contextmanager
def warnings_as_messages(args: argparse.Namespace, prefix: str = "", width: int | None = None) -> Iterator[None]:
    """Print the warnings of a block as messages, each text once, after the block has succeeded.

    width: characters of a text at most.
    """
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", UserWarning)
        yield
    for text in dict.fromkeys(str(warning.message) for warning in warned):
        say(args, f"{prefix}{shortened(text, width)}")


def shortened(text: str, width: int | None) -> str:
    """Return the text, or its first `width` characters and dots."""
    return text if width is None or len(text) <= width else f"{text[:width]}..."


def say(args: argparse.Namespace, text: str) -> None:
    """Print a message on stderr, unless --quiet."""
    if not args.quiet:
        clear_progress()
        print(escape_line(text), file=sys.stderr)


def say_skipped(args: argparse.Namespace, skipped: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
    """Print the first skipped documents, each a prefix (the file, if there are several) and an entry of the result."""
    for prefix, entry in skipped[:_MAX_SKIPPED]:
        say(args, f"{prefix}skipped line {entry['line']}: {entry['reason']}")
    if len(skipped) > _MAX_SKIPPED:
        say(args, f"skipped {len(skipped) - _MAX_SKIPPED} more (--json lists all)")
