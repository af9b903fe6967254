"""`prepare_media`: add media metadata to the index of a prepared dataset, or to a new index of plain files."""

from __future__ import annotations

import os

from fastpack.errors import JobError
from fastpack.io import AnyPath, PathLike, Progress, is_remote
from fastpack.webdataset import metadata as nvmeta
from fastpack.webdataset.preparation.history import open_history
from fastpack.webdataset.preparation.media import MediaFilter, media_files, media_of_files
from fastpack.webdataset.preparation.nv_meta_folder import INDEX_FILES, make_folder, shard_indexes, write_counts
from fastpack.webdataset.preparation.settings import ExecutionSettings
from fastpack.webdataset.preparation.walk_shards import WalkOptions, walk_shards
from fastpack.webdataset.sample_index import IndexWriter, SampleIndex


def prepare_media(
    path: PathLike, media: MediaFilter, *, num_workers: int | None = None, progress: Progress | None = None
) -> int:
    """Add media metadata to a prepared dataset, or to a folder of plain files; return the number of media files.

    A plain folder gets an index with media metadata only, whose entry keys are paths relative to the folder. Entries of
    other files are kept. Raises as `prepare_webdataset`, MissingExtra without Pillow or av, JobError without media.
    """
    root = os.fspath(path)
    if not nvmeta.is_prepared(path):
        return _prepare_files(root, media)
    shards = list(nvmeta.read_info(path))
    has_samples = SampleIndex(nvmeta.index_path(path)).has_samples
    options = WalkOptions(
        execution=ExecutionSettings(num_workers=num_workers, walk_all=True, sample_tables=has_samples),
        media=media,
        keep_media=True,
        mode=make_folder(path, shards),
        progress=progress,
    )
    with open_history(path) as history:
        summary = walk_shards(root, shards, options)
        write_counts(root, summary, options, history)
    return summary.n_media


def _media_files(root: str, media: MediaFilter) -> list[str]:
    if is_remote(root):
        raise JobError(f"{root}: media outside shards can only be read from a local folder")
    if not os.path.isdir(root):
        raise NotADirectoryError(f"{root} is not a folder")
    paths = media_files(root, media)
    if not paths:
        raise JobError(f"{root} has no media files")
    return paths


def _prepare_files(root: str, media: MediaFilter) -> int:
    paths = _media_files(root, media)
    nvmeta.make_folder(root)
    index = nvmeta.index_path(root)
    mode = (os.stat(root).st_mode | 0o600) & 0o666
    rows = list(media_of_files(root, paths, media))
    with IndexWriter(index, mode=mode, previous=index if index.is_file() else None, sample_tables=False) as writer:
        writer.copy_media()
        writer.add_media(rows, media.index_entry())
    return len(rows)


def plan_media(path: PathLike, media: MediaFilter) -> list[AnyPath]:
    """Return the paths that `prepare_media` would write; raises what it raises before it reads any file."""
    if not nvmeta.is_prepared(path):
        _media_files(os.fspath(path), media)
    return media_paths(path)


def media_paths(path: PathLike) -> list[AnyPath]:
    """Return the paths that `prepare_media` writes in a folder."""
    shards = nvmeta.read_info(path) if nvmeta.is_prepared(path) else {}
    names = INDEX_FILES if shards else INDEX_FILES[:1]
    return [*(nvmeta.meta_path(path, name) for name in names), *shard_indexes(path, shards)]
