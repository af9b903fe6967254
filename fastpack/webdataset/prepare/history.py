"""What is remembered of a run, beside its index: how each shard was, so that the next run walks only what changed."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from fastpack.io import AnyPath, AtomicFile, PathLike, stat_of
from fastpack.webdataset import metadata as nvmeta
from fastpack.webdataset.metadata import WalkedShard
from fastpack.webdataset.sample_index.staging import walked_shard

FILE_NAME = ".fastpack.json"  # in .nv-meta; Energon does not look at it
_VERSION = 1


class History:
    """The shards of the index that is there now, by name; empty where none is, or where somebody else wrote it.

    folder: the dataset's. sample_tables: whether that index has the tables of samples.
    """

    def __init__(self, folder: PathLike) -> None:
        self.shards: dict[str, tuple[int, WalkedShard]] = {}
        self.sample_tables = False
        tree = _load(nvmeta.meta_path(folder, FILE_NAME))
        if tree.get("version") == _VERSION and tree.get("index") == _identity(nvmeta.index_path(folder)):
            self.sample_tables = bool(tree.get("sample_tables"))
            rows = tree.get("shards")
            try:
                shards = list(map(walked_shard, rows if isinstance(rows, list) else ()))
            except ValueError:
                shards = []
            self.shards = {shard.name: (number, shard) for number, shard in enumerate(shards)}


def open_history(folder: PathLike) -> AtomicFile:
    """The history of a run that begins: until it is complete, no other run may write this dataset (JobError)."""
    return AtomicFile(nvmeta.meta_path(folder, FILE_NAME), follow=False)


def write_history(
    file: AtomicFile, folder: PathLike, shards: Iterable[WalkedShard], *, sample_tables: bool, mode: int | None
) -> None:
    """Remember how the shards of the index that is there now were walked, in the order of their numbers."""
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
    """Size and time of change of the index: another one when anybody writes it."""
    try:
        status = stat_of(index)
    except FileNotFoundError:
        return None
    return [status.st_size, status.st_mtime_ns]


def _load(path: AnyPath) -> dict[str, Any]:
    try:
        tree = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):  # it only saves work: a torn or foreign file is as good as none
        return {}
    return tree if isinstance(tree, dict) else {}
