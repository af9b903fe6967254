"""Raw index of a JSON lines file: newline scan, JSON check, pickled index, in bounded memory."""

from __future__ import annotations

import os
import warnings
from collections import deque
from collections.abc import Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fastpack.display import Result, facts
from fastpack.documents.compressed import is_compressed
from fastpack.documents.json_lines import Data, Faults, Rows, faulty_lines, json_fault, scan_lines
from fastpack.documents.raw_index import RawIndexWriter
from fastpack.documents.raw_index_check import default_index_path, other_source, read_raw_index_of
from fastpack.errors import DataWarning, FastpackError, FormatError, JobError, StaleIndex
from fastpack.io import (
    POLICIES,
    AnyPath,
    ExistencePolicy,
    PathLike,
    Progress,
    TargetExists,
    as_path,
    exists,
    may_write,
    open_bytes,
    same_file,
)

_WARNINGS = 100  # faulty lines warned of one by one
_QUOTED = 65_536  # bytes of a faulty line that the message quotes


@dataclass(frozen=True, slots=True, repr=False)
class IndexResult(Result):
    """What `create_raw_index` did.

    path: the index; entries: lines in it; dropped: faulty lines left out; bytes: size of the raw file; written: False
    when the index existed and was kept (then the other numbers are 0).
    """

    _shown = facts("path", "entries", "dropped", "bytes", "written")

    path: AnyPath
    entries: int
    dropped: int
    bytes: int
    written: bool = True


class FaultyLine(FastpackError, ValueError):
    """A line that `json.loads` refuses; the reason is the `__cause__`.

    path: the raw file; line: its number, from 1; offset: where the line starts, in bytes.
    """

    def __init__(self, text: str, path: str, line: int, offset: int) -> None:
        super().__init__(text)
        self.path, self.line, self.offset = path, line, offset

    def __reduce__(self) -> tuple[type[FaultyLine], tuple[str, str, int, int]]:
        return type(self), (str(self), self.path, self.line, self.offset)


def create_raw_index(
    src_path: PathLike,
    index_path: PathLike | None = None,
    *,
    validate: bool = True,
    drop_faulty_entries: bool = False,
    file_existence_policy: ExistencePolicy = "error",
    num_threads: int = 1,
    progress: Progress | None = None,
) -> IndexResult:
    """Write the raw index of a JSON lines file, byte for byte as Modalities does.

    index_path: default `<stem>.idx` beside the source; missing folders are made. validate: every line must be what
    `json.loads(bytes)` accepts. A faulty line raises FaultyLine (a ValueError) and nothing is written; with
    drop_faulty_entries it is warned of (the first 100 one by one) and left out. validate=False takes every line, blank
    ones too. num_threads: threads that validate; the result does not depend on it. progress(bytes done, in all).

    Raises FileNotFoundError without a source, ValueError for a compressed one (.gz, .zst) and when the index would
    replace the source, TargetExists (a ValueError) by the policy "error" when the index exists.
    """
    if num_threads < 1:
        raise ValueError(f"num_threads must be at least 1, not {num_threads}")
    source = os.fspath(src_path)
    target = default_index_path(source) if index_path is None else as_path(index_path)
    check_paths(source, target)
    if not may_write_index(source, target, file_existence_policy):
        return IndexResult(target, 0, 0, 0, written=False)
    data = open_bytes(source)
    faults = FaultLog(source, data, drop_faulty_entries)
    with RawIndexWriter(target, file_existence_policy) as writer:
        if validate and len(data) == 0:
            faults.empty_file()
        # Closed at once when a fault ends the loop: left to the garbage collector, it may be one of the pool's own
        # threads that has to wait for the pool.
        with closing(_checked(data, progress, num_threads) if validate else _scanned(data, progress)) as chunks:
            for rows, faulty in chunks:
                writer.append(faults.without(rows, faulty) if faulty else rows)
                faults.n_lines += len(rows)
    faults.summarise()
    return IndexResult(target, writer.n_rows, faults.dropped, len(data))


def all_lines(data: Data) -> tuple[Rows, npt.NDArray[np.bool_]]:
    """The rows int64[n, 2] of all lines of a raw file, and for each whether it is JSON [n]."""
    lines, judged = [np.empty((0, 2), np.int64)], [np.empty(0, bool)]
    for rows, faulty in _checked(data, None, 1):
        lines.append(rows.copy())
        good = np.ones(len(rows), bool)
        good[[i for i, _ in faulty]] = False
        judged.append(good)
    return np.concatenate(lines), np.concatenate(judged)


def create_raw_data_index(
    src_path: PathLike, index_path: PathLike | None = None, file_existence_policy: ExistencePolicy = "error"
) -> IndexResult:
    """`create_raw_index` under the name and with the arguments of Modalities' API."""
    return create_raw_index(src_path, index_path, file_existence_policy=file_existence_policy)


def may_write_index(source: str, target: AnyPath, policy: ExistencePolicy) -> bool:
    """As `files.may_write`. Warns of an index that stays although it does not belong to the source any more, and of
    one that is replaced although it belongs to another file with the same default index path; TargetExists names it.
    """
    if policy not in POLICIES or not exists(target):
        return may_write(target, policy)
    owner = None
    try:
        owner = other_source(source, target)
        if owner is not None or policy == "skip":
            read_raw_index_of(source, target)
            owner = None
    except StaleIndex as error:
        if policy == "skip":
            warnings.warn(str(error), DataWarning, stacklevel=3)
            return False
    except FormatError:  # not an index: there is nothing to say about it
        pass
    if owner is None:
        return may_write(target, policy)
    if policy == "error":
        raise TargetExists(
            f"{target} exists and is the index of {owner}, which has the same default index path: give the index of "
            f"{source} another path (index_path, --index-path)"
        )
    warnings.warn(f"{target} was the index of {owner}; now it is that of {source}", DataWarning, stacklevel=3)
    return True


def check_paths(source: str, target: AnyPath) -> None:
    """FileNotFoundError without a source, ValueError for a compressed one, and where it would be replaced."""
    if not exists(source):
        raise FileNotFoundError(f"Raw data file does not exist: {source}")
    if is_compressed(source):
        raise ValueError(
            f"{source} is compressed, so an index of its lines would lead nowhere: `fastpack pack` reads it as it is; "
            "for an index, unpack it first"
        )
    if same_file(source, target):
        raise ValueError(f"the index would replace the raw data: both are {source}")


def _scanned(data: Data, progress: Progress | None) -> Generator[tuple[Rows, Faults]]:
    """The rows of all lines, a chunk at a time in one buffer that is used again; none of them judged."""
    for rows in scan_lines(data, progress):
        yield rows, []


def _checked(data: Data, progress: Progress | None, num_threads: int) -> Generator[tuple[Rows, Faults]]:
    """The rows of all lines with the faulty ones among them, in order; `num_threads` chunks are judged at a time."""
    if num_threads == 1:
        for rows in scan_lines(data, progress):
            yield rows, faulty_lines(data, rows)
        return
    waiting: deque[tuple[Rows, Future[Faults]]] = deque()
    with ThreadPoolExecutor(num_threads, "fastpack-index") as pool:
        try:
            for rows in scan_lines(data, progress):
                rows = rows.copy()
                waiting.append((rows, pool.submit(faulty_lines, data, rows)))
                while len(waiting) > 2 * num_threads:
                    rows, judged = waiting.popleft()
                    yield rows, judged.result()
            while waiting:
                rows, judged = waiting.popleft()
                yield rows, judged.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _line(data: Data, row: Rows) -> bytes:
    offset, length = row.tolist()
    return data[offset : offset + length].tobytes()


class FaultLog:
    """Raises for the first faulty line, or warns of each and leaves it out."""

    def __init__(self, path: str, data: Data, drop: bool) -> None:
        self._path, self._data, self._drop = path, data, drop  # data: of the faulty lines, if there are any
        self.n_lines = 0  # before the chunk at hand
        self.dropped = 0

    def report(self, number: int, row: Rows) -> None:
        """A line that was found faulty before: its number, from 0, and its row."""
        line = _line(self._data, row)
        error = json_fault(line)
        if error is None:
            raise JobError(f"{self._path} was changed since it was looked at: start again")
        self._report(line, number, int(row[0]), error)

    def without(self, rows: Rows, faults: Faults) -> Rows:
        for i, error in faults:
            self._report(_line(self._data, rows[i]), self.n_lines + i, int(rows[i, 0]), error)
        keep = np.ones(len(rows), bool)
        keep[[i for i, _ in faults]] = False
        return rows[keep]

    def empty_file(self) -> None:
        """An empty file is one faulty line, as Modalities reads it."""
        error = json_fault(b"")
        assert error is not None
        self._report(b"", 0, 0, error)

    def summarise(self) -> None:
        if self.dropped > _WARNINGS:
            warnings.warn(
                f"{self._path}: {self.dropped} faulty lines skipped, the first {_WARNINGS} of them named", stacklevel=3
            )

    def _report(self, line: bytes, number: int, offset: int, error: Exception) -> None:
        if not self._drop:
            raise self._faulty_line(line, number, offset, error) from error
        self.dropped += 1
        if self.dropped <= _WARNINGS:
            warnings.warn(_peers_text(line), stacklevel=5)

    def _faulty_line(self, line: bytes, number: int, offset: int, error: Exception) -> FaultyLine:
        faulty = FaultyLine(_peers_text(line), self._path, number + 1, offset)
        reason = str(error) if line or number or offset else "the file is empty"
        faulty.add_note(f"{self._path}: line {number + 1} at byte {offset}: {reason}")
        return faulty


def _peers_text(line: bytes) -> str:
    quoted = f"{line!r}" if len(line) <= _QUOTED else f"{line[:_QUOTED]!r}... ({len(line)} bytes)"
    return f'faulty line "{quoted}", skipping...'
