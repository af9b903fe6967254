"""Whether a raw index belongs to its source as the source is now.

An `.idx` file records neither the name nor the size of its source, so this is decided by the contents: no entry ends
after the end of the source, no line of JSON follows the last entry, and entries are whole lines. The last is checked
for a sample of the entries. It is checked for all of them, in one pass over the source, when the index is not newer
than the source; the time alone decides nothing, since copies often get new times, in any order.
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
_SAMPLED = 64 << 20  # bytes that the first lines of a file are looked for in
_SAMPLED_ROWS = 64  # at the beginning, at the end, and between them
_SAMPLED_REMOTE_ROWS = 2  # each costs a request
_MOST_OF_A_LINE = 1 << 20  # bytes of a sampled line that are searched for a newline
_LEGACY_ROWS = 1000  # lengths that are not bytes: how many of them are compared with the characters of their lines
_SOURCE_SUFFIXES = (".json", ".jsonl", ".ndjson", ".txt", ".parquet")  # of files that share a default index path


def default_index_path(raw_data_path: PathLike) -> AnyPath:
    """Where the index of a raw file is expected: beside it, `<stem>.idx`."""
    path = as_path(raw_data_path)
    return path.parent / f"{path.stem}.idx"


def read_raw_index_of(path: PathLike, index_path: PathLike, data: ByteArray | None = None) -> Rows:
    """The rows int64[n, 2] of the index of a raw file; data: the bytes of the raw file, if it is open.

    Raises FileNotFoundError, FormatError for a file that is not an index, StaleIndex as `check_raw_index`.
    """
    rows = pickled_index.decode(open_bytes(index_path)[:], index_path)
    check_raw_index(path, index_path, open_bytes(path) if data is None else data, rows)
    return rows


def check_raw_index(path: PathLike, index_path: PathLike, data: ByteArray, rows: Rows, *, whole: bool = True) -> None:
    """Raise StaleIndex when `rows`, read from `index_path`, is not the index of the raw file `path` with bytes `data`.

    Gaps between entries (lines that are not JSON), any order of entries, and lengths in characters are accepted. With
    whole=False the rows are the first of the index, and only they are checked.
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
        f"It is the index of {owner}, which has the same default index path: give one of the two another (--index-path)"
        if owner
        else f"`fastpack index {os.fspath(path)}{option} --force` rebuilds it",
        owner,
    )


def _fault(path: PathLike, index_path: PathLike, data: ByteArray, rows: Rows) -> str | None:
    """What shows that the rows are not those of the raw file; None where nothing does."""
    fault = _fault_of_rows(data, rows) or _fault_after(data, rows)
    if fault is not None or is_remote(path) or is_remote(index_path):
        return fault  # times of a store are those of uploads, which say nothing
    before, after = stat_of(path), stat_of(index_path)
    if after.st_mtime_ns > before.st_mtime_ns:
        return None
    states = [(status.st_size, status.st_mtime_ns, status.st_ino) for status in (before, after)]
    return _fault_of_any(os.fspath(path), os.fspath(index_path), tuple(states))


def _fault_of_rows(data: ByteArray, rows: Rows) -> str | None:
    """The first entry found that is not a line: of all those that end after the file, and of a sample."""
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
        piece = peek(data, offset - before, offset + min(length, _MOST_OF_A_LINE) + 1)
        text = piece[int(before) :]
        if before and piece[0] != _NEWLINE:
            return f"no line begins at byte {offset}"
        if length <= _MOST_OF_A_LINE:
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
    """Whether a length is that of the line at `offset` in characters, as Modalities counted before v0.4.0."""
    line = line_at(data, offset)
    return line is not None and length in known_lengths(line, offset + len(line) + 1 >= len(data))


def _fault_after(data: ByteArray, rows: Rows) -> str | None:
    """A line of JSON after the last entry; lines that are not JSON are left out of an index on request."""
    start = 0
    if len(rows):
        last = int(rows[:, 0].max())
        line = line_at(data, last)
        if line is None:
            return f"no line begins at byte {last}"
        start = last + len(line) + 1
    for lines in scan_lines(data, start=start) if start < len(data) else ():
        if found := _json_among(data, lines):
            return found
    return None


def _json_among(data: ByteArray, lines: Rows) -> str | None:
    faulty = {number for number, _ in faulty_lines(data, lines)}
    for number in range(len(lines)):
        if number not in faulty:
            return f"the line at byte {int(lines[number, 0])} has no entry"
    return None


@lru_cache(maxsize=256)
def _fault_of_any(path: str, index_path: str, _states: tuple[tuple[int, int, int], ...]) -> str | None:
    """As `_fault`, by all entries and lines; remembered, since every step of a command asks again."""
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
    """The first entry that is not one of the lines, or the first line of JSON without an entry."""
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
    return _json_among(data, lines[without]) if without.any() else None


def other_source(path: PathLike, index_path: PathLike) -> str | None:
    """The file next to `path` that has the same default index path and whose index this is, if there is one."""
    source = as_path(path)
    if is_remote(path) or is_remote(index_path) or as_path(index_path) != default_index_path(path):
        return None
    others = [source.with_suffix(suffix) for suffix in _SOURCE_SUFFIXES if suffix != source.suffix]
    others = [other for other in others if other.is_file()]
    rows = pickled_index.decode(open_bytes(index_path)[:], index_path) if others else np.empty((0, 2), np.int64)
    found = (other for other in others if len(rows) and _fault(other, index_path, open_bytes(other), rows) is None)
    return next(map(os.fspath, found), None)


def check_bounds(index: npt.NDArray[np.int64], n_bytes: int, path: PathLike) -> None:
    """Raise FormatError when an entry of `index` (int64[n, 2], no negative ones) reaches beyond a file of `n_bytes`."""
    if len(index) and int(index[:, 0].max()) + int(index[:, 1].max()) > n_bytes:  # one cheap test for the usual file
        beyond = index[:, 0] + index[:, 1] > n_bytes
        if beyond.any():
            entry = int(beyond.argmax())
            expected = f"an entry within the {n_bytes} bytes of the raw file"
            raise pickled_index.entry_error(path, 0, entry, index[entry], expected)


def counts_characters(data: ByteArray, index: npt.NDArray[np.int64], sample: int = 64) -> bool:
    """Whether one of the first `sample` lengths ends before its line does, as those that count characters do."""
    rows = index[:sample]
    first = int(rows[:, 0].min(initial=len(data)))
    text = peek(data, first, min(len(data), first + _SAMPLED, int(rows.sum(axis=1).max(initial=0)) + 1))
    for offset, length in rows.tolist():
        end = offset + length - first
        if end >= len(text) or text[end] == _NEWLINE:  # as a length in bytes ends, at the end of the file or before one
            continue
        line = line_at(data, offset)
        if line is not None and length < len(line) and length in known_lengths(line, False):
            return True
    return False


def line_at(data: ByteArray, offset: int) -> npt.NDArray[np.uint8] | None:
    """The line that begins at `offset`, without its newline; None when no line begins there."""
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
    """The lengths a generation of Modalities gives `line`: in bytes, or in characters with "\\r\\n" read as "\\n"."""
    n_characters = int(np.count_nonzero((line & 0xC0) != 0x80))
    ends_in_return = bool(len(line)) and line[-1] == _RETURN
    n_text = n_characters - ends_in_return
    return {len(line), n_text} | ({n_text + 1} if is_last else set())
