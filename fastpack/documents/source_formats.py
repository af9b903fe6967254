"""The formats of text sources, detected by the name of a file and checked against its first bytes."""

from __future__ import annotations

import os
from typing import Literal, TypeAlias, get_args

from fastpack.documents.compressed import SUFFIXES
from fastpack.errors import FormatError
from fastpack.io import PathLike, read_start

SourceFormat: TypeAlias = Literal["jsonl", "parquet", "arrow", "csv", "tsv", "text"]

SOURCE_FORMATS: tuple[SourceFormat, ...] = get_args(SourceFormat)
BY_SUFFIX: dict[str, SourceFormat] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".csv": "csv",
    ".tsv": "tsv",
    ".txt": "text",
}
COMPRESSIBLE: tuple[SourceFormat, ...] = ("jsonl", "csv", "tsv", "text")  # the others compress their own columns
PARQUET_MAGIC, ARROW_MAGIC = b"PAR1", b"ARROW1"
ARROW_STREAM_START = b"\xff\xff\xff\xff"  # each message of a stream begins so; the library `datasets` writes streams


def format_of_name(path: PathLike) -> SourceFormat | None:
    """Return the format that the suffix of a path names, of the suffix before .gz or .zst; None for another suffix."""
    name = os.fspath(path)
    for suffix in SUFFIXES:
        name = name.removesuffix(suffix)
    return BY_SUFFIX.get(os.path.splitext(name)[1].lower())


def source_format(path: PathLike) -> SourceFormat:
    """Return the format of a source: that of its suffix, else of its first bytes, else JSON Lines.

    Raises FormatError where the first bytes contradict the suffix.
    """
    named, found = format_of_name(path), format_of_content(path)
    if named is None:
        return found or "jsonl"
    if (named in ("parquet", "arrow") or found is not None) and named != found:
        start = read_start(path, 8)
        raise FormatError(path, 0, f"{start!r}" if start else "an empty file", f"a {named} file, as its name says")
    return named


def format_of_content(path: PathLike) -> SourceFormat | None:
    """Return the format that the first bytes of a file name; None for text."""
    start = read_start(path, 8)
    if start.startswith(PARQUET_MAGIC):
        return "parquet"
    return "arrow" if start.startswith((ARROW_MAGIC, ARROW_STREAM_START)) else None
