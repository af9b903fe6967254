"""Creates the raw index of a JSON Lines file: newline scan, JSON validation, pickled index, in bounded memory."""

from __future__ import annotations

import os
import warnings
from collections import deque
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fastpack.argument_aliases import accept_aliases
from fastpack.display import Result, facts
from fastpack.documents.compressed import is_compressed
from fastpack.documents.json_lines import Data, Faults, Rows, faulty_lines, json_fault, scan_lines
from fastpack.documents.raw_index import open_raw_index_writer
from fastpack.documents.raw_index_check import default_index_path, other_source, read_raw_index_of
from fastpack.documents.source_formats import format_of_content
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

if TYPE_CHECKING:
    from concurrent.futures import Future

_MAX_WARNINGS = 100  # faulty lines with a warning of their own
_MAX_QUOTED = 65_536  # bytes of a faulty line in the message
_MIN_BYTES = 1 << 16  # that several threads check: the pool takes 5 ms to import


@dataclass(frozen=True, slots=True, repr=False)
class IndexResult(Result):
    r"""What `create_raw_index` wrote.

    Attributes
    ----------
    path
        The index.
    entries
        Number of lines in the index.
    dropped
        Number of faulty lines that were left out.
    bytes
        Size of the raw file.
    written
        False if the index existed and was kept. The numbers are 0 then.

    Examples
    --------
    >>> import pathlib, tempfile, fastpack
    >>> folder = tempfile.TemporaryDirectory()
    >>> source = pathlib.Path(folder.name, "a.jsonl")
    >>> _ = source.write_text('{"text": "a"}\n{"text": "bcd"}\n')
    >>> result = fastpack.create_raw_index(source)
    >>> result.entries, result.dropped, result.bytes, result.written
    (2, 0, 30, True)
    >>> fastpack.create_raw_index(source, if_exists="skip").written
    False
    >>> folder.cleanup()
    """

    _shown = facts("path", "entries", "dropped", "bytes", "written")

    path: AnyPath
    entries: int
    dropped: int
    bytes: int
    written: bool = True


class FaultyLine(FastpackError, ValueError):
    """A line that `json.loads` rejects; the reason is the `__cause__`.

    Attributes
    ----------
    path
        The raw file.
    line
        The number of the line, from 1.
    offset
        The start of the line in bytes.
    """

    def __init__(self, text: str, path: str, line: int, offset: int) -> None:
        super().__init__(text)
        self.path, self.line, self.offset = path, line, offset

    def __reduce__(self) -> tuple[type[FaultyLine], tuple[str, str, int, int]]:
        return type(self), (str(self), self.path, self.line, self.offset)


@accept_aliases(file_existence_policy="if_exists")
def create_raw_index(
    src_path: PathLike,
    index_path: PathLike | None = None,
    *,
    validate: bool = True,
    drop_faulty_entries: bool = False,
    if_exists: ExistencePolicy = "error",
    num_threads: int = 1,
    progress: Progress | None = None,
) -> IndexResult:
    r"""Write the byte-offset index of a JSON Lines file, byte for byte as Modalities.

    Parameters
    ----------
    src_path
        The JSON Lines file.
    index_path
        The index; by default `<stem>.idx` next to the source. Missing folders are created.
    validate
        Whether to check that `json.loads` accepts every line. Otherwise every line gets an entry, blank ones too.
    drop_faulty_entries
        Leave out faulty lines with a warning (one each for the first 100) instead of raising FaultyLine.
    if_exists
        What to do if the index exists: "error", "skip" or "overwrite".
    num_threads
        Number of threads that validate. The result does not depend on it.
    progress
        Called with (bytes done, total bytes).

    Returns
    -------
    IndexResult
        The path of the index, and the number of lines.

    Raises
    ------
    FaultyLine
        If a line is not JSON (a ValueError). Nothing is written then.
    FileNotFoundError
        If the source does not exist.
    TargetExists
        If the index exists and the policy is "error" (a ValueError).
    ValueError
        If the source is compressed, or the index would replace the source.

    Examples
    --------
    >>> import pathlib, tempfile, fastpack
    >>> folder = tempfile.TemporaryDirectory()
    >>> source = pathlib.Path(folder.name, "a.jsonl")
    >>> _ = source.write_text('{"text": "a"}\n{"text": "bcd"}\n')
    >>> result = fastpack.create_raw_index(source)
    >>> result.path.name, result.entries
    ('a.idx', 2)
    >>> fastpack.read_raw_index(result.path)
    array([[ 0, 13],
           [14, 15]])
    >>> folder.cleanup()
    """
    if num_threads < 1:
        raise ValueError(f"num_threads must be at least 1, not {num_threads}")
    source = os.fspath(src_path)
    target = default_index_path(source) if index_path is None else as_path(index_path)
    check_paths(source, target)
    if not may_write_index(source, target, if_exists):
        return IndexResult(target, 0, 0, 0, written=False)
    data = open_bytes(source)
    faults = FaultLog(source, data, drop_faulty_entries)
    with open_raw_index_writer(target, if_exists) as writer:
        if validate and len(data) == 0:
            faults.empty_file()
        # Close the generator when a fault ends the loop: otherwise the garbage collector may close it in a thread of
        # the pool, which would wait for itself.
        with closing(_checked(data, progress, num_threads if validate else 0)) as chunks:
            for rows, faulty in chunks:
                writer.append(faults.without(rows, faulty) if faulty else rows)
                faults.n_lines += len(rows)
    faults.summarise()
    return IndexResult(target, writer.n_rows, faults.dropped, len(data))


def all_lines(data: Data) -> tuple[Rows, npt.NDArray[np.bool_]]:
    """Return the rows int64 [n, 2] of all lines of a raw file, and whether each line is JSON, bool [n]."""
    lines, are_json = [np.empty((0, 2), np.int64)], [np.empty(0, bool)]
    for rows, faulty in _checked(data, None, 1):
        lines.append(rows.copy())
        good = np.ones(len(rows), bool)
        good[[i for i, _ in faulty]] = False
        are_json.append(good)
    return np.concatenate(lines), np.concatenate(are_json)


def create_raw_data_index(
    src_path: PathLike, index_path: PathLike | None = None, file_existence_policy: ExistencePolicy = "error"
) -> IndexResult:
    """Call `create_raw_index`, with the name and arguments of Modalities' API.

    Parameters
    ----------
    src_path, index_path
        As for `create_raw_index`.
    file_existence_policy
        As `if_exists` of `create_raw_index`.

    Returns
    -------
    IndexResult
        The result of `create_raw_index`.

    Examples
    --------
    >>> import pathlib, tempfile, fastpack
    >>> folder = tempfile.TemporaryDirectory()
    >>> source = pathlib.Path(folder.name, "a.jsonl")
    >>> _ = source.write_text('{"text": "a"}')
    >>> fastpack.modalities.create_raw_data_index(source).entries
    1
    >>> folder.cleanup()
    """
    return create_raw_index(src_path, index_path, if_exists=file_existence_policy)


def may_write_index(source: str, target: AnyPath, policy: ExistencePolicy) -> bool:
    """Return whether the index may be written, as `may_write`.

    Warns if an index is kept that does not belong to the current source, or if an index is replaced that belongs to
    another file with the same default index path. TargetExists names that file.
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
    except FormatError:  # not an index: no warning
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
    """Raise FileNotFoundError without a source, ValueError for one without lines and for an index that replaces it."""
    if not exists(source):
        raise FileNotFoundError(f"Raw data file does not exist: {source}")
    if is_compressed(source):
        raise ValueError(
            f"{source} is compressed, so its lines cannot be read by position. Decompress it to create an index; "
            "`fastpack pack` reads it as it is"
        )
    if (kind := format_of_content(source)) is not None:
        raise ValueError(f"{source} is a {kind} file: only JSON Lines files have a byte-offset index")
    if same_file(source, target):
        raise ValueError(f"the index would replace the raw data: both are {source}")


def _checked(data: Data, progress: Progress | None, num_threads: int) -> Generator[tuple[Rows, Faults]]:
    """Yield the rows of all lines and the faults among them, in order; the buffer of rows may be reused.

    `num_threads` chunks are validated at a time; 0: none is validated.
    """
    if num_threads < 2 or len(data) < _MIN_BYTES:
        for rows in scan_lines(data, progress):
            yield rows, faulty_lines(data, rows) if num_threads else []
        return
    from concurrent.futures import ThreadPoolExecutor

    waiting: deque[tuple[Rows, Future[Faults]]] = deque()
    with ThreadPoolExecutor(num_threads, "fastpack-index") as pool:
        try:
            for rows in scan_lines(data, progress):
                rows = rows.copy()
                waiting.append((rows, pool.submit(faulty_lines, data, rows)))
                while len(waiting) > 2 * num_threads:
                    rows, faults = waiting.popleft()
                    yield rows, faults.result()
            while waiting:
                rows, faults = waiting.popleft()
                yield rows, faults.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _line(data: Data, row: Rows) -> bytes:
    offset, length = row.tolist()
    return data[offset : offset + length].tobytes()


class FaultLog:
    """Raises for the first faulty line, or warns of each line and leaves it out."""

    def __init__(self, path: str, data: Data, drop: bool) -> None:
        self._path, self._data, self._drop = path, data, drop  # data is read for faulty lines only
        self.n_lines = 0  # before the current chunk
        self.dropped = 0

    def report(self, number: int, row: Rows) -> None:
        """Report a line that another process found faulty: its number, from 0, and its row."""
        line = _line(self._data, row)
        error = json_fault(line)
        if error is None:
            raise JobError(f"{self._path} changed during the run: start again")
        self._report(line, number, int(row[0]), error)

    def without(self, rows: Rows, faults: Faults) -> Rows:
        """Report the faults, and return the rows without them."""
        for i, error in faults:
            self._report(_line(self._data, rows[i]), self.n_lines + i, int(rows[i, 0]), error)
        keep = np.ones(len(rows), bool)
        keep[[i for i, _ in faults]] = False
        return rows[keep]

    def empty_file(self) -> None:
        """Report an empty file, which is one faulty line (as Modalities)."""
        error = json_fault(b"")
        assert error is not None
        self._report(b"", 0, 0, error)

    def summarise(self) -> None:
        """Warn of the total if not every line had a warning of its own."""
        if self.dropped > _MAX_WARNINGS:
            warnings.warn(
                f"{self._path}: {self.dropped} faulty lines skipped, the first {_MAX_WARNINGS} of them named",
                stacklevel=3,
            )

    def _report(self, line: bytes, number: int, offset: int, error: Exception) -> None:
        if not self._drop:
            raise self._faulty_line(line, number, offset, error) from error
        self.dropped += 1
        if self.dropped <= _MAX_WARNINGS:
            warnings.warn(_modalities_message(line), stacklevel=5)

    def _faulty_line(self, line: bytes, number: int, offset: int, error: Exception) -> FaultyLine:
        faulty = FaultyLine(_modalities_message(line), self._path, number + 1, offset)
        reason = str(error) if line or number or offset else "the file is empty"
        faulty.add_note(f"{self._path}: line {number + 1} at byte {offset}: {reason}")
        return faulty


def _modalities_message(line: bytes) -> str:
    quoted = f"{line!r}" if len(line) <= _MAX_QUOTED else f"{line[:_MAX_QUOTED]!r}... ({len(line)} bytes)"
    return f'faulty line "{quoted}", skipping...'
