"""What `prepare` is given; apart from what it then does, so that a JSON lines file loads no more than it needs."""

from __future__ import annotations

import os

from fastpack.io import PathLike, as_path, exists, is_folder

UNKNOWN = "is no folder of tar shards, no .jsonl file and no metadataset (.yaml)"


def kind_of(path: PathLike) -> str:
    """What `prepare` is given: "webdataset", "jsonl", "metadataset", or "" for anything else. FileNotFoundError."""
    if not exists(path):
        raise FileNotFoundError(f"{os.fspath(path)} does not exist")
    if is_folder(path):
        return "webdataset"
    return {".jsonl": "jsonl", ".yaml": "metadataset"}.get(as_path(path).suffix, "")
