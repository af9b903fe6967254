"""Tables on a terminal, through rich where it is installed (extra: rich); everything else gets plain lines."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from fastpack.cli.streams import unescaped
from fastpack.escape import escape_line, escape_text


class Table(NamedTuple):
    """Rows under headings; `right`: the columns of numbers; `styles`: a colour for rows, by their first cell."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: frozenset[int] = frozenset()
    styles: dict[str, str] = {}  # noqa: RUF012 (never changed)


def takes_tables() -> bool:
    """Whether stdout is a terminal that shows tables, and rich is there to draw them."""
    from importlib.util import find_spec

    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb" and find_spec("rich") is not None


def show(parts: Iterable[Table | str]) -> None:
    """Print tables and lines on the terminal; without colour where NO_COLOR is set, which rich sees to."""
    from rich import box
    from rich.console import Console
    from rich.table import Table as Drawn
    from rich.text import Text

    console = Console(file=unescaped(sys.stdout), highlight=False)
    for part in parts:
        if isinstance(part, str):
            console.print(Text(escape_text(part)), soft_wrap=True)
            continue
        drawn = Drawn(box=box.SIMPLE_HEAD, show_header=any(part.headings), pad_edge=False)
        for number, heading in enumerate(part.headings):
            right = number in part.right
            drawn.add_column(heading, justify="right" if right else "left", no_wrap=right, overflow="fold")
        for row in part.rows:
            drawn.add_row(*(Text(escape_line(cell)) for cell in row), style=part.styles.get(row[0], ""))
        console.print(drawn)
