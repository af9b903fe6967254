"""Checks whether a raw index belongs to the current contents of its source.

An `.idx` file records neither the name nor the size of its source, so the contents decide: no entry ends after the end
of the source, no line of JSON follows the last entry, and entries are complete lines. The last condition is checked for
a sample of the entries, and for all of them, in one pass over the source, if the index is not newer than the source.
Modification times alone decide nothing: copies often get new times, in any order.
"""

from __future__ import annotations

import os
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from fastpack import kernels
from fastpack.documents.json_lines import Rows, faulty_lines, scan_lines
from fastpack.errors import StaleIndex
from fastpack.io import AnyPath, ByteArray, PathLike, as_path, is_remote, open_bytes, peek, pickled_index, stat_of

_NEWLINE, _RETURN = 10, 13
_SAMPLED_BYTES = 64 << 20  # bytes that are searched for the first lines of a file
_SAMPLED_ROWS = 64  # at the beginning, at the end, and in between
_SAMPLED_REMOTE_ROWS = 2  # each costs a request
_MAX_LINE_BYTES = 1 << 20  # bytes of a sampled line that are searched for a newline
_LEGACY_ROWS = 1000  # lengths that are not in bytes: number that is compared with the characters of their lines
_SOURCE_SUFFIXES = (".json", ".jsonl", ".ndjson", ".txt", ".parquet")  # files that share a default index path


def default_index_path(raw_data_path: PathLike) -> AnyPath:
    """Return the default index path of a raw file: `<stem>.idx` next to it."""
    path = as_path(raw_data_path)
    return path.parent / f"{path.stem}.idx"


def read_raw_index_of(path: PathLike, index_path: PathLike, data: ByteArray | None = None) -> Rows:
    """Read and check the rows int64 [n, 2] of the index of a raw file; `data`: the raw file, if it is open.

    Raises FileNotFoundError, FormatError for a file that is not an index, StaleIndex as `check_raw_index`.
    """
    rows = pickled_index.decode(open_bytes(index_path)[:], index_path)
    check_raw_index(path, index_path, open_bytes(path) if data is None else data, rows)
    return rows


def check_raw_index(path: PathLike, index_path: PathLike, data: ByteArray, rows: Rows, *, whole: bool = True) -> None:
    """Raise StaleIndex if `rows`, read from `index_path`, is not the index of the raw file `path` with bytes `data`.

    Gaps between entries (lines that are not JSON), any order of entries, and lengths in characters are accepted.
    `whole=False`: the rows are the first of the index, and only they are checked.
    """
    fault = _fault(path, index_path, data, rows) if whole else _fault_of_rows(data, rows)
    if fault is None:
        return
    owner = other_source(path, index_path)
    option = "" if as_path(index_path) == default_index_path(path) else f" --index-path {os.fspath(index_path)}"
    raise StaleIndex(
        index_path,
        path,
        fault,
        f"It is the index of {owner}, which has the same default index path: pass --index-path for one of the two"
        if owner
        else f"`fastpack index {os.fspath(path)}{option} --force` rebuilds it",
        owner,
    )


def _fault(path: PathLike, index_path: PathLike, data: ByteArray, rows: Rows) -> str | None:
    """Why the rows are not those of the raw file; None if they are."""
    fault = _fault_of_rows(data, rows) or _fault_after(data, rows)
    if fault is not None or is_remote(path) or is_remote(index_path):
        return fault  # the times in a store are those of uploads
    before, after = stat_of(path), stat_of(index_path)
    if after.st_mtime_ns > before.st_mtime_ns:
        return None
    states = [(status.st_size, status.st_mtime_ns, status.st_ino) for status in (before, after)]
    return _fault_of_all(os.fspath(path), os.fspath(index_path), tuple(states))


def _fault_of_rows(data: ByteArray, rows: Rows) -> str | None:
    """Describe an entry that ends after the file, or an entry of a sample that is not a line; None if there is none."""
    ends = rows.sum(axis=1)
    if len(rows) and int(ends.max()) > len(data):
        entry = int((ends > len(data)).argmax())
        return f"entry {entry} ends at byte {int(ends[entry])}, the file at byte {len(data)}"
    n_each = _SAMPLED_ROWS if isinstance(data, np.ndarray) else _SAMPLED_REMOTE_ROWS
    last = len(rows) - 1
    numbers = {int(number) for number in np.linspace(0, last, min(len(rows), n_each))}
    numbers.update(range(min(len(rows), n_each)), range(max(0, len(rows) - n_each), len(rows)))
    for number in sorted(numbers):
        offset, length = rows[number].tolist()
        before = offset > 0
        piece = peek(data, offset - before, offset + min(length, _MAX_LINE_BYTES) + 1)
        text = piece[int(before) :]
        if before and piece[0] != _NEWLINE:
            return f"no line begins at byte {offset}"
        if length <= _MAX_LINE_BYTES:
            ends_a_line = len(text) == length or text[length] == _NEWLINE  # the former at the end of the file
            if kernels.count_newlines(text[:length]) == 0 and (ends_a_line or _is_legacy(data, offset, length)):
                continue
        elif kernels.count_newlines(text) == 0 and _ends_at(data, offset + length):
            continue
        if not _is_legacy(data, offset, length):
            return f"the line at byte {offset} is not {length} bytes long"
    return None


def _ends_at(data: ByteArray, end: int) -> bool:
    return end == len(data) or peek(data, end, end + 1)[0] == _NEWLINE


def _is_legacy(data: ByteArray, offset: int, length: int) -> bool:
    """Whether `length` is the length of the line at `offset` in characters (as Modalities before v0.4.0)."""
    line = line_at(data, offset)
    return line is not None and length in known_lengths(line, offset + len(line) + 1 >= len(data))


def _fault_after(data: ByteArray, rows: Rows) -> str | None:
    """Describe a line of JSON after the last entry; an index may leave out lines that are not JSON."""
    start = 0
    if len(rows):
        last = int(rows[:, 0].max())
        line = line_at(data, last)
        if line is None:
            return f"no line begins at byte {last}"
        start = last + len(line) + 1
    for lines in scan_lines(data, start=start) if start < len(data) else ():
        if found := _missing_json_line(data, lines):
            return found
    return None


def _missing_json_line(data: ByteArray, lines: Rows) -> str | None:
    faulty = {number for number, _ in faulty_lines(data, lines)}
    for number in range(len(lines)):
        if number not in faulty:
            return f"the line at byte {int(lines[number, 0])} has no entry"
    return None


@lru_cache(maxsize=256)
def _fault_of_all(path: str, index_path: str, _states: tuple[tuple[int, int, int], ...]) -> str | None:
    """As `_fault`, from all entries and lines; cached, because every step of a command checks again."""
    data, rows = open_bytes(path), pickled_index.decode(open_bytes(index_path)[:], index_path)
    rows = rows[np.argsort(rows[:, 0], kind="stable")]
    done = 0
    for lines in scan_lines(data):
        end = int(np.searchsorted(rows[:, 0], lines[-1, 0], side="right"))
        entries, done = rows[done:end], end
        if len(entries) == len(lines) and (entries == lines).all():
            continue
        if fault := _difference(data, lines, entries):
            return fault
    return None if done == len(rows) else f"no line begins at byte {int(rows[done, 0])}"


def _difference(data: ByteArray, lines: Rows, entries: Rows) -> str | None:
    """Describe the first entry that is not a line, or the first line of JSON without an entry."""
    at = np.searchsorted(lines[:, 0], entries[:, 0]).clip(max=len(lines) - 1)
    astray = np.flatnonzero(lines[at, 0] != entries[:, 0])
    if len(astray):
        return f"no line begins at byte {int(entries[astray[0], 0])}"
    others = np.flatnonzero(lines[at, 1] != entries[:, 1])
    for number in others[:: len(others) // _LEGACY_ROWS + 1].tolist():
        offset, length = entries[number].tolist()
        if not _is_legacy(data, offset, length):
            return f"the line at byte {offset} is not {length} bytes long"
    without = np.ones(len(lines), bool)
    without[at] = False
    return _missing_json_line(data, lines[without]) if without.any() else None


def other_source(path: PathLike, index_path: PathLike) -> str | None:
    """Return the file next to `path` with the same default index path that the index belongs to, if there is one."""
    source = as_path(path)
    if is_remote(path) or is_remote(index_path) or as_path(index_path) != default_index_path(path):
        return None
    others = [source.with_suffix(suffix) for suffix in _SOURCE_SUFFIXES if suffix != source.suffix]
    others = [other for other in others if other.is_file()]
    rows = pickled_index.decode(open_bytes(index_path)[:], index_path) if others else np.empty((0, 2), np.int64)
    found = (other for other in others if len(rows) and _fault(other, index_path, open_bytes(other), rows) is None)
    return next(map(os.fspath, found), None)


def check_bounds(index: npt.NDArray[np.int64], n_bytes: int, path: PathLike) -> None:
    """Raise FormatError if an entry of `index` (int64 [n, 2], not negative) ends after a file of `n_bytes`."""
    if len(index) and int(index[:, 0].max()) + int(index[:, 1].max()) > n_bytes:  # a cheap test for the usual case
        beyond = index[:, 0] + index[:, 1] > n_bytes
        if beyond.any():
            entry = int(beyond.argmax())
            expected = f"an entry within the {n_bytes} bytes of the raw file"
            raise pickled_index.entry_error(path, 0, entry, index[entry], expected)


def counts_characters(data: ByteArray, index: npt.NDArray[np.int64], sample: int = 64) -> bool:
    """Return whether one of the first `sample` entries ends before its line, as lengths in characters do."""
    rows = index[:sample]
    first = int(rows[:, 0].min(initial=len(data)))
    text = peek(data, first, min(len(data), first + _SAMPLED_BYTES, int(rows.sum(axis=1).max(initial=0)) + 1))
    for offset, length in rows.tolist():
        end = offset + length - first
        if end >= len(text) or text[end] == _NEWLINE:  # a length in bytes ends at a newline or at the end of the file
            continue
        line = line_at(data, offset)
        if line is not None and length < len(line) and length in known_lengths(line, False):
            return True
    return False


def line_at(data: ByteArray, offset: int) -> npt.NDArray[np.uint8] | None:
    """Return the line that begins at `offset`, without its newline; None if no line begins there."""
    if offset >= len(data) or (offset and data[offset - 1 : offset][0] != _NEWLINE):
        return None
    row, step, at = np.empty((1, 2), np.int64), 4096, offset
    while at < len(data):
        n_rows, consumed, _ = kernels.index_lines(data[at : at + step], at, offset, row)
        if n_rows:
            return data[offset : offset + int(row[0, 1])]
        at, step = at + consumed, step * 2
    return data[offset:]


def known_lengths(line: npt.NDArray[np.uint8], is_last: bool) -> set[int]:
    r"""Return the lengths that versions of Modalities give `line`: in bytes, or in characters with "\r\n" as "\n"."""
    n_characters = int(np.count_nonzero((line & 0xC0) != 0x80))
    ends_in_return = bool(len(line)) and line[-1] == _RETURN
    n_text = n_characters - ends_in_return
    return {len(line), n_text} | ({n_text + 1} if is_last else set())
