"""Compare the rows of `index.sqlite` with the headers of the shards."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, Any

import numpy as np

from fastpack.io import AnyPath
from fastpack.webdataset.sample_index.reader import connect_read_only

if TYPE_CHECKING:
    from fastpack.analysis.findings import VerifyReport
    from fastpack.webdataset.shard_index import ShardScan

_BATCH_ROWS = 16_384
_COLUMNS = {
    "samples": "sample_key, sample_index, byte_offset, byte_size",
    "sample_parts": "sample_index, part_name, content_byte_offset, content_byte_size",
}
_ORDER = {"samples": "sample_index", "sample_parts": "sample_index, content_byte_offset"}
_Rows = Iterator[list[tuple[Any, ...]]]  # in batches


class IndexChecker:
    """An open `index.sqlite`, for one thread; problems are added to the report.

    samples, fields: whether the tables exist.
    """

    def __init__(self, path: AnyPath, report: VerifyReport) -> None:
        self.path, self._report = path, report
        self._db = connect_read_only(path)
        self.samples = self.fields = False
        self._safely(self._find_tables)

    def close(self) -> None:
        self._db.close()

    def compare(self, number: int, scan: ShardScan) -> None:
        """Check the rows of shard `number` against its headers; at most one finding per table."""
        if self.samples:
            self._safely(partial(self._compare, "samples", number, _sample_rows(scan), scan.path))
        if self.fields:
            self._safely(partial(self._compare, "sample_parts", number, _field_rows(scan), scan.path))

    def check_numbers(self, n_shards: int) -> None:
        """Check that every row belongs to an existing shard."""
        for table in ("samples",) * self.samples + ("sample_parts",) * self.fields:
            self._safely(partial(self._check_numbers, table, n_shards))

    def key_exists(self, number: int, key: str) -> bool:
        """Return whether shard `number` has a sample with this key; True if that is unknown."""
        if not self.samples:
            return True
        import sqlite3

        query = "SELECT 1 FROM samples WHERE sample_key = ? AND tar_file_id = ?"
        try:
            return self._db.execute(query, (key, number)).fetchone() is not None
        except sqlite3.Error:
            return True

    def _find_tables(self) -> None:
        tables = {name for (name,) in self._db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        self.samples, self.fields = "samples" in tables, "sample_parts" in tables

    def _compare(self, table: str, number: int, expected: _Rows, shard: str) -> None:
        query = f"SELECT {_COLUMNS[table]} FROM {table} WHERE tar_file_id = ? ORDER BY {_ORDER[table]}"
        cursor = self._db.execute(query, (number,))
        for wanted in chain(expected, [[]]):
            rows = cursor.fetchmany(len(wanted) or 1)
            if rows != wanted:
                self._report_difference(table, rows, wanted, shard)
                return

    def _report_difference(self, table: str, rows: list[Any], wanted: list[Any], shard: str) -> None:
        row, want = next(pair for pair in zip_longest(rows, wanted) if pair[0] != pair[1])
        names = f"a row ({_COLUMNS[table]}) of {table}"
        found = "no more rows" if row is None else str(row)
        expected = "no more rows" if want is None else f"{want}, {names}"
        self._report.add("error", self.path, None, found, f"{expected}, for {shard}")

    def _check_numbers(self, table: str, n_shards: int) -> None:
        query = (
            f"SELECT count(*), min(tar_file_id), max(tar_file_id) FROM {table} WHERE tar_file_id NOT BETWEEN 0 AND ?"
        )
        count, low, high = self._db.execute(query, (n_shards - 1,)).fetchone()
        if count:
            found = f"{count} rows of {table} for shards {low} to {high}"
            self._report.add("error", self.path, None, found, f"shards 0 to {n_shards - 1}, as .info.json has them")

    def _safely(self, question: Any) -> None:
        import sqlite3

        try:
            question()
        except sqlite3.Error as error:
            self.samples = self.fields = False
            self._report.add("error", self.path, 0, f"SQLite's error {str(error)!r}", "an index of samples")


def _sample_rows(scan: ShardScan) -> _Rows:
    offsets = scan.sample_offsets
    for start in range(0, scan.n_samples, _BATCH_ROWS):
        keys = scan.sample_keys[start : start + _BATCH_ROWS]
        places = offsets[start : start + len(keys) + 1]
        columns = (range(start, start + len(keys)), places[:-1].tolist(), np.diff(places).tolist())
        yield list(zip(map(bytes.decode, keys), *columns, strict=True))


def _field_rows(scan: ShardScan) -> _Rows:
    for start in range(0, scan.n_fields, _BATCH_ROWS):
        rows = slice(start, start + _BATCH_ROWS)
        samples, names = scan.field_samples[rows].tolist(), map(bytes.decode, scan.field_names[rows])
        offsets, sizes = scan.field_offsets[rows].tolist(), scan.field_sizes[rows].tolist()
        yield list(zip(samples, names, offsets, sizes, strict=True))
