"""The first lines of a JSONL file: the text that packing uses, or why it skips the line."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import numpy as np

from fastpack import kernels
from fastpack.documents.compressed import is_compressed, read_lines
from fastpack.documents.json_fields import FaultyDocument, Line, compile_pattern
from fastpack.documents.raw_index import read_raw_index
from fastpack.documents.raw_index_check import check_raw_index, default_index_path
from fastpack.escape import escape_text, shorten
from fastpack.inspection.preview_tokens import Reader
from fastpack.io import AnyPath, ByteArray, PathLike, as_path, map_bytes, pickled_index

MAX_CHARACTERS = 600  # of a text
MAX_LINE_BYTES = 16 << 20  # of a line that is read
_ROWS_BY_ONE = 1 << 12  # up to this many rows, decode only the start of the index
_BLOCK = 1 << 16  # bytes searched for newlines at a time


def preview_lines(
    path: PathLike,
    pattern: str = ".text",
    reader: Reader | None = None,
    start: int = 0,
    max_characters: int = MAX_CHARACTERS,
    index_path: PathLike | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield lines from number `start` on: {"line", "start", "bytes", "text", "error"} and items of `Reader.describe`.

    line: its number, from 0; start: position of its first byte, None in a compressed file; bytes: its length; text:
    the first `max_characters` of the text that `pattern` selects, escaped; error: why packing would skip the line, else
    None (`text` is then the start of the line). With `reader.decoder`: tokens, ids, pieces and ends_with_eos of the
    packed text.
    The index of the file (`index_path`, default `<stem>.idx`) is used if it exists. Raises StaleIndex, a FormatError,
    if it does not match the file, ValueError if there is no line `start`, and as `compile_pattern` and
    `Reader.describe`.
    """
    text_of = compile_pattern(pattern)
    lines = _unpacked(path, start) if is_compressed(path) else _mapped(path, start, index_path)
    number = None
    for number, (first, n_bytes, line) in zip(count(start), lines, strict=False):
        where = f"{os.fspath(path)}, line {number}"
        yield {
            "line": number,
            "start": first,
            "bytes": n_bytes,
            **_describe(line, n_bytes, text_of, reader, max_characters, where),
        }
    if start and number is None:
        raise ValueError(f"{os.fspath(path)}: there is no line {start}, counted from 0")


def _describe(
    line: bytes,
    n_bytes: int | None,
    text_of: Callable[[Line], str],
    reader: Reader | None,
    max_characters: int,
    where: str,
) -> dict[str, Any]:
    try:
        if n_bytes is None or n_bytes > len(line):
            raise FaultyDocument(f"more than {MAX_LINE_BYTES:,} bytes: not read here")
        text = text_of(line)
    except FaultyDocument as error:
        start = line[: 4 * max_characters].decode(errors="backslashreplace")
        return {"text": shorten(escape_text(start[: max_characters + 1]), max_characters), "error": str(error)}
    return describe_text(text, reader, max_characters, where)


def describe_text(text: str, reader: Reader | None, max_characters: int, where: str) -> dict[str, Any]:
    """Return {"text", "error"} of a document, and with `reader.decoder` the tokens of the packed text."""
    shown = escape_text(text[:max_characters]) + "..." * (len(text) > max_characters)
    found: dict[str, Any] = {"text": shown, "error": None}
    if reader is None or reader.decoder is None:
        return found if text else found | {"error": "empty text"}
    ids = list(reader.decoder.encode(text))
    if reader.eos is not None and ids and ids[-1] != reader.eos:
        ids.append(reader.eos)
    if not ids:
        found["error"] = "the text gives no tokens" if text else "empty text"
    described = reader.describe(np.array(ids, np.int64), len(ids), where, 0)
    return found | {name: value for name, value in described.items() if name != "text"}


Lines = Iterator[tuple[int | None, int | None, bytes]]  # start, bytes (None: unknown), at most MAX_LINE_BYTES of it


def _mapped(path: PathLike, start: int, index_path: PathLike | None) -> Lines:
    data = map_bytes(path)
    index = as_path(default_index_path(path) if index_path is None else index_path)
    if index.exists() or index_path is not None:
        for first, n_bytes in _indexed(path, index, data, start):
            yield first, n_bytes, data[first : first + min(n_bytes, MAX_LINE_BYTES)].tobytes()
        return
    first = _skip(data, start)
    while first < len(data):
        n_bytes = _line_end(data, first) - first
        known = n_bytes <= MAX_LINE_BYTES
        yield first, n_bytes if known else None, data[first : first + min(n_bytes, MAX_LINE_BYTES)].tobytes()
        if not known:
            return  # the start of the next line is unknown without reading all of this one
        first += n_bytes + 1


def _indexed(path: PathLike, index_path: AnyPath, data: ByteArray, start: int) -> Iterator[tuple[int, int]]:
    """Yield the rows from `start` on; decodes increasing parts of the index."""
    number, known = start, start + 64
    pickled = map_bytes(index_path)
    while True:
        whole = known > _ROWS_BY_ONE
        rows = read_raw_index(index_path) if whole else pickled_index.decode_first(pickled, index_path, 0, known)
        whole = whole or len(rows) < known
        check_raw_index(path, index_path, data, rows, whole=whole)
        for first, length in rows[number:].tolist():
            number += 1
            yield first, length
        if whole:
            return
        known *= 4


def _skip(data: Any, n_lines: int) -> int:
    """Return the start of line `n_lines`, or the end of the data."""
    row, first, at = np.empty((max(1, min(n_lines, 4096)), 2), np.int64), 0, 0
    while n_lines and at < len(data):
        n_rows, consumed, first = kernels.index_lines(data[at : at + (1 << 20)], at, first, row[:n_lines])
        n_lines, at = n_lines - n_rows, at + consumed
    return first if not n_lines else len(data)


def _line_end(data: Any, first: int) -> int:
    """Return the end of the line that starts at `first`; for a line above MAX_LINE_BYTES, a position after that."""
    row, at = np.empty((1, 2), np.int64), first
    while at < len(data) and at - first <= MAX_LINE_BYTES:
        n_rows, consumed, _ = kernels.index_lines(data[at : at + _BLOCK], at, first, row)
        if n_rows:
            return first + int(row[0, 1])
        at += consumed
    return at


def _unpacked(path: PathLike, start: int) -> Lines:
    number = 0
    for block, _ in read_lines(path, _BLOCK):
        for line in block.removesuffix(b"\n").split(b"\n"):
            if number >= start:
                yield None, len(line), line[:MAX_LINE_BYTES]
            number += 1
