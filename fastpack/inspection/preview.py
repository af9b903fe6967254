"""The first documents of a packed file, of token shards, or of JSON lines: only what is shown is read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fastpack.documents.compressed import is_compressed
from fastpack.errors import JobError
from fastpack.inspection.preview_tokens import Reader
from fastpack.io import PathLike, as_path, check_exists
from fastpack.tokens.pbin.packed_file import PackedFile
from fastpack.webdataset.metadata import meta_path

Found = dict[str, Any]
_ROWS = 64  # of an index, read at first


def kind_of(path: PathLike) -> str:
    """ "webdataset", "jsonl", "pbin" or "shards". FileNotFoundError; JobError for what cannot be previewed.

    A JSONL file with Energon's index beside it (`x.jsonl.idx`) is a "webdataset".
    """
    where = as_path(path)
    if where.is_dir():
        return "webdataset" if meta_path(where).is_dir() else "shards"
    check_exists(where)  # FileNotFoundError before a word about suffixes
    if where.suffix == ".jsonl":
        return "webdataset" if as_path(f"{where}.idx").exists() else "jsonl"
    if is_compressed(where):
        return "jsonl"
    kinds = {".pbin": "pbin", ".npy": "shards", ".bin": "shards", ".fpm": "shards"}
    if where.suffix not in kinds:
        known = ".jsonl (.gz, .zst), .pbin, .npy, .bin, .fpm"
        raise JobError(f"{where}: cannot be previewed: neither one of {known}, nor a folder of shards or samples")
    return kinds[where.suffix]


def preview_packed(path: PathLike, reader: Reader, start: int = 0) -> Iterator[Found]:
    """Documents from number `start` on: {"document", "start", ...}, what `Reader.describe` says of each.

    document: its number; start: its first token's place among those of the file. Raises as `PackedFile` does,
    ValueError where there is no document `start`, and what `Reader.describe` raises.
    """
    with PackedFile(path) as file:
        size, number, known = file.token_size_in_bytes, start, start + _ROWS
        rows = file.first(known)
        if start and start >= len(rows):
            raise ValueError(f"{path}: there is no document {start}: the file has {len(rows)}, counted from 0")
        while True:
            while number < len(rows):
                first, n_tokens = (rows[number] // size).tolist()
                tokens = file.tokens(first, first + n_tokens)
                yield {"document": number, "start": first, **reader.describe(tokens, n_tokens, path, first)}
                number += 1
            if len(rows) < known:
                return
            known *= 4
            rows = file.first(known)
