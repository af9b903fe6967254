"""Markdown tables, and pages with a table between two markers."""

from __future__ import annotations

from pathlib import Path


def markdown(cells: list[list[str]], footer: str) -> str:
    """Return a table of these cells, which include the header and its rule, and the sentence below it."""
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in cells]
    return "\n".join([*lines, "", footer])


def write_between(path: Path, text: str, start: str, end: str) -> None:
    """Replace the text between the two markers in `path`; raise ValueError if they are missing."""
    content = path.read_text(encoding="utf-8")
    if content.count(start) != 1 or content.count(end) != 1 or content.index(start) > content.index(end):
        raise ValueError(f"{path}: expected {start} and then {end}, each once")
    head, rest = content.split(start)
    path.write_text(f"{head}{start}\n{text}\n{end}{rest.split(end)[1]}", encoding="utf-8")
