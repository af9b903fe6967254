"""The indexes of a pack job's sources: create missing ones, and never use one that does not belong to its source."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace

from fastpack.documents.create_index import FaultyLine, create_raw_index
from fastpack.documents.raw_index_check import read_raw_index_of
from fastpack.errors import DataWarning, JobError, StaleIndex
from fastpack.io import Progress, exists, may_write, remove, size_of
from fastpack.packing.line_numbers import omission_reason_of
from fastpack.packing.settings import PackSettings, Source, require_index_file
from fastpack.packing.targets import targets_of

CREATING = ("create", "rebuild", "replace")  # the index rules under which a missing index is created

NoteIndex = Callable[[str, bool], None]


def create_missing_indexes(
    settings: PackSettings, *, progress: Progress | None = None, note: NoteIndex | None = None
) -> PackSettings:
    """Create the missing indexes and return the settings with the indexes that can be used.

    note(reason, stale): called before an index is created; by default a DataWarning tells of stale ones.

    Raises JobError for an empty source and for one without a line of JSON, TargetExists where the output exists, and
    what `check_indexes` raises.
    """

    def create(source: Source) -> Source:
        if source.index_rule not in CREATING:
            return _check(source)
        if size_of(source.path) == 0:
            raise JobError(f"{source.path} is empty: there is no document to pack")
        if source.index_path is not None and (found := _reason_to_create(source, source.index_path)):
            _check_outputs(settings)
            (note or _warn_of_rebuilding)(*found)
            _create(source, drop_faulty=settings.on_error == "skip", progress=progress)
        return source

    return replace(settings, sources=tuple(map(create, settings.sources)))


def check_indexes(settings: PackSettings) -> PackSettings:
    """Return the settings without optional indexes that are stale; each gets a DataWarning.

    Raises InputNotFound and StaleIndex for another index that is missing or stale, whatever its rule.
    """
    return replace(settings, sources=tuple(map(_check, settings.sources)))


def indexes_before_creation(settings: PackSettings) -> PackSettings:
    """Return the settings without the indexes that `create_missing_indexes` would create; raise what it raises."""

    def check(source: Source) -> Source:
        if source.index_path is None or source.index_rule not in CREATING:
            return _check(source)
        return replace(source, index_path=None) if _reason_to_create(source, source.index_path) else source

    return replace(settings, sources=tuple(map(check, settings.sources)))


def _check(source: Source) -> Source:
    if source.index_path is None:
        return source
    if source.index_rule != "optional":
        require_index_file(source.path, source.index_path)
    try:
        read_raw_index_of(source.path, source.index_path)
    except StaleIndex as error:
        if source.index_rule != "optional":
            raise
        warnings.warn(f"{error}; the lines of {source.path} are read without it", DataWarning, stacklevel=5)
        return replace(source, index_path=None)
    return source


def _reason_to_create(source: Source, index_path: str) -> tuple[str, bool] | None:
    """Return why the index has to be created and whether a stale one exists; None for a current index.

    Raises StaleIndex for a stale index that may not be replaced, FormatError for a file that is not an index.
    """
    if not exists(index_path):
        return f"{index_path} does not exist", False
    try:
        read_raw_index_of(source.path, index_path)
    except StaleIndex as error:
        may_replace = source.index_rule == "replace" or (source.index_rule == "rebuild" and error.owner is None)
        if not may_replace:
            raise
        belongs = f"it is that of {error.owner}" if error.owner else error.found
        return f"{error.path} is not the index of {source.path} as it is now ({belongs})", True
    return None


def _check_outputs(settings: PackSettings) -> None:
    """Raise TargetExists before the work of an index, not after it."""
    if not settings.resume:
        for target in targets_of(settings):
            may_write(target.output, settings.if_exists)


def _warn_of_rebuilding(reason: str, stale: bool) -> None:
    if stale:
        warnings.warn(f"{reason}: it was rebuilt", DataWarning, stacklevel=6)


def _create(source: Source, *, drop_faulty: bool, progress: Progress | None) -> None:
    """Create an index; JobError, and no index, where no line is JSON."""
    try:
        result = create_raw_index(
            source.path,
            source.index_path,
            drop_faulty_entries=drop_faulty,
            if_exists="overwrite",
            progress=progress,
        )
    except FaultyLine as error:
        reason = omission_reason_of(error.__cause__)
        text = f"{error.path}: line {error.line} at byte {error.offset}: {reason}"
        raise FaultyLine(text, error.path, error.line, error.offset) from error.__cause__
    if not result.entries:
        remove(result.path)
        what = "the only line" if result.dropped == 1 else f"none of the {result.dropped:,} lines"
        raise JobError(
            f"{what} of {source.path} is {'not ' if result.dropped == 1 else ''}JSON. pack reads JSON Lines: one "
            "object per line, with the text under a key. examples/pack_folder.py makes them from text files"
        )
