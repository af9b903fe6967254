"""The elements of a page of HTML: sections, tables, lists of facts, figures, and texts of the data, escaped."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from html import escape

from fastpack.inspection import page_graphs as graphs
from fastpack.inspection.page_style import STYLE
from fastpack.version import __version__

MAX_NAME = 160  # characters of a name
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"  # no script runs, nothing is loaded

Row = Sequence[str]


def page(title: str, kicker: str, parts: Iterable[str]) -> str:
    """Return a whole page; title: of the data, not escaped; parts: HTML, empty ones are left out."""
    return "\n".join(
        [
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">\n<link rel="icon" href="data:,">',
            f"<title>{name(title)} - {kicker}</title>\n<style>{STYLE}</style>\n</head>\n<body>",
            f'<header><p class="kicker">{kicker}</p><h1>{name(title)}</h1></header>\n<main>',
            *filter(None, parts),
            f"</main>\n<footer>Written by fastpack {escape(__version__)}. "
            "Lengths on axes are in powers of two: 2k is 2,048.</footer>\n</body>\n</html>\n",
        ]
    )


def name(text: str, limit: int = MAX_NAME) -> str:
    """Escape text from data for the page: isolated from the text direction, with hidden characters visible."""
    shown = "".join(_visible(letter) for letter in text[: limit + 1])
    return escape(shown if len(text) <= limit else f"{shown[:-1]}…")


def text_of(text: str) -> str:
    """Escape a text of the data as `name` does; its line ends are shown, and kept."""
    return "\u23ce\n".join(name(line, len(line)) for line in text.split("\n"))


def _visible(letter: str) -> str:
    """Return control characters, undecodable bytes and bidirectional controls as their code."""
    return f"\\u{ord(letter):04x}" if unicodedata.category(letter) in ("Cc", "Cf", "Cs", "Zl", "Zp") else letter


def section(title: str, text: str, inside: str = "") -> str:
    """Return a section; title: not escaped; text: HTML of a paragraph; inside: HTML after it."""
    lead = f'<p class="soft">{text}</p>' if text else ""
    return f"<section><h2>{escape(title)}</h2>{lead}{inside}</section>"


def fact_list(facts: Iterable[tuple[str, str]], title: str = "", kind: str = "facts") -> str:
    """Return a list of labels and values, both HTML."""
    rows = "".join(f"<dt>{label}</dt><dd>{value}</dd>" for label, value in facts)
    head = f'<p class="kicker">{escape(title)}</p>' if title else ""
    return f'<div>{head}<dl class="{kind}">{rows}</dl></div>'


def figure(graph: str, caption: str, keys: Sequence[str] = ()) -> str:
    """Return a graph with a caption, and a legend of its series."""
    items = "".join(f"<li>{graphs.line_key(series)}{escape(label)}</li>" for series, label in enumerate(keys))
    legend = f'<ul class="key">{items}</ul>' if keys else ""
    return f"<figure>{legend}{graph}<figcaption>{escape(caption)}</figcaption></figure>"


def pair(
    graph: str,
    caption: str,
    facts: Iterable[tuple[str, str]],
    keys: Sequence[str] = (),
    facts_title: str = "",
) -> str:
    """Return a graph next to a table of the same numbers."""
    return f'<div class="pair">{figure(graph, caption, keys)}{fact_list(facts, facts_title)}</div>'


def table(caption: str, head: Row, rows: Iterable[Row]) -> str:
    """Return a table, which scrolls sideways if it is too wide; cells are HTML, the first of a row is its heading."""
    first = "".join(f'<th scope="col">{cell}</th>' for cell in head)
    body = "".join(
        f'<tr><th scope="row">{row[0]}</th>{"".join(f"<td>{cell}</td>" for cell in row[1:])}</tr>' for row in rows
    )
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption)}"><table>'
        f"<caption>{escape(caption)}</caption><thead><tr>{first}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def tile_list(tiles: Iterable[tuple[str, str, str]]) -> str:
    """Return the figures at the top of a page: (label, value, the value in more detail)."""
    shown = (
        f"<div><dt>{label}</dt><dd>{value}<small>{small if small != value else '&nbsp;'}</small></dd></div>"
        for label, value, small in tiles
    )
    return f'<dl class="tiles">{"".join(shown)}</dl>'
