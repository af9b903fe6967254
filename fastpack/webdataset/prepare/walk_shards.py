"""Walking the shards of a dataset, some at a time, and writing their indexes: one beside each, and one of all."""

from __future__ import annotations

import hashlib
import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from fastpack.documents.offset_index import read_offset_index, write_offset_index
from fastpack.errors import INTERRUPTS, FormatError, JobError, note_interrupt
from fastpack.io import AnyPath, Progress, size_of, stat_of
from fastpack.webdataset import metadata as nvmeta
from fastpack.webdataset import shard_index as webdataset
from fastpack.webdataset.metadata import DuplicateKeys, IndexWriter, WalkedShard
from fastpack.webdataset.prepare.history import History
from fastpack.webdataset.prepare.media import MediaFilter, Row, media_of_shard
from fastpack.webdataset.shard_index import ShardScan

_Offsets: TypeAlias = npt.NDArray[np.int64]
Numbered: TypeAlias = Mapping[str, tuple[int, WalkedShard]]  # name -> (its number in the previous index, the shard)

MAX_PARTS = 50  # names of parts that are remembered of a shard
_BAD = -1  # samples of a shard that is left out


@dataclass(slots=True)
class WalkOptions:
    """How to walk: threads, what to do with bad shards, whether to go on with a run that was killed.

    resumable: an interrupted run can be resumed, so keep what it has done.
    again: walk shards too that did not change since the last run. mode: permissions of the index. media: of which parts
    the metadata is to be read, instead of what the index has, or with keep_media besides it. walker: who walks a shard.
    confirm: called when all shards are walked, before any file takes its name; an exception leaves all as it was (but
    with resume, the `.tar.idx` of walked shards stay: the next run needs them).
    """

    num_workers: int = 1
    skip_bad_shards: bool = False
    resume: bool = False
    again: bool = False
    sample_tables: bool = True
    mode: int | None = None
    progress: Progress | None = None
    media: MediaFilter | None = None
    keep_media: bool = False
    walker: Callable[[str], WalkResult] | None = None
    confirm: Callable[[Walked], None] | None = None
    unwritten: list[tuple[str, _Offsets]] = field(default_factory=list)  # shards whose `.tar.idx` waits for `confirm`
    resumable: bool = False


@dataclass(slots=True)
class Walked:
    """What came of it: the good shards in order, and the bad ones with what is wrong with them.

    n_reused: shards that were not walked because they did not change, or were walked by a run that was killed;
    changed: whether there is a new index; n_media: parts whose metadata was read; warnings: what the user should know.
    """

    shards: list[WalkedShard] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    n_reused: int = 0
    changed: bool = True
    n_media: int = 0
    warnings: list[str] = field(default_factory=list)


class WalkResult(NamedTuple):
    """What walking a shard gave."""

    shard: WalkedShard
    scan: ShardScan | None = None
    reason: str = ""  # why the shard is left out
    media: Sequence[Row] = ()


def walk_shards(root: str, names: Sequence[str], options: WalkOptions) -> Walked:
    """Walk the shards `names` below `root`, write `.tar.idx` beside each, and `index.sqlite` anew if need be.

    Raises FormatError for the first shard that is damaged or has no samples (unless they are to be skipped), JobError
    for one that changes meanwhile, DuplicateKeys with the names of the shards; the index that was there then stays.
    """
    known = _known(root, options)
    unchanged = _unchanged(root, names, known)
    if list(known) == list(names) == list(unchanged):
        walked = Walked([shard for _, shard in unchanged.values()], n_reused=len(names), changed=False)
        if options.confirm is not None:
            options.confirm(walked)
        return walked
    return _write_index(root, names, unchanged, options)


def unchanged_shards(root: str, names: Sequence[str], options: WalkOptions) -> list[str]:
    """The shards that need not be walked."""
    return list(_unchanged(root, names, _known(root, options)))


def _known(root: str, options: WalkOptions) -> Numbered:
    history = History(root)
    again = options.again or options.media is not None
    return {} if again or history.sample_tables != options.sample_tables else history.shards


def _unchanged(root: str, names: Sequence[str], known: Numbered) -> Numbered:
    return {name: known[name] for name in names if name in known and is_as_before(root, known[name][1])}


def is_as_before(root: str, shard: WalkedShard) -> bool:
    """Whether size and time of change are the same, and the index beside it is there."""
    path = os.path.join(root, shard.name)
    try:
        if _state(path) != shard[1:3]:
            return False
        index = webdataset.shard_index_path(path)
        return shard.n_samples == _BAD or size_of(index) == 8 * (shard.n_samples + 1)
    except OSError:
        return False


def _state(path: str) -> tuple[int, int]:
    status = stat_of(path)
    return status.st_size, status.st_mtime_ns


def _write_index(root: str, names: Sequence[str], unchanged: Numbered, options: WalkOptions) -> Walked:
    index = nvmeta.index_path(root)
    walked = Walked()
    writer = IndexWriter(
        index,
        mode=options.mode,
        previous=_previous(index, options, walked),
        sample_tables=options.sample_tables,
        resume=options.resume,
        resumable=options.resumable and options.confirm is None,  # before the last answer nothing is left behind
        purpose=_purpose(names, options),
    )
    try:
        with writer:
            left = _take_up(root, names, writer, walked)
            if not writer.done and (options.media is None or options.keep_media):
                writer.copy_media()
            progress = _Progress(root, names, len(names) - len(left), options.progress)
            for result in _results(root, left, unchanged, options):
                if options.media is not None:
                    writer.add_media(result.media, options.media.noted())
                    walked.n_media += len(result.media)
                if result.scan is None and not result.reason:
                    result = _copied(root, writer, result, unchanged, options, walked)
                _add(writer, result, walked)
                progress.advance()
            if not walked.shards:
                raise JobError(f"{root}: all shards are bad; nothing is written")
            if options.confirm is not None:
                options.confirm(walked)
            for path, offsets in options.unwritten:
                _write_shard_index(path, offsets)
    except INTERRUPTS as error:
        if options.resumable and writer.is_kept:
            note_interrupt(error, (len(walked.shards) + len(walked.skipped)) / len(names))
        raise
    except DuplicateKeys as error:
        named = [(key, [walked.shards[int(number)].name for number in numbers]) for key, numbers in error.keys]
        raise DuplicateKeys(error.path, named, error.total) from None
    return walked


def _previous(index: AnyPath, options: WalkOptions, walked: Walked) -> AnyPath | None:
    """The index that is there, if it can be read; a warning where metadata of media may be lost with it."""
    try:
        with closing(nvmeta.SampleIndex(index)) as previous:
            previous.has_media  # noqa: B018 (reads the names of its tables)
    except FileNotFoundError:
        return None
    except FormatError as error:
        if options.media is None or options.keep_media:
            lost = "metadata of media that the old index may have had is lost (`fastpack prepare-media` reads it again)"
            walked.warnings.append(f"{lost}: {error}")
        return None
    return index


def _purpose(names: Sequence[str], options: WalkOptions) -> str:
    digest = hashlib.sha256("\0".join(names).encode()).hexdigest()
    return f"{digest} {options.sample_tables} {options.skip_bad_shards} {options.media} {options.keep_media}"


def _take_up(root: str, names: Sequence[str], writer: IndexWriter, walked: Walked) -> Sequence[str]:
    """Count in what a killed run has done, if the shards are still the same; returns the names that are left."""
    if not all(is_as_before(root, shard) for shard in writer.done):
        writer.start_over()
    for shard in writer.done:
        if shard.n_samples == _BAD:
            walked.skipped[shard.name] = shard.parts[0]
        else:
            walked.shards.append(shard)
            walked.n_reused += 1
    return names[len(writer.done) :]


def _copied(
    root: str, writer: IndexWriter, result: WalkResult, unchanged: Numbered, options: WalkOptions, to: Walked
) -> WalkResult:
    """Take the rows of an unchanged shard over; if the index that was there is damaged, walk the shard after all."""
    old_number, shard = unchanged[result.shard.name]
    try:
        writer.copy(len(to.shards), old_number, shard.n_samples)
    except FormatError:
        return walk_shard(root, shard.name, options)
    to.n_reused += 1
    return result


def _add(writer: IndexWriter, result: WalkResult, to: Walked) -> None:
    shard = result.shard
    if result.reason:
        to.skipped[shard.name] = result.reason
    else:
        if result.scan is not None:
            writer.add(len(to.shards), result.scan)
        to.shards.append(shard)
    writer.note(shard)


def _results(root: str, names: Sequence[str], unchanged: Numbered, options: WalkOptions) -> Iterator[WalkResult]:
    """One result a shard, in order; `num_workers` of them are walked at a time."""

    def walk(name: str) -> WalkResult:
        if name in unchanged:
            return WalkResult(unchanged[name][1])
        return walk_shard(root, name, options) if options.walker is None else options.walker(name)

    if options.num_workers == 1 or len(names) == 1:
        yield from map(walk, names)
        return
    waiting: deque[Future[WalkResult]] = deque()
    with ThreadPoolExecutor(options.num_workers, "fastpack-walk") as pool:
        try:
            for name in names:
                waiting.append(pool.submit(walk, name))
                if len(waiting) > options.num_workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)


def walk_shard(root: str, name: str, options: WalkOptions) -> WalkResult:
    """Walk a shard and write its `.tar.idx`, or leave that until `confirm` returns.

    Raises what is wrong with the shard, unless it is to be left out then.
    """
    path, before = os.path.join(root, name), (0, 0)
    try:
        before = _state(path)
        scan = webdataset.scan_shard(path)
        media = [] if options.media is None else media_of_shard(scan, options.media)
    except (FormatError, OSError) as error:
        if not options.skip_bad_shards:
            raise
        return WalkResult(WalkedShard(name, *before, _BAD, [str(error)]), reason=str(error))
    if _state(path) != before:
        raise JobError(f"{path} was changed while it was walked: prepare again when nobody writes it")
    if options.confirm is None or options.resume:
        _write_shard_index(path, scan.sample_offsets)
    else:
        options.unwritten.append((path, scan.sample_offsets))
    return WalkResult(WalkedShard(name, *before, len(scan.sample_keys), _part_names(scan)), scan, "", media)


def _write_shard_index(path: str, offsets: _Offsets) -> None:
    """Write `.tar.idx`, unless it is right as it is."""
    index = webdataset.shard_index_path(path)
    try:
        if np.array_equal(read_offset_index(index), offsets):
            return
    except (OSError, FormatError):
        pass
    write_offset_index(index, offsets)


def _part_names(scan: ShardScan) -> list[str]:
    """Names of parts in the order in which they first appear, the first 50."""
    return [name.decode() for name in islice(dict.fromkeys(scan.part_names), MAX_PARTS)]


class _Progress:
    """Reports the bytes of the shards that are done, and of all."""

    def __init__(self, root: str, names: Sequence[str], n_done: int, progress: Progress | None) -> None:
        self._progress = progress
        if progress is not None:
            self._sizes = [_size(os.path.join(root, name)) for name in names]
            self._total, self._next = sum(self._sizes), n_done
            self._done = sum(self._sizes[:n_done])

    def advance(self) -> None:
        if self._progress is not None:
            self._done += self._sizes[self._next]
            self._next += 1
            self._progress(self._done, self._total)


def _size(path: str) -> int:
    try:
        return size_of(path)
    except OSError:  # a link that leads nowhere
        return 0
