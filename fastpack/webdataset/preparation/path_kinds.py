"""Kinds of paths that `prepare` accepts; in a module of its own so that a JSONL file does not import the others."""

from __future__ import annotations

import os

from fastpack.io import PathLike, as_path, exists, is_folder

UNKNOWN = "is not a folder of tar shards, a .jsonl file or a metadataset (.yaml)"


def kind_of(path: PathLike) -> str:
    """Return "webdataset", "jsonl", "metadataset", or "" for anything else. Raises FileNotFoundError."""
    if not exists(path):
        raise FileNotFoundError(f"{os.fspath(path)} does not exist")
    if is_folder(path):
        return "webdataset"
    return {".jsonl": "jsonl", ".yaml": "metadataset"}.get(as_path(path).suffix, "")
