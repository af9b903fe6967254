"""`prepare_webdataset`: turn a folder of tar shards into a dataset that Megatron-Energon and fastpack can load."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from fastpack.display import Result, facts
from fastpack.errors import JobError
from fastpack.io import AnyPath, PathLike, Progress, as_path, plain_path
from fastpack.webdataset import metadata as nvmeta
from fastpack.webdataset.preparation.dataset_yaml import SampleTypeSpec, missing_field_warnings, write_sample_type
from fastpack.webdataset.preparation.history import open_history
from fastpack.webdataset.preparation.nv_meta_folder import (
    INDEX_FILES,
    check_not_prepared,
    make_folder,
    new_folder,
    shard_indexes,
    shards_of,
    write_counts,
)
from fastpack.webdataset.preparation.settings import ExecutionSettings, PrepareSettings
from fastpack.webdataset.preparation.splits import Compat, Splits, listed
from fastpack.webdataset.preparation.walk_shards import (
    WalkOptions,
    WalkResult,
    WalkSummary,
    unchanged_shards,
    walk_shards,
)


@dataclass(frozen=True, slots=True, repr=False)
class PrepareResult(Result):
    """Describe what `prepare_webdataset` did, or would do in a dry run.

    Parameters
    ----------
    path
        The folder of the dataset.
    shards
        Samples of each shard, in order. After a dry run the counts are 0.
    splits
        The shards of each split.
    part_types
        Names of the stored fields, in the order in which they appear; about 50 at most.
    reused
        Number of shards that were not walked, because they are unchanged or a killed run had walked them.
    skipped
        Bad shards, and the reason for each.
    warnings
        Warnings for the user.
    files
        Names of the files written in ``.nv-meta`` (or that would be written).
    written
        False after a dry run.
    media
        Number of fields whose media metadata was read.

    Examples
    --------
    >>> import io, tarfile, tempfile, fastpack
    >>> folder = tempfile.TemporaryDirectory()
    >>> with tarfile.open(f"{folder.name}/0.tar", "w") as tar:
    ...     tar.addfile(tarfile.TarInfo("sample.txt"), io.BytesIO())
    >>> result = fastpack.prepare(folder.name, split_ratio=(1, 0, 0))
    >>> result.samples, result.splits["train"], result.part_types
    (1, ['0.tar'], ['txt'])
    >>> folder.cleanup()
    """

    _shown = facts("path", "samples", "shards", "splits", "skipped", "warnings", "written")

    path: AnyPath
    shards: dict[str, int]
    splits: Splits
    part_types: list[str] = field(default_factory=list)
    reused: int = 0
    skipped: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    written: bool = True
    media: int = 0

    @property
    def samples(self) -> int:
        """Number of samples in all shards."""
        return sum(self.shards.values())

    @property
    def paths(self) -> list[AnyPath]:
        """Every path written, or that would be written: `files` in ``.nv-meta``, and the index of each shard."""
        return [*(nvmeta.meta_path(self.path, name) for name in self.files), *shard_indexes(self.path, self.shards)]


def prepare_webdataset(
    path: PathLike,
    settings: PrepareSettings,
    *,
    dry_run: bool = False,
    progress: Progress | None = None,
    walker: Callable[[str], WalkResult] | None = None,
    define: Callable[[WalkSummary], SampleTypeSpec | None] | None = None,
) -> PrepareResult:
    """Walk the shards of a folder and write ``.nv-meta`` and the ``.tar.idx`` files, as ``energon prepare`` does.

    `fastpack.prepare` is the same with flat options. Shards that did not change since the last run are skipped.

    Parameters
    ----------
    path
        The folder with the shards.
    settings
        Splits, sample type, media metadata and execution.
    dry_run
        Write nothing; return what would be done.
    progress
        Called with (bytes of finished shards, bytes of all shards).
    walker
        Called with the name of a shard instead of walking it: another process has walked it.
    define
        Called when all shards are walked; returns the contents of ``dataset.yaml`` in place of
        ``settings.sample_type``. Nothing is written before it returns, or if it raises.

    Returns
    -------
    PrepareResult
        The shards, the splits, warnings and the files written.

    Raises
    ------
    TargetExists
        If the dataset is already prepared, without ``force_overwrite`` or ``resume``. It is a FileExistsError and a
        ValueError.
    FormatError
        If a shard is damaged.
    DuplicateKeys
        If a sample key occurs more than once.
    FileNotFoundError
        If the folder does not exist.

    Notes
    -----
    After an error, a previous index is unchanged.

    Examples
    --------
    >>> import io, tarfile, tempfile
    >>> from fastpack.webdataset.preparation.prepare_webdataset import prepare_webdataset
    >>> from fastpack.webdataset.preparation.settings import PrepareSettings, SplitSpec
    >>> folder = tempfile.TemporaryDirectory()
    >>> with tarfile.open(f"{folder.name}/0.tar", "w") as tar:
    ...     tar.addfile(tarfile.TarInfo("sample.txt"), io.BytesIO())
    >>> result = prepare_webdataset(folder.name, PrepareSettings(SplitSpec(ratio=(1, 0, 0))))
    >>> result.shards, result.splits["train"], result.part_types
    ({'0.tar': 1}, ['0.tar'], ['txt'])
    >>> folder.cleanup()
    """
    execution = settings.execution
    check_not_prepared(path, execution.force_overwrite or execution.resume or dry_run)
    root, names = plain_path(path), shards_of(path, settings.splits.exclude)
    if dry_run:
        return _plan(root, names, settings)
    chosen = [settings.sample_type]
    with new_folder(path, names) as mode, open_history(root) as history:
        options = WalkOptions(
            execution=execution,
            media=settings.media,
            mode=mode,
            resumable=walker is None,
            progress=progress,
            walker=walker,
            confirm=None if define is None else lambda summary: chosen.append(define(summary)),
        )
        summary = walk_shards(root, names, options)
        counts = summary.counts
        assigned = settings.splits.assign(list(counts))
        write_counts(root, summary, options, history)
        nvmeta.write_split(root, assigned, mode=mode)
        files, stored, sample_type = [*INDEX_FILES, "split.yaml"], summary.field_names, chosen[-1]
        if sample_type is not None:
            files += [file.name for file in write_sample_type(path, sample_type, stored, mode=mode)]
    warnings = summary.warnings + settings.splits.warnings(list(counts), assigned)
    if sample_type is not None:
        warnings += missing_field_warnings(sample_type.field_map, stored)
    return PrepareResult(
        as_path(path),
        counts,
        assigned,
        stored,
        summary.n_reused,
        summary.skipped,
        warnings,
        files,
        media=summary.n_media,
    )


def _plan(root: str, names: Sequence[str], settings: PrepareSettings) -> PrepareResult:
    files = [*INDEX_FILES, "split.yaml"]
    if settings.sample_type is not None:
        files.append(settings.sample_type.dataset_yaml_name)
    assigned = settings.splits.assign(names)
    reused = unchanged_shards(root, names, WalkOptions(execution=settings.execution, media=settings.media))
    return PrepareResult(
        as_path(root),
        dict.fromkeys(names, 0),
        assigned,
        reused=len(reused),
        warnings=settings.splits.warnings(names, assigned),
        files=files,
        written=False,
    )


def rebuild_indexes(
    path: PathLike,
    *,
    num_workers: int | None = None,
    resume: bool = False,
    sample_tables: bool = True,
    compat: Compat = None,
    progress: Progress | None = None,
) -> PrepareResult:
    """Walk the shards of a prepared dataset again and rewrite their indexes; the splits stay as they are.

    Parameters
    ----------
    path
        The folder of the dataset.
    num_workers
        Threads. By default one per processor, at most 16.
    resume
        Continue a run that was interrupted or killed.
    sample_tables
        Write the tables of samples into ``index.sqlite``.
    compat
        ``"energon"``: keep the sample counts of ``.info.json`` even where they are wrong. By default they are
        corrected, with a warning.
    progress
        Called with (bytes of finished shards, bytes of all shards).

    Returns
    -------
    PrepareResult
        The result, without splits.

    Raises
    ------
    NotPrepared
        If the dataset is not prepared. It is a FileNotFoundError and a ValueError.
    FormatError
        If a shard is damaged.
    DuplicateKeys
        If a sample key occurs more than once.

    Examples
    --------
    >>> import io, pathlib, tarfile, tempfile, fastpack
    >>> folder = tempfile.TemporaryDirectory()
    >>> with tarfile.open(f"{folder.name}/0.tar", "w") as tar:
    ...     tar.addfile(tarfile.TarInfo("sample.txt"), io.BytesIO())
    >>> _ = fastpack.prepare(folder.name, split_ratio=(1, 0, 0))
    >>> pathlib.Path(folder.name, "0.tar.idx").unlink()
    >>> fastpack.webdataset.rebuild_indexes(folder.name).shards
    {'0.tar': 1}
    >>> pathlib.Path(folder.name, "0.tar.idx").exists()
    True
    >>> folder.cleanup()
    """
    root, before = os.fspath(path), nvmeta.read_info(path)
    if not before:
        raise JobError(f"{root}: .info.json lists no shards. Prepare the dataset again.")
    options = WalkOptions(
        execution=ExecutionSettings(num_workers=num_workers, resume=resume, walk_all=True, sample_tables=sample_tables),
        mode=make_folder(path, list(before)),
        resumable=True,
        progress=progress,
    )
    with open_history(root) as history:
        summary = walk_shards(root, list(before), options)
        counts = summary.counts
        changed = [name for name in before if before[name] != counts[name]]
        keep_counts = compat == "energon" or not changed
        write_counts(root, summary, options, history, before if keep_counts else counts)
    warnings = list(summary.warnings)
    if not keep_counts:
        warnings.append(f"the number of samples has changed in {listed(changed)}")
    return PrepareResult(as_path(path), counts, {}, summary.field_names, summary.n_reused, {}, warnings, [*INDEX_FILES])
