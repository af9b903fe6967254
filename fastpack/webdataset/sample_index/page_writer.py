"""Write the tables and indexes of `index.sqlite` page by page from sorted rows; see the package's page.

The rows are int64 matrices, possibly memory-mapped, in rowid order.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from fastpack import kernels
from fastpack.errors import JobError
from fastpack.io import AtomicFile, PathLike, drop_pages
from fastpack.kernels.codecs.btree_layout import INDEX_LEAF, TABLE_LEAF, TEXT
from fastpack.webdataset.sample_index.sqlite_pages import PageFile, SchemaRow, Tree

_BATCH_ROWS = 65_536
_MAX_LISTED, _MAX_LISTED_SHARDS = 10_000, 5  # repeated keys, and shards of each, that an error has
_MAX_NAMED = 20  # repeated keys that its message names

TAR_FILE_ID, SAMPLE_INDEX, OFFSET, SIZE, NAME = range(5)  # columns of rows

# The same SQL as Energon's, apart from white space.
SAMPLES_SQL = (
    "CREATE TABLE samples (tar_file_id INTEGER NOT NULL, sample_key TEXT NOT NULL UNIQUE, "
    "sample_index INTEGER NOT NULL, byte_offset INTEGER, byte_size INTEGER)"
)
PARTS_SQL = (
    "CREATE TABLE sample_parts (tar_file_id INTEGER, sample_index INTEGER, part_name TEXT, "
    "content_byte_offset INTEGER, content_byte_size INTEGER)"
)
BY_TAR_SQL = "CREATE INDEX idx_samples_by_tar_and_idx ON samples(tar_file_id, sample_index)"
PARTS_SEQ_SQL = "CREATE INDEX idx_sample_parts_seq ON sample_parts(tar_file_id, sample_index, content_byte_offset)"
PARTS_FULL_SQL = (
    "CREATE INDEX idx_sample_parts_full ON sample_parts("
    "tar_file_id, sample_index, part_name, content_byte_offset, content_byte_size)"
)

Column: TypeAlias = npt.NDArray[np.int64]


class DuplicateKeys(JobError):
    """Sample keys occur more than once, so that samples cannot be loaded by key.

    Parameters
    ----------
    path
        The index.
    keys
        Up to 10,000 keys, each with its shards (names, or tar_file_ids where the names are unknown).
    total
        The number of keys that occur more than once.
    """

    def __init__(self, path: PathLike, keys: Sequence[tuple[str, Sequence[int | str]]], total: int) -> None:
        self.path, self.keys, self.total = os.fspath(path), keys, total
        named = "; ".join(f"{key!r} in {', '.join(map(str, shards))}" for key, shards in keys[:_MAX_NAMED])
        more = f"; and {total - _MAX_NAMED} more" if total > _MAX_NAMED else ""
        many = "1 sample key occurs" if total == 1 else f"{total} sample keys occur"
        super().__init__(f"{many} more than once: {named}{more}")

    def __reduce__(self) -> tuple[type[DuplicateKeys], tuple[str, Sequence[tuple[str, Sequence[int | str]]], int]]:
        return type(self), (self.path, self.keys, self.total)


@dataclass(eq=False, slots=True)
class IndexRows:
    """The rows of the two tables. Keys and names are UTF-8 bytes, concatenated.

    samples: int64[n, 4], tar_file_id, sample_index, byte_offset and byte_size, ascending by the first two columns. Key
    i is keys[key_bounds[i]:key_bounds[i + 1]]. fields: int64[m, 5], tar_file_id, sample_index, content_byte_offset,
    content_byte_size and the number of the field's name, ascending by the first three columns. Name i is
    names[name_bounds[i]:name_bounds[i + 1]].
    """

    samples: Column
    keys: npt.NDArray[np.uint8]
    key_bounds: Column
    fields: Column
    names: npt.NDArray[np.uint8]
    name_bounds: Column


class _Tree(NamedTuple):
    """A table or an index: its name, its table, its SQL, its columns, and the order of its rows."""

    name: str
    table: str
    sql: str | None
    columns: tuple[int, ...]
    order: Literal["rowid", "key", "name"] = "rowid"


_TREES = (
    _Tree("samples", "samples", SAMPLES_SQL, (TAR_FILE_ID, TEXT, SAMPLE_INDEX, OFFSET, SIZE)),
    _Tree("sqlite_autoindex_samples_1", "samples", None, (TEXT,), "key"),
    _Tree("idx_samples_by_tar_and_idx", "samples", BY_TAR_SQL, (TAR_FILE_ID, SAMPLE_INDEX)),
    _Tree("sample_parts", "sample_parts", PARTS_SQL, (TAR_FILE_ID, SAMPLE_INDEX, TEXT, OFFSET, SIZE)),
    _Tree("idx_sample_parts_seq", "sample_parts", PARTS_SEQ_SQL, (TAR_FILE_ID, SAMPLE_INDEX, OFFSET)),
    _Tree(
        "idx_sample_parts_full",
        "sample_parts",
        PARTS_FULL_SQL,
        (TAR_FILE_ID, SAMPLE_INDEX, TEXT, OFFSET, SIZE),
        "name",
    ),
)


def write_index_pages(file: AtomicFile, rows: IndexRows | None) -> None:
    """Write the database into an empty file, with some megabytes of memory and at most 48 bytes per key.

    rows: None for a database without tables. Raises ValueError for rows out of order, and DuplicateKeys; the file is
    then incomplete.
    """
    if rows is None:
        PageFile(file).finish([])
        return
    _check_order(rows.samples, 2)
    _check_order(rows.fields, 3)
    by_key = _order_of_keys(file.path, rows)
    pages, schema = PageFile(file), []
    for tree in _TREES:
        root = _write_tree(pages, tree, rows, by_key)
        schema.append(SchemaRow("table" if tree.name == tree.table else "index", tree.name, tree.table, root, tree.sql))
    pages.finish(schema)


def _check_order(table: Column, n_columns: int) -> None:
    for first in range(0, len(table), _BATCH_ROWS):
        begin = max(first - 1, 0)
        piece = table[begin : first + _BATCH_ROWS]
        wrong = kernels.first_unsorted(piece, n_columns)
        if wrong < len(piece):
            found, before = piece[wrong].tolist(), piece[wrong - 1].tolist()
            raise ValueError(f"row {begin + wrong}, {found}, does not follow {before}")
        _release(table, begin, begin + len(piece))


def _write_tree(pages: PageFile, tree: _Tree, rows: IndexRows, by_key: Column) -> int:
    writer = Tree(pages, TABLE_LEAF if tree.name == tree.table else INDEX_LEAF)
    of_samples = tree.table == "samples"
    table = rows.samples if of_samples else rows.fields
    names = (rows.key_bounds, rows.keys) if of_samples else (rows.name_bounds, rows.names)
    bounds, texts = names
    orders = {"rowid": _in_order(len(table)), "key": _batches(by_key), "name": _by_name(rows)}
    for order in orders[tree.order]:
        writer.add(table, order, tree.columns, order if of_samples else table[order, NAME], bounds, texts)
        if tree.order != "key":
            first, stop = int(order.min()), int(order.max()) + 1
            _release(table, first, stop)
            if of_samples:
                _release(texts, int(bounds[first]), int(bounds[stop]))
    _release(bounds, 0, len(bounds))
    _release(texts, 0, len(texts))
    return writer.finish()


def _release(column: npt.NDArray[Any], first: int, stop: int) -> None:
    """Release the memory of these rows, if the column is memory-mapped."""
    mapped = column
    while isinstance(mapped.base, np.ndarray):
        mapped = mapped.base
    drop_pages(mapped, first * column.strides[0], stop * column.strides[0])


def _in_order(n_rows: int) -> Iterator[Column]:
    for first in range(0, n_rows, _BATCH_ROWS):
        yield np.arange(first, min(first + _BATCH_ROWS, n_rows))


def _batches(order: Column) -> Iterator[Column]:
    for first in range(0, len(order), _BATCH_ROWS):
        yield order[first : first + _BATCH_ROWS]


def _by_name(rows: IndexRows) -> Iterator[Column]:
    """Yield row numbers of fields, those of each sample ordered by name."""
    first, capacity = 0, _BATCH_ROWS
    while first < len(rows.fields):
        order, work = np.empty(capacity, np.int64), np.empty(5 * capacity + 2, np.int64)
        n = kernels.sort_within(rows.fields, first, rows.names, rows.name_bounds, work, order)
        if n:
            yield order[:n]
        else:  # a sample with more fields
            capacity *= 2
        first += n


def _order_of_keys(path: str, rows: IndexRows) -> Column:
    """Return the row numbers of samples ordered by key. Raises DuplicateKeys."""
    n = len(rows.samples)
    order, work = np.empty(n, np.int64), np.empty(5 * n + 2, np.int64)  # not touched if the keys are already in order
    if kernels.sort_texts(rows.keys, rows.key_bounds, work, order):
        raise _duplicates(path, rows, order)
    _release(rows.keys, 0, len(rows.keys))
    return order


def _duplicates(path: str, rows: IndexRows, order: Column) -> DuplicateKeys:
    """Collect the keys that occur more than once, in order."""
    found: list[tuple[str, list[int]]] = []
    total = 0

    def key(row: int) -> bytes:
        return rows.keys[rows.key_bounds[row] : rows.key_bounds[row + 1]].tobytes()

    for text, same in groupby(order.tolist(), key):
        samples = list(same)
        total += len(samples) > 1
        if len(samples) > 1 and total <= _MAX_LISTED:
            ids = dict.fromkeys(rows.samples[samples, TAR_FILE_ID].tolist())
            found.append((text.decode(), list(ids)[:_MAX_LISTED_SHARDS]))
    return DuplicateKeys(path, found, total)
