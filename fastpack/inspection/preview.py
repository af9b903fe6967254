"""The first documents of a token file that stores their boundaries; only these documents are read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fastpack.documents.compressed import is_compressed
from fastpack.documents.source_formats import source_format
from fastpack.documents.source_paths import find_tables, is_pattern
from fastpack.errors import JobError
from fastpack.inspection.inspect import TABLE_SUFFIXES
from fastpack.inspection.preview_tokens import Reader
from fastpack.io import PathLike, as_path
from fastpack.tokens.formats import FORMATS, check_dataset_exists, formats_of, open_documents
from fastpack.tokens.loss_mask import open_loss_mask
from fastpack.webdataset.metadata import meta_path

Found = dict[str, Any]
_ROWS = 64  # of an index, read at first


def kind_of(path: PathLike) -> str:
    """Return "webdataset", "jsonl", "pbin", "shards" or the format of a source that is not JSON Lines.

    Raises FileNotFoundError, and JobError for other files.

    A JSONL file with Energon's index (`x.jsonl.idx`) is a "webdataset".
    """
    where = as_path(path)
    if not is_pattern(where):
        check_dataset_exists(where)  # FileNotFoundError before an error about the suffix
    if where.is_dir() and meta_path(where).is_dir():
        return "webdataset"
    rows = formats_of(where)
    if any(row.stores_documents for row in rows):
        return "pbin"
    if any(row.kind in ("shards", "manifest") for row in rows):
        return "shards"
    if tables := find_tables(where):
        return source_format(tables[0])
    check_dataset_exists(where)  # a pattern without a match
    if where.is_dir():
        return "shards"
    if where.suffix == ".jsonl":
        return "webdataset" if as_path(f"{where}.idx").exists() else "jsonl"
    if is_compressed(where):
        return "jsonl"
    known = ", ".join(
        [".jsonl (.gz, .zst)", *TABLE_SUFFIXES, *dict.fromkeys(suffix for row in FORMATS for suffix in row.suffixes)]
    )
    raise JobError(f"{where}: cannot be previewed: neither one of {known}, nor a folder of shards or samples")


def preview_packed(path: PathLike, reader: Reader, start: int = 0) -> Iterator[Found]:
    """Yield documents from number `start` on: {"document", "start", ...} and the items of `Reader.describe`.

    document: its number; start: position of its first token in the file. Raises as `open_documents` and
    `Reader.describe`, and ValueError if there is no document `start`.
    """
    with open_documents(path) as file:
        number, known, mask = start, start + _ROWS, open_loss_mask(file)
        rows = file.document_rows(0, known)
        if start and start >= len(rows):
            raise ValueError(f"{path}: there is no document {start}: the file has {len(rows)}, counted from 0")
        while True:
            while number < len(rows):
                first, n_tokens = rows[number].tolist()
                tokens = file.tokens(first, first + n_tokens)
                described = reader.describe(tokens, n_tokens, path, first)
                if mask is not None:
                    described["loss_mask"] = mask.read(first, first + len(described["ids"])).tolist()
                yield {"document": number, "start": first, **described}
                number += 1
            if len(rows) < known:
                return
            known *= 4
            rows = file.document_rows(0, known)
