"""`prepare`: a folder of tar shards becomes a dataset that Megatron-Energon and fastpack can load."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from fastpack.display import Result, facts
from fastpack.errors import JobError, spoken
from fastpack.io import (
    AnyPath,
    AtomicFile,
    PathLike,
    Progress,
    RemotePath,
    TargetExists,
    as_path,
    is_remote,
    plain_path,
    stat_of,
)
from fastpack.webdataset import metadata as nvmeta
from fastpack.webdataset.metadata import IndexWriter, SampleIndex
from fastpack.webdataset.prepare import dataset_yaml as definition
from fastpack.webdataset.prepare import splits
from fastpack.webdataset.prepare.dataset_yaml import Definition
from fastpack.webdataset.prepare.discover import find_shards
from fastpack.webdataset.prepare.history import FILE_NAME as HISTORY
from fastpack.webdataset.prepare.history import open_history, write_history
from fastpack.webdataset.prepare.media import MediaFilter, media_files, media_of_files
from fastpack.webdataset.prepare.splits import Compat, Parts, Ratio
from fastpack.webdataset.prepare.walk_shards import (
    MAX_PARTS,
    Walked,
    WalkOptions,
    WalkResult,
    unchanged_shards,
    walk_shards,
)
from fastpack.webdataset.shard_index import shard_index_path

MAX_WORKERS = 16
_FILES = ("index.sqlite", "index.uuid", ".info.json", HISTORY)


class SplitWish(NamedTuple):
    """How shards are to be split: by ratio, by regular expressions, or by patterns of paths; one of the three."""

    ratio: Ratio | None = None
    patterns: Sequence[tuple[str, str]] = ()
    globs: Sequence[tuple[str, str]] = ()
    shuffle: bool = False
    compat: Compat = None

    def check(self) -> None:
        """ValueError for no wish, or several, or one that cannot be."""
        if (self.ratio is not None) + bool(self.patterns) + bool(self.globs) != 1:
            raise ValueError("say how to split the shards: by a ratio, by split parts or by split globs; one of them")
        if self.compat not in (None, "energon"):
            raise ValueError(f"unknown compat {self.compat!r}: the only one is 'energon'")
        self.parts([])

    def parts(self, shards: Sequence[str]) -> Parts:
        """Which shards belong to which part."""
        if self.ratio is not None:
            return splits.split_by_ratio(shards, self.ratio, shuffle=self.shuffle, compat=self.compat)
        if self.patterns:
            return splits.split_by_patterns(shards, self.patterns, compat=self.compat)
        return splits.split_by_globs(shards, self.globs)

    def problems(self, shards: Sequence[str], parts: Parts) -> list[str]:
        """What the user should know of these parts."""
        if self.ratio is None:
            return splits.describe_problems(shards, parts, list(parts))
        numbers = splits.check_ratio(self.ratio)
        wanted = [part for part, number in zip(parts, numbers, strict=True) if number]
        problems = splits.describe_problems(shards, parts, wanted)
        lost = splits.lost_by_energon(shards, self.ratio, shuffle=self.shuffle)
        if lost and self.compat is None:
            home = next(part for part, names in parts.items() if lost[0] in names)
            problems.append(
                f"at this ratio Energon's rounding leaves {splits.named(lost)} out of every split; "
                f"here it is in {home}. --compat energon leaves it out as well"
            )
        return problems


@dataclass(frozen=True, slots=True, repr=False)
class PrepareResult(Result):
    """What `prepare_webdataset` did, or with dry_run would do.

    path: the dataset's folder; shards: samples of each, in order (after a dry run 0 where they are not known);
    splits: the shards of each part; part_types: names of parts in the order in which they appear; reused: shards that
    were not walked, because they did not change or a killed run had done them; skipped: bad shards and what is wrong
    with them; warnings: what the user should know; files: what was written in `.nv-meta`, or would be; written: False
    after a dry run; media: parts whose metadata was read.
    """

    _shown = facts("path", "samples", "shards", "splits", "skipped", "warnings", "written")

    path: AnyPath
    shards: dict[str, int]
    splits: Parts
    part_types: list[str] = field(default_factory=list)
    reused: int = 0
    skipped: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    written: bool = True
    media: int = 0

    @property
    def samples(self) -> int:
        """Samples of all shards."""
        return sum(self.shards.values())

    @property
    def paths(self) -> list[AnyPath]:
        """All that was written, or would be: `files` of `.nv-meta`, and the index beside each shard."""
        return [*(nvmeta.meta_path(self.path, name) for name in self.files), *shard_indexes(self.path, self.shards)]


def prepare_webdataset(
    path: PathLike,
    *,
    split_ratio: Ratio | None = None,
    split_parts: Sequence[tuple[str, str]] = (),
    split_globs: Sequence[tuple[str, str]] = (),
    shuffle_tars: bool = False,
    exclude: str | None = None,
    sample_type: str | None = None,
    field_map: Mapping[str, str] | str | None = None,
    dataset_yaml_name: str = "dataset.yaml",
    num_workers: int | None = None,
    force_overwrite: bool = False,
    resume: bool = False,
    walk_all: bool = False,
    skip_bad_shards: bool = False,
    sample_tables: bool = True,
    media: MediaFilter | None = None,
    dry_run: bool = False,
    compat: Compat = None,
    progress: Progress | None = None,
    walker: Callable[[str], WalkResult] | None = None,
    define: Callable[[Walked], Definition | None] | None = None,
) -> PrepareResult:
    """Walk the shards of a folder and write `.nv-meta` and the `.tar.idx` files, as `energon prepare` does.

    split_ratio: numbers for train, val and test; split_parts: (part, regular expression) pairs; split_globs: (part,
    pattern) pairs; one of the three (`splits`). exclude: a regular expression of shards to leave out. sample_type and
    field_map: what `dataset.yaml` is to say; none is written without a type. num_workers: threads (default: one a
    processor, at most 16). Shards that did not change since the last run are not walked again unless walk_all is set;
    resume goes on with a run that was killed. skip_bad_shards leaves damaged and empty shards out. sample_tables=False
    leaves `index.sqlite` without samples: training needs none there, but access by key does, and repeated keys are not
    found. compat="energon" counts and matches as Energon does, errors of rounding included. media: of which parts the
    index is to have the metadata (`media.media_filter`); all shards are then walked. progress(bytes of shards done, in
    all). walker: has walked the shards (`parts`). define: asked for what `dataset.yaml` is to say, instead of
    sample_type and field_map, when the shards are walked; nothing is written before it returns, or if it raises.

    Raises TargetExists (a FileExistsError and ValueError) for a prepared dataset without force_overwrite or resume,
    FormatError for a damaged shard, DuplicateKeys, ValueError for arguments that make no sense, FileNotFoundError. An
    index that was there before is then still there.
    """
    wish = SplitWish(split_ratio, split_parts, split_globs, shuffle_tars, compat)
    wish.check()
    field_map = definition.check_definition(sample_type, field_map)
    check_not_prepared(path, force_overwrite or resume or dry_run)
    root, names = plain_path(path), shards_of(path, exclude)
    options = _options(num_workers, skip_bad_shards, resume, walk_all, sample_tables, progress)
    options.media, options.walker, options.resumable = media, walker, walker is None
    if dry_run:
        files = [*_FILES, "split.yaml", *([dataset_yaml_name] if sample_type else [])]
        return _plan(root, names, wish, options, files)
    chosen = [None if sample_type is None else Definition(sample_type, field_map)]
    if define is not None:
        options.confirm = lambda walked: chosen.append(define(walked))
    with _new_folder(path, names, options), open_history(root) as history:
        walked = walk_shards(root, names, options)
        shards = _counts(walked)
        parts = wish.parts(list(shards))
        _write_counts(root, walked, options, history)
        nvmeta.write_split(root, parts, mode=options.mode)
        files, types = [*_FILES, "split.yaml"], part_types(walked)
        if (choice := chosen[-1]) is not None:
            written = definition.write_definition(
                path,
                *choice[:2],
                parts=types,
                name=dataset_yaml_name,
                keep_loader=choice.keep_loader,
                mode=options.mode,
            )
            files += [file.name for file in written]
    warnings = walked.warnings + wish.problems(list(shards), parts) + definition.unknown_parts(field_map, types)
    return PrepareResult(
        as_path(path), shards, parts, types, walked.n_reused, walked.skipped, warnings, files, media=walked.n_media
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
    """Walk the shards of a prepared dataset again and write their indexes anew; its splits stay as they are.

    Counts of samples that are no longer right are corrected and warned of (not with compat="energon"). Raises as
    `prepare_webdataset`, and NotPrepared.
    """
    root, before = os.fspath(path), nvmeta.read_info(path)
    if not before:
        raise JobError(f"{root}: no shards are listed there; prepare the dataset anew")
    options = _options(num_workers, False, resume, True, sample_tables, progress)
    options.resumable = True
    options.mode = make_folder(path, list(before))
    with open_history(root) as history:
        walked = walk_shards(root, list(before), options)
        shards = _counts(walked)
        changed = [name for name in before if before[name] != shards[name]]
        counts_stay = compat == "energon" or not changed
        _write_counts(root, walked, options, history, before if counts_stay else shards)
    warnings = list(walked.warnings)
    if not counts_stay:
        warnings.append(f"the number of samples is another one in {splits.named(changed)}")
    return PrepareResult(as_path(path), shards, {}, part_types(walked), walked.n_reused, {}, warnings, [*_FILES])


def prepare_media(
    path: PathLike,
    media: MediaFilter,
    *,
    num_workers: int | None = None,
    progress: Progress | None = None,
) -> int:
    """Add the metadata of media to a prepared dataset, or to a folder of plain files; return how many there are.

    A plain folder gets an index of nothing else, whose entry keys are paths below the folder. What the index has of
    other files stays. Raises as `prepare_webdataset`, MissingExtra without Pillow or av, JobError without media.
    """
    if nvmeta.is_prepared(path):
        before = nvmeta.read_info(path)
        options = _options(num_workers, False, False, True, SampleIndex(nvmeta.index_path(path)).has_samples, progress)
        options.mode, options.media, options.keep_media = make_folder(path, list(before)), media, True
        with open_history(path) as history:
            walked = walk_shards(os.fspath(path), list(before), options)
            _write_counts(os.fspath(path), walked, options, history)
        return walked.n_media
    return _prepare_files(os.fspath(path), media)


def _media_files(root: str, media: MediaFilter) -> list[str]:
    if is_remote(root):
        raise JobError(f"{root}: media that are in no shards are read from local folders only")
    if not os.path.isdir(root):
        raise NotADirectoryError(f"{root} is no folder")
    paths = media_files(root, media)
    if not paths:
        raise JobError(f"{root}: no media files there")
    return paths


def _prepare_files(root: str, media: MediaFilter) -> int:
    paths = _media_files(root, media)
    folder, index = nvmeta.make_folder(root), nvmeta.index_path(root)
    with suppress(OSError):
        os.chmod(folder, (os.stat(root).st_mode | 0o700) & 0o7777)
    mode = (os.stat(root).st_mode | 0o600) & 0o666
    rows = list(media_of_files(root, paths, media))
    with IndexWriter(index, mode=mode, previous=index if index.is_file() else None, sample_tables=False) as writer:
        writer.copy_media()
        writer.add_media(rows, media.noted())
    return len(rows)


def plan_media(path: PathLike, media: MediaFilter) -> list[AnyPath]:
    """What `prepare_media` would write; raises what it raises before it looks into the files."""
    if not nvmeta.is_prepared(path):
        _media_files(os.fspath(path), media)
    return media_paths(path)


def media_paths(path: PathLike) -> list[AnyPath]:
    """What `prepare_media` writes in a folder."""
    shards = nvmeta.read_info(path) if nvmeta.is_prepared(path) else {}
    names = _FILES if shards else _FILES[:1]
    return [*(nvmeta.meta_path(path, name) for name in names), *shard_indexes(path, shards)]


def shard_indexes(path: PathLike, shards: Iterable[str]) -> list[AnyPath]:
    """Where the index of each of these shards is."""
    return [as_path(shard_index_path(os.path.join(path, shard))) for shard in shards]


def part_types(walked: Walked) -> list[str]:
    """Names of parts, in the order in which they appear; some 50 of them."""
    types: dict[str, None] = {}
    for shard in walked.shards:
        types.update(dict.fromkeys(shard.parts))
        if len(types) >= MAX_PARTS:
            break
    return list(types)


def make_folder(path: PathLike, names: Sequence[str]) -> int:
    """Make `.nv-meta` with the permissions of its parent; return those for files in it: the first shard's.

    Its owner can read and write them in any case. JobError where it is a link.
    """
    folder = nvmeta.make_folder(path)
    if not isinstance(folder, RemotePath):
        with suppress(OSError):  # another user's folder
            folder.chmod((os.stat(path).st_mode | 0o700) & 0o7777)
    try:
        return (stat_of(os.path.join(path, names[0])).st_mode | 0o600) & 0o7777
    except FileNotFoundError:  # a link that leads nowhere: the walk will say so
        return 0o600


@contextmanager
def _new_folder(path: PathLike, names: Sequence[str], options: WalkOptions) -> Iterator[None]:
    """Make `.nv-meta` for the with block; after an error one that is new and empty is removed again."""
    was_there = nvmeta.meta_path(path).exists()
    options.mode = make_folder(path, names)
    try:
        yield
    except BaseException:
        if not (was_there or is_remote(path)):
            with suppress(OSError):
                os.rmdir(nvmeta.meta_path(path))
        raise


def check_not_prepared(path: PathLike, may_be: bool) -> None:
    """TargetExists for a prepared dataset, unless it may be one."""
    if nvmeta.is_prepared(path) and not may_be:
        raise TargetExists(
            f"{os.fspath(path)} has already been prepared. {spoken('Pass force_overwrite=True')} to prepare it again."
        )


def shards_of(path: PathLike, exclude: str | None) -> list[str]:
    """The shards of a folder; JobError where there are none."""
    names = find_shards(path, exclude)
    if not names:
        raise JobError(f"{os.fspath(path)}: no .tar files there" + (" that are not excluded" if exclude else ""))
    return names


def _options(
    num_workers: int | None,
    skip_bad_shards: bool,
    resume: bool,
    walk_all: bool,
    sample_tables: bool,
    progress: Progress | None,
) -> WalkOptions:
    if num_workers is not None and num_workers < 1:
        raise ValueError(f"num_workers must be at least 1, not {num_workers}")
    workers = num_workers or min(MAX_WORKERS, os.cpu_count() or 1)
    return WalkOptions(workers, skip_bad_shards, resume, walk_all, sample_tables, progress=progress)


def _plan(root: str, names: Sequence[str], wish: SplitWish, options: WalkOptions, files: list[str]) -> PrepareResult:
    parts = wish.parts(names)
    reused = unchanged_shards(root, names, options)
    warnings = wish.problems(names, parts)
    return PrepareResult(
        as_path(root), dict.fromkeys(names, 0), parts, [], len(reused), {}, warnings, files=files, written=False
    )


def _counts(walked: Walked) -> dict[str, int]:
    return {shard.name: shard.n_samples for shard in walked.shards}


def _write_counts(
    root: str, walked: Walked, options: WalkOptions, history: AtomicFile, counts: Mapping[str, int] | None = None
) -> None:
    """Write what belongs to the index; the history takes its name last: after a kill the next run walks all."""
    if walked.changed:
        nvmeta.write_uuid(root, options.mode)
    nvmeta.write_info(root, _counts(walked) if counts is None else counts, options.mode)
    write_history(history, root, walked.shards, sample_tables=options.sample_tables, mode=options.mode)
