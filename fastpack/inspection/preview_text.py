"""Previews as lines of text: ids, token texts with their boundaries, and the decoded text."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Any

from fastpack.escape import escape_line, escape_text

if TYPE_CHECKING:
    from fastpack.webdataset.browsing.preview_samples import Colours

_SHADES = (
    "\x1b[38;5;16;48;5;153m",
    "\x1b[38;5;16;48;5;223m",
)  # black on pale blue and sand, legible everywhere
_EOS_SHADE = "\x1b[1;38;5;16;48;5;150m"
_RESET = "\x1b[0m"
_LABELS = 8  # characters
_MARGIN = 4


def document_lines(found: dict[str, Any], eos: int | None, shades: bool = False) -> Iterator[str]:
    r"""Yield the lines for a result of `preview_packed` or `preview_shards`.

    shades: boundaries of tokens as alternating colours; else a `|` between them, and `\|` for one in the text.
    """
    yield f"{_title(found)}: {_count(found)}"
    yield from _token_lines(found, eos, shades)
    if found["text"] is not None:
        yield from _labelled("text", escape_text(found["text"]).split("\n"))


def line_lines(found: dict[str, Any], eos: int | None, shades: bool = False) -> Iterator[str]:
    """Yield the lines for a result of `preview_lines`; shades: as in `document_lines`."""
    size = "" if found["bytes"] is None else f": {found['bytes']:,} bytes"
    tokens = f", {_count(found)}" if "ids" in found else ""
    yield f"line {found['line']}{size}{tokens}"
    yield from _content_lines(found, eos, shades, "text" if found["error"] is None else "line")


def _content_lines(found: dict[str, Any], eos: int | None, shades: bool, label: str) -> Iterator[str]:
    if found["error"] is not None:
        yield from _labelled("left out", [escape_text(found["error"])])
    if "ids" in found:
        yield from _token_lines(found, eos, shades)
    if found["text"] is not None:
        yield from _labelled(label, found["text"].split("\n"))


def row_lines(found: dict[str, Any], eos: int | None, shades: bool = False) -> Iterator[str]:
    """Yield the lines for a result of `preview_rows`; shades: as in `document_lines`."""
    size = "" if found["bytes"] is None else f": {found['bytes']:,} bytes"
    tokens = f", {_count(found)}" if "ids" in found else ""
    yield f"{escape_line(found['file'])}, row {found['row']}{size}{tokens}"
    yield from _content_lines(found, eos, shades, "text")


def sample_lines(sample: dict[str, Any], rows: int, how: Colours) -> Iterator[str]:
    """Yield the lines for a sample: fields, texts, and pictures of at most `rows` lines."""
    yield f"{sample['index']}: {escape_line(sample['key'])}"
    for part in sample["parts"]:
        facts = [f"{part['bytes']:,} bytes"]
        if "width" in part:
            facts.append(f"{part['width']} x {part['height']} {part['mode']} {part['format']}")
        if "error" in part:
            facts.append(f"not shown: {escape_text(part['error'])}")
        yield f"  {escape_line(part['name'])}: {', '.join(facts)}"
        yield from (f"{' ' * _MARGIN}{line}" for line in _content(part, rows, how))


def _content(part: dict[str, Any], rows: int, how: Colours) -> list[str]:
    if part["kind"] == "text":
        text: str = part["text"]
        return text.split("\n")
    if "width" not in part or rows < 1:
        return []
    from fastpack.webdataset.browsing.preview_samples import draw  # local import: it would double the time of a text

    columns = max(8, shutil.get_terminal_size().columns - _MARGIN - 1)
    try:
        return draw(part["data"], columns, rows, how)
    except Exception as error:  # a decoder may raise any exception for a broken image
        return [f"not shown: {escape_text(f'{type(error).__name__}: {error}')}"]


def _title(found: dict[str, Any]) -> str:
    file = f"{escape_line(os.path.basename(found['file']))}, " if "file" in found else ""
    name = "from" if found["document"] is None else f"document {found['document']}, from"
    return f"{file}{name} token {found['start']:,}"


def _count(found: dict[str, Any]) -> str:
    n_tokens, shown = found["tokens"], len(found["ids"])
    if n_tokens is None:
        return f"{shown} tokens shown, no end of a document for a long way"
    count = f"{n_tokens:,} token{'s' * (n_tokens != 1)}"
    if shown < n_tokens:
        count += f", the first {shown} shown"
    return count if found["ends_with_eos"] is not False else f"{count}, no EOS at its end"


def _token_lines(found: dict[str, Any], eos: int | None, shades: bool) -> Iterator[str]:
    ids, pieces = found["ids"], found["pieces"]
    more = found["tokens"] is None or found["tokens"] > len(ids)
    yield from _labelled("ids", [" ".join([*map(str, ids), *["..."] * more])])
    if pieces is not None:
        is_eos = [token == eos for token in ids]
        lines = _shaded(pieces, is_eos) if shades else _barred(pieces, is_eos, ids)
        if more:
            lines[-1] += "..." if shades else "|..."
        yield from _labelled("tokens", lines)
    if (mask := found.get("loss_mask")) is not None:
        shown = list(map(str, ids)) if pieces is None else [piece.replace("\n", "\\n") for piece in pieces]
        counted = _runs(shown, mask, "" if pieces is not None else " ")
        yield from _labelled("loss", [" ... ".join(counted) or "no token counts"])


def _runs(shown: list[str], mask: list[bool], separator: str) -> Iterator[str]:
    """Yield each run of consecutive tokens that count."""
    for counts, group in groupby(zip(shown, mask, strict=True), key=lambda pair: pair[1]):
        if counts:
            yield separator.join(text for text, _ in group)


def _barred(pieces: list[str], is_eos: list[bool], ids: list[int]) -> list[str]:
    """Separate tokens by bars, and start a new line after each newline."""
    shown = [
        f"[EOS {token}]" if eos else piece.replace("|", "\\|").replace("\n", "\\n\n")
        for piece, eos, token in zip(pieces, is_eos, ids, strict=True)
    ]
    lines = "|".join(shown).split("\n")
    return lines if lines[-1] or len(lines) == 1 else lines[:-1]


def _shaded(pieces: list[str], is_eos: list[bool]) -> list[str]:
    """Shade tokens alternately; a newline does not extend the shade to the margin."""
    lines = [""]
    for number, (piece, eos) in enumerate(zip(pieces, is_eos, strict=True)):
        shade = _EOS_SHADE if eos else _SHADES[number % 2]
        parts = piece.replace("\n", "\\n\n").split("\n")
        for position, part in enumerate(parts):
            if position:
                lines.append("")
            if part:
                lines[-1] += f"{shade}{part}{_RESET}"
    return lines if lines[-1] or len(lines) == 1 else lines[:-1]


def _labelled(label: str, lines: list[str]) -> Iterator[str]:
    yield f"  {label:<{_LABELS}}  {lines[0]}".rstrip(" ")
    yield from (f"  {'':<{_LABELS}}  {line}".rstrip(" ") for line in lines[1:])
