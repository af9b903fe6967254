"""Steps that `prepare_webdataset`, `rebuild_indexes` and `prepare_media` share: find shards, write `.nv-meta`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from fastpack.errors import JobError, spoken
from fastpack.io import AnyPath, AtomicFile, PathLike, TargetExists, as_path, is_remote, stat_of
from fastpack.webdataset import metadata as nvmeta
from fastpack.webdataset.preparation.discover import find_shards
from fastpack.webdataset.preparation.history import FILE_NAME as HISTORY
from fastpack.webdataset.preparation.history import write_history
from fastpack.webdataset.preparation.walk_shards import WalkOptions, WalkSummary
from fastpack.webdataset.shard_index import shard_index_path

INDEX_FILES = ("index.sqlite", "index.uuid", ".info.json", HISTORY)


def shards_of(path: PathLike, exclude: str | None) -> list[str]:
    """Return the shards of a folder. Raises JobError if there are none."""
    names = find_shards(path, exclude)
    if not names:
        raise JobError(f"{os.fspath(path)} has no .tar files" + (" that are not excluded" if exclude else ""))
    return names


def shard_indexes(path: PathLike, shards: Iterable[str]) -> list[AnyPath]:
    """Return the path of each shard's `.tar.idx`."""
    return [as_path(shard_index_path(os.path.join(path, shard))) for shard in shards]


def check_not_prepared(path: PathLike, overwrite: bool) -> None:
    """Raise TargetExists for a prepared dataset, unless `overwrite` is set."""
    if nvmeta.is_prepared(path) and not overwrite:
        raise TargetExists(
            f"{os.fspath(path)} has already been prepared. {spoken('Pass force_overwrite=True')} to prepare it again."
        )


def make_folder(path: PathLike, names: Sequence[str]) -> int:
    """Make `.nv-meta` with the permissions of its parent; return the mode for files in it, that of the first shard.

    The owner can always read and write. Raises JobError if the folder is a link.
    """
    nvmeta.make_folder(path)
    try:
        return (stat_of(os.path.join(path, names[0])).st_mode | 0o600) & 0o7777
    except FileNotFoundError:  # a broken link, which the walk reports
        return 0o600


@contextmanager
def new_folder(path: PathLike, names: Sequence[str]) -> Iterator[int]:
    """Make `.nv-meta` and yield the mode for files; after an error, remove the folder if it is new and empty."""
    existed = nvmeta.meta_path(path).exists()
    mode = make_folder(path, names)
    try:
        yield mode
    except BaseException:
        if not (existed or is_remote(path)):
            with suppress(OSError):
                os.rmdir(nvmeta.meta_path(path))
        raise


def write_counts(
    root: str, summary: WalkSummary, options: WalkOptions, history: AtomicFile, counts: Mapping[str, int] | None = None
) -> None:
    """Write the uuid, `.info.json` and the history, which is last: after a kill the next run walks all shards."""
    if summary.changed:
        nvmeta.write_uuid(root, options.mode)
    nvmeta.write_info(root, summary.counts if counts is None else counts, options.mode)
    sample_tables = options.execution.sample_tables
    write_history(history, root, summary.shards, sample_tables=sample_tables, mode=options.mode)
