"""`prepare`: index a folder of tar shards, a JSONL file, or the joins of a metadataset."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

from fastpack.errors import DataWarning
from fastpack.io import PathLike, Progress, is_folder
from fastpack.webdataset.preparation.crude_jsonl_index import JsonlIndexResult, index_webdataset_jsonl
from fastpack.webdataset.preparation.dataset_yaml import sample_type_spec
from fastpack.webdataset.preparation.media import MediaFilter
from fastpack.webdataset.preparation.metadataset import MetadatasetResult, prepare_metadataset
from fastpack.webdataset.preparation.path_kinds import UNKNOWN, kind_of
from fastpack.webdataset.preparation.prepare_webdataset import PrepareResult, prepare_webdataset
from fastpack.webdataset.preparation.settings import ExecutionSettings, PrepareSettings, SplitSpec
from fastpack.webdataset.preparation.splits import Compat, Ratio

Patterns: TypeAlias = Mapping[str, str | Iterable[str]] | Sequence[tuple[str, str]]
_R = TypeVar("_R", PrepareResult, MetadatasetResult)


def prepare(
    path: PathLike,
    *,
    split_ratio: Ratio | None = None,
    split_parts: Patterns = (),
    split_globs: Patterns = (),
    shuffle_tars: bool = False,
    exclude: str | None = None,
    compat: Compat = None,
    sample_type: str | None = None,
    field_map: Mapping[str, str] | str | None = None,
    dataset_yaml_name: str = "dataset.yaml",
    media: MediaFilter | None = None,
    num_workers: int | None = None,
    force_overwrite: bool = False,
    resume: bool = False,
    walk_all: bool = False,
    skip_bad_shards: bool = False,
    sample_tables: bool = True,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> PrepareResult | JsonlIndexResult | MetadatasetResult:
    """Index a dataset for Megatron-Energon and `fastpack.WebDataset`.

    A folder of tar shards gets a ``.nv-meta`` folder and a ``.tar.idx`` per shard. A ``.jsonl`` file gets a
    ``.jsonl.idx``. For a metadataset (``.yaml``), the indexes of its joins are written. All files are byte for byte
    those of ``energon prepare``.

    Parameters
    ----------
    path
        A folder, a ``.jsonl`` file or a ``.yaml`` file. All options except `progress` are for folders.
    split_ratio
        Three numbers for train, val and test, such as ``(8, 1, 1)``. Exactly one of `split_ratio`, `split_parts` and
        `split_globs` is required for a folder.
    split_parts
        The shards of each split, by regular expressions that match the start of a path: a mapping of splits to one or
        several expressions, or (split, expression) pairs.
    split_globs
        The shards of each split, by globs of the whole path; otherwise as `split_parts`.
    shuffle_tars
        Shuffle the shards (with a fixed seed) before they are split by ratio.
    exclude
        A regular expression. Shards in whose path it is found are left out.
    compat
        ``"energon"``: split exactly as Energon 7.4.1, including the shards that its rounding loses.
    sample_type
        The name of a sample class for ``dataset.yaml``, such as ``CaptioningSample`` or ``CrudeWebdataset``. By default
        no ``dataset.yaml`` is written.
    field_map
        Maps each field of the sample class to a stored field, such as ``{"image": "jpg", "caption": "json[text]"}``; as
        a mapping or as JSON.
    dataset_yaml_name
        Another name for ``dataset.yaml``.
    media
        Fields whose media metadata goes into the index; see `media_filter`.
    num_workers
        Threads. By default one per processor, at most 16.
    force_overwrite
        Prepare a dataset again that has already been prepared.
    resume
        Continue a run that was interrupted or killed.
    walk_all
        Also walk shards that did not change since the last run.
    skip_bad_shards
        Leave damaged and empty shards out instead of raising an error.
    sample_tables
        Write the tables of samples into ``index.sqlite``. Training does not need them, lookup by key does. Without
        them, repeated keys are not detected.
    dry_run
        Write nothing; return what would be done.
    progress
        Called with (bytes done, bytes in total).

    Returns
    -------
    PrepareResult or JsonlIndexResult or MetadatasetResult
        For a folder, a ``.jsonl`` file and a ``.yaml`` file. Warnings in it are also issued as DataWarning.

    Raises
    ------
    ValueError
        If the path is of another kind, options are invalid, or options for folders are given for a file.
    FileNotFoundError
        If the path does not exist.
    FileExistsError
        If the folder is already prepared, without `force_overwrite` or `resume`.
    FormatError
        If a shard or a file is damaged. A previous index is then unchanged.

    Examples
    --------
    >>> import io, tarfile, tempfile
    >>> import fastpack
    >>> folder = tempfile.TemporaryDirectory()
    >>> for name in ("train.tar", "val.tar"):
    ...     with tarfile.open(f"{folder.name}/{name}", "w") as tar:
    ...         tar.addfile(tarfile.TarInfo(f"{name}/0.txt"), io.BytesIO())
    >>> result = fastpack.prepare(folder.name, split_parts={"train": "train", "val": "val"}, sample_type="TextSample",
    ...                           field_map={"text": "txt"})
    >>> result.splits
    {'train': ['train.tar'], 'val': ['val.tar']}
    >>> fastpack.WebDataset(folder.name, "train")[0].text
    ''
    >>> folder.cleanup()
    """
    arguments = locals()
    if is_folder(path):
        settings = PrepareSettings(
            SplitSpec(
                ratio=split_ratio,
                patterns=pairs(split_parts),
                globs=pairs(split_globs),
                shuffle=shuffle_tars,
                exclude=exclude,
                compat=compat,
            ),
            sample_type_spec(sample_type, field_map, dataset_yaml_name=dataset_yaml_name),
            media,
            ExecutionSettings(
                num_workers=num_workers,
                force_overwrite=force_overwrite,
                resume=resume,
                walk_all=walk_all,
                skip_bad_shards=skip_bad_shards,
                sample_tables=sample_tables,
            ),
        )
        return _warned(path, prepare_webdataset(path, settings, dry_run=dry_run, progress=progress))
    return _prepare_file(path, _folder_options(arguments), progress)


def _folder_options(arguments: Mapping[str, Any]) -> list[str]:
    """Return the names of the options for folders that differ from their defaults."""
    defaults: Mapping[str, Any] = prepare.__kwdefaults__ or {}
    return sorted(name for name, value in defaults.items() if name != "progress" and arguments[name] != value)


def _prepare_file(
    path: PathLike, folder_options: Sequence[str], progress: Progress | None
) -> JsonlIndexResult | MetadatasetResult:
    kind = kind_of(path)
    if not kind:
        raise ValueError(f"{os.fspath(path)} {UNKNOWN}")
    if folder_options:
        raise ValueError(f"{', '.join(folder_options)}: only for folders of shards, not for a {kind}")
    if kind == "jsonl":
        return index_webdataset_jsonl(path, progress=progress)
    return _warned(path, prepare_metadataset(path))


def _warned(path: PathLike, result: _R) -> _R:
    for warning in result.warnings:
        warnings.warn(f"{os.fspath(path)}: {warning}", DataWarning, stacklevel=3)
    return result


def pairs(patterns: Patterns) -> list[tuple[str, str]]:
    """Return (split, pattern) pairs."""
    if not isinstance(patterns, Mapping):
        return list(patterns)
    return [
        (split, pattern)
        for split, of_split in patterns.items()
        for pattern in ([of_split] if isinstance(of_split, str) else of_split)
    ]
