"""Checks a JSON Lines file and its indexes, `.idx` and `.jsonl.idx`, against each other."""

from __future__ import annotations

import numpy as np

from fastpack.analysis.findings import Finding, VerifyReport
from fastpack.analysis.options import VerifyOptions
from fastpack.analysis.trailing_zeros import used_bytes
from fastpack.documents.json_lines import Data, Rows, faulty_lines, scan_lines
from fastpack.documents.offset_index import (
    check_jsonl_bounds,
    jsonl_offsets_fault,
    jsonl_offsets_path,
    read_offset_index,
)
from fastpack.documents.raw_index_check import check_bounds, counts_characters, default_index_path
from fastpack.errors import FormatError
from fastpack.io import AnyPath, open_bytes
from fastpack.io.pickled_index import decode_prefix

_MAX_PARSED = 1000  # lines without an entry that are parsed
_WRITE = "`fastpack index` writes it"
_REBUILD_OFFSETS = "`fastpack prepare` rebuilds it"
_REBUILD = "`fastpack repair` or `fastpack index --force` rebuilds it"


def check(path: AnyPath, report: VerifyReport, options: VerifyOptions) -> None:
    """Add the findings of a JSON Lines file to the report."""
    data = open_bytes(path)
    report.count(bytes=len(data))
    n_nul = len(data) - used_bytes(data, 0, len(data))
    if n_nul:
        report.add("error", path, len(data) - n_nul, f"{n_nul} bytes 0 at the end", "lines of JSON")
    index = _read_index(path, data, report)
    _check_offsets(path, data, report)
    _Lines(path, data, index, report, options).check()


def check_index(path: AnyPath, report: VerifyReport, options: VerifyOptions) -> None:
    """Add the findings of an `.idx` file, and of its raw file if there is one, to the report."""
    is_offsets = path.name.endswith(".jsonl.idx")
    raw = path.with_suffix("") if is_offsets else path.with_suffix(".jsonl")
    if raw.is_file():
        check(raw, report, options)
        return
    report.add("warning", path, None, f"no {raw.name} next to it", "the file that it is the index of")
    try:
        entries = len(read_offset_index(path)) - 1 if is_offsets else len(_decode(path, report))
        report.count(entries=entries)
    except FormatError as error:
        report.take(Finding.of(error))


def _read_index(path: AnyPath, data: Data, report: VerifyReport) -> Rows | None:
    """Read the index of Modalities, in the order of the file; None if there is no valid one."""
    index_path = default_index_path(path)
    if not index_path.is_file():
        if not jsonl_offsets_path(path).is_file():
            report.add("warning", index_path, None, "no file", f"the index of {path.name}; {_WRITE}")
        return None
    try:
        index = _decode(index_path, report)
        check_bounds(index, len(data), index_path)
    except FormatError as error:
        report.add("error", error.path, error.offset, str(error.found), f"{error.expected}: {_REBUILD}")
        return None
    report.count(entries=len(index))
    if counts_characters(data, index):
        expected = "bytes: `fastpack index --repair-legacy` restores them"
        report.add("error", index_path, None, "lengths of lines in characters", expected)
        return None
    if (index[1:, 0] <= index[:-1, 0]).any():
        report.add("warning", index_path, None, "entries that are not in the order of the file", "ascending offsets")
        index = index[np.argsort(index[:, 0], kind="stable")]
    return index


def _decode(path: AnyPath, report: VerifyReport) -> Rows:
    data = open_bytes(path)[:]
    index, n_bytes = decode_prefix(data, path)
    if n_bytes < len(data):
        report.add("warning", path, n_bytes, f"{len(data) - n_bytes} bytes after the index", "the end of the file")
    return index


def _check_offsets(path: AnyPath, data: Data, report: VerifyReport) -> None:
    """Compare the offset index of Energon with the lines, if there is one."""
    offsets_path = jsonl_offsets_path(path)
    if not offsets_path.is_file():
        return
    try:
        offsets = read_offset_index(offsets_path)
        report.count(samples=len(offsets) - 1)
        check_jsonl_bounds(offsets, len(data), path)
    except FormatError as error:
        report.take(Finding.of(error))
        return
    if fault := jsonl_offsets_fault(data, offsets):
        report.add("error", offsets_path, None, fault, f"a sample for each line of {path.name}: {_REBUILD_OFFSETS}")


class _Lines:
    """Compares the lines of a file with its index."""

    def __init__(
        self, path: AnyPath, data: Data, index: Rows | None, report: VerifyReport, options: VerifyOptions
    ) -> None:
        self._path, self._data, self._index = path, data, index
        self._report, self._options = report, options
        self._done = 0  # entries of the index compared so far
        self._parsed = self._faulty = self._wrong = self._missing = 0

    def check(self) -> None:
        n_lines = 0
        for rows in scan_lines(self._data):
            n_lines += len(rows)
            if self._index is not None:
                self._compare(rows, self._index)
            if self._options.deep:
                self._parse(rows)
            if self._options.progress is not None:
                self._options.progress(int(rows[-1].sum()), len(self._data))
        if self._index is not None and self._done < len(self._index):
            self._wrong_entry(self._done, self._index[self._done])  # a length of 0 at the end of the file
        self._report.count(lines=n_lines)
        for amount, path, what, expected in (
            (self._wrong, default_index_path(self._path), "entries that are not lines", _REBUILD),
            (self._missing, default_index_path(self._path), "lines of JSON without an entry", _REBUILD),
            (self._faulty, self._path, "lines that are not JSON", "JSON on each line"),
        ):
            if amount > 1:
                self._report.add("error", path, None, f"{amount} {what} in all", expected)

    def _compare(self, rows: Rows, index: Rows) -> None:
        """Entries up to the last of these lines must be lines; lines without an entry must be faulty."""
        end = int(np.searchsorted(index[:, 0], rows[-1, 0], side="right"))
        entries, first = index[self._done : end], self._done
        self._done = end
        if len(entries) == len(rows) and (entries == rows).all():
            return
        at = np.searchsorted(rows[:, 0], entries[:, 0]).clip(max=len(rows) - 1)
        wrong = np.flatnonzero((rows[at] != entries).any(axis=1))
        if len(wrong):
            self._wrong_entry(first + int(wrong[0]), entries[int(wrong[0])], len(wrong))
        without = np.ones(len(rows), bool)
        without[at[rows[at, 0] == entries[:, 0]]] = False
        self._check_missing(rows[without])

    def _wrong_entry(self, number: int, row: Rows, amount: int = 1) -> None:
        if not self._wrong:
            found = f"entry {number} = ({int(row[0])}, {int(row[1])})"
            expected = f"a line of {self._path.name}, its start and its length: {_REBUILD}"
            self._report.add("error", default_index_path(self._path), None, found, expected)
        self._wrong += amount

    def _check_missing(self, rows: Rows) -> None:
        """Check that the lines that the index leaves out are not JSON."""
        self._report.count(lines_left_out=len(rows))
        rows = rows[: max(0, _MAX_PARSED - self._parsed)]
        self._parsed += len(rows)
        faulty = {row for row, _ in faulty_lines(self._data, rows)}
        missing = [row for number, row in enumerate(rows.tolist()) if number not in faulty]
        if missing and not self._missing:
            found = f"no entry for the line at byte {missing[0][0]} of {self._path.name}, which is JSON"
            self._report.add("error", default_index_path(self._path), None, found, f"one: {_REBUILD}")
        self._missing += len(missing)

    def _parse(self, rows: Rows) -> None:
        for number, error in faulty_lines(self._data, rows):
            if not self._faulty:
                found = f"a line that is not JSON ({error})"
                self._report.add("error", self._path, int(rows[number, 0]), found, "JSON on each line")
            self._faulty += 1
