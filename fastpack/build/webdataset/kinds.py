"""What `prepare` is given; apart from what it then does, so that a JSON lines file loads no more than it needs."""

from __future__ import annotations

import os
from pathlib import Path

from fastpack.files import PathLike

UNKNOWN = "is no folder of tar shards, no .jsonl file and no metadataset (.yaml)"


def kind_of(path: PathLike) -> str:
    """What `prepare` is given: "webdataset", "jsonl", "metadataset", or "" for anything else. FileNotFoundError."""
    if not os.path.exists(path):
        raise FileNotFoundError(f"{os.fspath(path)} does not exist")
    if os.path.isdir(path):
        return "webdataset"
    return {".jsonl": "jsonl", ".yaml": "metadataset"}.get(Path(path).suffix, "")
