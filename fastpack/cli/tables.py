"""Tables on a terminal, with rich if it is installed (extra: rich); otherwise plain lines."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from fastpack.cli.streams import unescaped
from fastpack.escape import escape_line, escape_text


class Table(NamedTuple):
    """Rows with headings; `right`: columns of numbers; `styles`: first cell of a row -> its colour."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: frozenset[int] = frozenset()
    styles: dict[str, str] = {}  # noqa: RUF012 (never changed)


def takes_tables() -> bool:
    """Return whether stdout is a terminal that shows tables, and rich is installed."""
    from importlib.util import find_spec

    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb" and find_spec("rich") is not None


def show(items: Iterable[Table | str]) -> None:
    """Print tables and lines on the terminal; rich uses no colour if NO_COLOR is set."""
    from rich import box
    from rich.console import Console
    from rich.table import Table as Drawn
    from rich.text import Text

    console = Console(file=unescaped(sys.stdout), highlight=False)
    for item in items:
        if isinstance(item, str):
            console.print(Text(escape_text(item)), soft_wrap=True)
            continue
        drawn = Drawn(box=box.SIMPLE_HEAD, show_header=any(item.headings), pad_edge=False)
        for number, heading in enumerate(item.headings):
            right = number in item.right
            drawn.add_column(heading, justify="right" if right else "left", no_wrap=right, overflow="fold")
        for row in item.rows:
            drawn.add_row(*(Text(escape_line(cell)) for cell in row), style=item.styles.get(row[0], ""))
        console.print(drawn)
