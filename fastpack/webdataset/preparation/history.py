"""The history file next to the index: the state of each shard, so that the next run walks only changed shards."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from fastpack.io import AnyPath, AtomicFile, PathLike, stat_of
from fastpack.webdataset import metadata as nvmeta
from fastpack.webdataset.sample_index.staging import ShardRecord, shard_record

FILE_NAME = ".fastpack.json"  # in .nv-meta; Energon ignores it
_VERSION = 1


class History:
    """The shards of the current index by name; empty if there is no index or another program wrote it.

    sample_tables: whether the index has the tables of samples.
    """

    def __init__(self, folder: PathLike) -> None:
        self.shards: dict[str, tuple[int, ShardRecord]] = {}
        self.sample_tables = False
        tree = _load(nvmeta.meta_path(folder, FILE_NAME))
        if tree.get("version") == _VERSION and tree.get("index") == _identity(nvmeta.index_path(folder)):
            self.sample_tables = bool(tree.get("sample_tables"))
            rows = tree.get("shards")
            with suppress(ValueError):
                shards = map(shard_record, rows if isinstance(rows, list) else ())
                self.shards = {shard.name: (number, shard) for number, shard in enumerate(shards)}


def open_history(folder: PathLike) -> AtomicFile:
    """Open the history of a new run. It locks the dataset: another run raises JobError until this one is complete."""
    return AtomicFile(nvmeta.meta_path(folder, FILE_NAME), follow=False)


def write_history(
    file: AtomicFile, folder: PathLike, shards: Iterable[ShardRecord], *, sample_tables: bool, mode: int | None
) -> None:
    """Write the state of the current index's shards, in tar_file_id order."""
    tree = {
        "version": _VERSION,
        "index": _identity(nvmeta.index_path(folder)),
        "sample_tables": sample_tables,
        "shards": [list(shard) for shard in shards],
    }
    file.write(json.dumps(tree).encode())
    if mode is not None:
        file.set_mode(mode)


def _identity(index: AnyPath) -> list[int] | None:
    """Return size and modification time of the index, which change when it is written."""
    try:
        status = stat_of(index)
    except FileNotFoundError:
        return None
    return [status.st_size, status.st_mtime_ns]


def _load(path: AnyPath) -> dict[str, Any]:
    try:
        tree = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):  # only a cache: a torn or foreign file is ignored
        return {}
    return tree if isinstance(tree, dict) else {}
