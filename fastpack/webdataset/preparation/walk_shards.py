"""Walk the shards of a dataset in parallel, and write their indexes: a `.tar.idx` per shard and one `index.sqlite`."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from itertools import accumulate, islice
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from fastpack.documents.offset_index import read_offset_index, write_offset_index
from fastpack.errors import INTERRUPTS, FormatError, JobError, note_interrupt
from fastpack.io import AnyPath, Progress, size_of, stat_of
from fastpack.io.threads import in_order
from fastpack.webdataset import metadata as nvmeta
from fastpack.webdataset import shard_index as webdataset
from fastpack.webdataset.preparation.history import History
from fastpack.webdataset.preparation.media import MediaFilter, Row, media_of_shard
from fastpack.webdataset.preparation.settings import ExecutionSettings
from fastpack.webdataset.sample_index import MAX_FIELD_NAMES, DuplicateKeys, IndexWriter, SampleIndex, ShardRecord
from fastpack.webdataset.shard_index import ShardScan

_Offsets: TypeAlias = npt.NDArray[np.int64]
NumberedShards: TypeAlias = Mapping[str, tuple[int, ShardRecord]]  # name -> (number in the previous index, record)

_BAD = -1  # number of samples of a shard that is left out


@dataclass(frozen=True, slots=True, kw_only=True)
class WalkOptions:
    """How to walk shards and build their index.

    media: read the media metadata of these fields. keep_media: keep what the previous index has of other fields.
    mode: permissions of the index. resumable: keep the progress of an interrupted run. walker: walks a shard by name
    instead of `walk_shard`. confirm: called when all shards are walked, before any file is replaced; if it raises, all
    files stay as they were (except that with `resume` the `.tar.idx` of walked shards stay: the next run needs them).
    """

    execution: ExecutionSettings = field(default_factory=ExecutionSettings)
    media: MediaFilter | None = None
    keep_media: bool = False
    mode: int | None = None
    resumable: bool = False
    progress: Progress | None = None
    walker: Callable[[str], WalkResult] | None = None
    confirm: Callable[[WalkSummary], None] | None = None

    @property
    def defers_shard_indexes(self) -> bool:
        """Whether `.tar.idx` files are written only after `confirm` returns."""
        return self.confirm is not None and not self.execution.resume


@dataclass(slots=True)
class WalkSummary:
    """The good shards in order, and the bad ones by name with the reason.

    n_reused: shards that were not walked, because they are unchanged or a killed run had walked them. changed: whether
    there is a new index. n_media: fields whose media metadata was read.
    """

    shards: list[ShardRecord] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    n_reused: int = 0
    changed: bool = True
    n_media: int = 0
    warnings: list[str] = field(default_factory=list)

    @property
    def counts(self) -> dict[str, int]:
        """Samples of each shard."""
        return {shard.name: shard.n_samples for shard in self.shards}

    @property
    def field_names(self) -> list[str]:
        """Names of stored fields in the order in which they appear; at least the first `MAX_FIELD_NAMES`."""
        names: dict[str, None] = {}
        for shard in self.shards:
            names.update(dict.fromkeys(shard.field_names))
            if len(names) >= MAX_FIELD_NAMES:
                break
        return list(names)


class WalkResult(NamedTuple):
    """The result of walking one shard; `reason` says why a bad shard is left out."""

    shard: ShardRecord
    scan: ShardScan | None = None
    reason: str = ""
    media: Sequence[Row] = ()


def walk_shards(root: str, names: Sequence[str], options: WalkOptions) -> WalkSummary:
    """Walk the shards `names` in the folder `root`; write their `.tar.idx` and, if anything changed, `index.sqlite`.

    Raises FormatError for the first damaged or empty shard (unless bad shards are skipped), JobError for a shard that
    changes during the walk, DuplicateKeys with the names of the shards. After an error the previous index is unchanged.
    """
    known = _known_shards(root, options)
    unchanged = _unchanged(root, names, known)
    if list(known) == list(names) == list(unchanged):
        summary = WalkSummary([shard for _, shard in unchanged.values()], n_reused=len(names), changed=False)
        if options.confirm is not None:
            options.confirm(summary)
        return summary
    return _IndexBuild(root, names, unchanged, options).run()


def unchanged_shards(root: str, names: Sequence[str], options: WalkOptions) -> list[str]:
    """Return the shards that need not be walked."""
    return list(_unchanged(root, names, _known_shards(root, options)))


def _known_shards(root: str, options: WalkOptions) -> NumberedShards:
    if options.execution.walk_all or options.media is not None:
        return {}
    history = History(root)
    return history.shards if history.sample_tables == options.execution.sample_tables else {}


def _unchanged(root: str, names: Sequence[str], known: NumberedShards) -> NumberedShards:
    return {name: known[name] for name in names if name in known and is_unchanged(root, known[name][1])}


def is_unchanged(root: str, shard: ShardRecord) -> bool:
    """Return whether size and modification time match the record, and the `.tar.idx` exists."""
    path = os.path.join(root, shard.name)
    try:
        if _size_and_mtime(path) != (shard.n_bytes, shard.mtime_ns):
            return False
        index = webdataset.shard_index_path(path)
        return shard.n_samples == _BAD or size_of(index) == 8 * (shard.n_samples + 1)
    except OSError:
        return False


def _size_and_mtime(path: str) -> tuple[int, int]:
    status = stat_of(path)
    return status.st_size, status.st_mtime_ns


class _IndexBuild:
    """One run that writes a new `index.sqlite`."""

    def __init__(self, root: str, names: Sequence[str], unchanged: NumberedShards, options: WalkOptions) -> None:
        self._root, self._names, self._unchanged, self._options = root, names, unchanged, options
        self._summary = WalkSummary()
        self._deferred: list[tuple[str, _Offsets]] = []  # `.tar.idx` files to write after `confirm`
        index = nvmeta.index_path(root)
        self._writer = IndexWriter(
            index,
            mode=options.mode,
            previous=self._readable_index(index),
            sample_tables=options.execution.sample_tables,
            resume=options.execution.resume,
            resumable=options.resumable and options.confirm is None,  # before the last answer no progress is kept
            purpose=self._purpose(),
        )

    def run(self) -> WalkSummary:
        """Walk what is left to walk and write the index."""
        summary, options = self._summary, self._options
        try:
            with self._writer:
                self._add_all()
                if not summary.shards:
                    raise JobError(f"{self._root}: all shards are bad; nothing is written")
                if options.confirm is not None:
                    options.confirm(summary)
                for path, offsets in self._deferred:
                    _write_shard_index(path, offsets)
        except INTERRUPTS as error:
            if options.resumable and self._writer.is_kept:
                note_interrupt(error, (len(summary.shards) + len(summary.skipped)) / len(self._names))
            raise
        except DuplicateKeys as error:
            named = [(key, [summary.shards[int(number)].name for number in numbers]) for key, numbers in error.keys]
            raise DuplicateKeys(error.path, named, error.total) from None
        return summary

    def _add_all(self) -> None:
        media = self._options.media
        remaining = self._skip_finished()
        if not self._writer.done and (media is None or self._options.keep_media):
            self._writer.copy_media()
        progress = self._options.progress
        ends = list(accumulate(shard_size(self._root, name) for name in self._names)) if progress else []
        for number, result in enumerate(self._results(remaining), len(self._names) - len(remaining)):
            if media is not None:
                self._writer.add_media(result.media, media.index_entry())
                self._summary.n_media += len(result.media)
            if result.scan is None and not result.reason:
                result = self._copy_unchanged(result)
            self._add(result)
            if progress is not None:
                progress(ends[number], ends[-1])

    def _readable_index(self, index: AnyPath) -> AnyPath | None:
        """Return the existing index if it can be read; warn if its media metadata may be lost."""
        try:
            with closing(SampleIndex(index)) as previous:
                previous.has_media  # noqa: B018 (reads the names of its tables)
        except FileNotFoundError:
            return None
        except FormatError as error:
            if self._options.media is None or self._options.keep_media:
                lost = "media metadata in the old index, if any, is lost (`fastpack prepare-media` reads it again)"
                self._summary.warnings.append(f"{lost}: {error}")
            return None
        return index

    def _purpose(self) -> str:
        """Identify the run, so that `resume` does not continue a different one."""
        options, execution = self._options, self._options.execution
        digest = hashlib.sha256("\0".join(self._names).encode()).hexdigest()
        return f"{digest} {execution.sample_tables} {execution.skip_bad_shards} {options.media} {options.keep_media}"

    def _skip_finished(self) -> Sequence[str]:
        """Count what a killed run has done, if the shards are unchanged; return the names that are left."""
        if not all(is_unchanged(self._root, shard) for shard in self._writer.done):
            self._writer.start_over()
        for shard in self._writer.done:
            if shard.n_samples == _BAD:
                self._summary.skipped[shard.name] = shard.field_names[0]
            else:
                self._summary.shards.append(shard)
                self._summary.n_reused += 1
        return self._names[len(self._writer.done) :]

    def _copy_unchanged(self, result: WalkResult) -> WalkResult:
        """Copy the rows of an unchanged shard from the previous index; if that is damaged, walk the shard."""
        old_number, shard = self._unchanged[result.shard.name]
        try:
            self._writer.copy(len(self._summary.shards), old_number, shard.n_samples)
        except FormatError:
            return walk_shard(self._root, shard.name, self._options)
        self._summary.n_reused += 1
        return result

    def _add(self, result: WalkResult) -> None:
        shard = result.shard
        if result.reason:
            self._summary.skipped[shard.name] = result.reason
        else:
            if result.scan is not None:
                self._writer.add(len(self._summary.shards), result.scan)
                if self._options.defers_shard_indexes:
                    self._deferred.append((result.scan.path, result.scan.sample_offsets))
            self._summary.shards.append(shard)
        self._writer.note(shard)

    def _results(self, names: Sequence[str]) -> Iterator[WalkResult]:
        """Yield one result per shard, in order; `num_threads` shards are walked at a time."""
        options, num_threads = self._options, self._options.execution.num_threads

        def walk(name: str) -> WalkResult:
            if name in self._unchanged:
                return WalkResult(self._unchanged[name][1])
            return walk_shard(self._root, name, options) if options.walker is None else options.walker(name)

        if num_threads == 1 or len(names) == 1:
            yield from map(walk, names)
            return
        yield from in_order(walk, names, num_threads)


def walk_shard(root: str, name: str, options: WalkOptions) -> WalkResult:
    """Walk a shard and write its `.tar.idx`, unless that is deferred until `confirm` returns.

    Raises FormatError or OSError for a bad shard, unless bad shards are skipped.
    """
    path, before = os.path.join(root, name), (0, 0)
    try:
        before = _size_and_mtime(path)
        scan = webdataset.scan_shard(path)
        media = [] if options.media is None else media_of_shard(scan, options.media)
    except (FormatError, OSError) as error:
        if not options.execution.skip_bad_shards:
            raise
        return WalkResult(ShardRecord(name, *before, _BAD, [str(error)]), reason=str(error))
    if _size_and_mtime(path) != before:
        raise JobError(f"{path} changed while it was walked. Prepare again when no process writes to it.")
    if not options.defers_shard_indexes:
        _write_shard_index(path, scan.sample_offsets)
    return WalkResult(ShardRecord(name, *before, len(scan.sample_keys), _field_names(scan)), scan, "", media)


def _write_shard_index(path: str, offsets: _Offsets) -> None:
    """Write `.tar.idx`, unless it is already correct."""
    index = webdataset.shard_index_path(path)
    with suppress(OSError, FormatError):
        if np.array_equal(read_offset_index(index), offsets):
            return
    write_offset_index(index, offsets)


def _field_names(scan: ShardScan) -> list[str]:
    """Return the first `MAX_FIELD_NAMES` distinct names of stored fields, in order."""
    return [name.decode() for name in islice(dict.fromkeys(scan.field_names), MAX_FIELD_NAMES)]


def shard_size(root: str, name: str) -> int:
    """Return the size of a shard in bytes; 0 for a broken link, which the walk reports."""
    try:
        return size_of(os.path.join(root, name))
    except OSError:
        return 0
