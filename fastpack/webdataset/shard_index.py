"""Scan the shards of a WebDataset: consecutive tar members `key.field` with the same key are a sample.

Next to each shard is its `.tar.idx`, uint64 [n + 1]: the offset of each sample, and the end of the last member.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fastpack.errors import FastpackError, FormatError
from fastpack.io import PathLike, as_path
from fastpack.io.threads import in_order
from fastpack.webdataset.tar_walk import TarWalk

MAX_MEMBERS = 10_000_000  # need 1 GB of memory; usual shards have some thousands

# Fields of every sample. A stored field with such a name would replace the sample's own key, shard or origin.
RESERVED_FIELDS = frozenset({"__key__", "__shard__", "__restore_key__", "__sources__", "__subflavors__"})
_RESERVED = frozenset(map(str.encode, RESERVED_FIELDS))


@dataclass(eq=False, slots=True)
class ShardScan:
    """The samples and stored fields of one shard, in archive order; keys and names are UTF-8 bytes.

    sample_offsets: int64[n_samples + 1], the offset of each sample's first header, and the end of the last member of
    any kind. field_samples, field_offsets, field_sizes: int64[n_fields], the sample of each field, counted from 0, and
    the offset and size of its content in bytes. sparse_fields: int64[k], the fields that are sparse files: their size
    includes holes, which the tar does not store, and their content at the offset is packed. n_members: of any kind.
    """

    path: str
    sample_keys: list[bytes]
    sample_offsets: npt.NDArray[np.int64]
    field_samples: npt.NDArray[np.int64]
    field_names: list[bytes]
    field_offsets: npt.NDArray[np.int64]
    field_sizes: npt.NDArray[np.int64]
    sparse_fields: npt.NDArray[np.int64]
    n_members: int

    @property
    def n_samples(self) -> int:
        return len(self.sample_keys)

    @property
    def n_fields(self) -> int:
        return len(self.field_names)


def scan_shard(path: PathLike, *, max_members: int = MAX_MEMBERS) -> ShardScan:
    """Scan a tar for samples; little more than the headers is read, and the GIL is released.

    Raises FileNotFoundError; JobError if the path is not a regular file; FormatError for a damaged or compressed tar, a
    tar without samples or with more than `max_members` members, names that are not UTF-8, and stored fields with
    reserved names (`RESERVED_FIELDS`).
    """
    path = os.fspath(path)
    if path.endswith(".tgz"):
        expected = "a .tar: compressed archives have no random access; decompress it first"
        raise FormatError(path, 0, "a .tgz", expected)
    walk = TarWalk(path, max_members)
    keys: list[bytes] = []
    names: list[bytes] = []
    starts: list[npt.NDArray[np.int64]] = []
    columns: tuple[list[npt.NDArray[np.int64]], ...] = ([], [], [], [])
    for chunk in walk.chunks():
        _check_names(path, chunk.keys, chunk.starts)
        first_rows = chunk.fields[_first_rows(chunk.fields[:, 1], len(chunk.field_names))]
        _check_names(path, chunk.field_names, first_rows[:, 2])
        sparse = len(names) + np.flatnonzero(chunk.fields[:, 4])
        keys += chunk.keys
        _check_reserved(path, keys, chunk.field_names, first_rows)
        names += map(chunk.field_names.__getitem__, chunk.fields[:, 1].tolist())
        starts.append(chunk.starts)
        for column, values in zip(columns, (chunk.fields[:, 0], *chunk.fields[:, 2:4].T, sparse), strict=True):
            column.append(np.ascontiguousarray(values))
    if not keys:
        found = f"{walk.n_members} members, none of which belongs to a sample"
        raise FormatError(path, walk.end, found, "at least one file named key.field")
    offsets = np.concatenate([*starts, np.array([walk.end])])
    samples, content_offsets, sizes, sparse_fields = map(np.concatenate, columns)
    return ShardScan(path, keys, offsets, samples, names, content_offsets, sizes, sparse_fields, walk.n_members)


def scan_shards(paths: Iterable[PathLike], *, threads: int = 1) -> Iterator[ShardScan | FastpackError | OSError]:
    """Yield for each path, in order, its scan or the error of `scan_shard`; `threads` shards are scanned at a time.

    At most 2 * threads scans are pending. Closing the iterator cancels those that have not started.
    """
    if threads < 1:
        raise ValueError(f"{threads} threads, expected at least one")

    def scan(path: PathLike) -> ShardScan | FastpackError | OSError:
        try:
            return scan_shard(path)
        except (FastpackError, OSError) as error:
            return error

    yield from in_order(scan, paths, threads)


def shard_index_path(shard_path: PathLike) -> str:
    """Return the path of a shard's index: `x.tar.idx` for `x.tar` and `x.tgz`."""
    return os.fspath(as_path(shard_path).with_suffix(".tar.idx"))


def _first_rows(numbers: npt.NDArray[np.int64], n_names: int) -> npt.NDArray[np.int64]:
    """Return the first row with each of the numbers 0 to n_names - 1."""
    first = np.empty(n_names, np.int64)
    first[numbers[::-1]] = np.arange(len(numbers))[::-1]
    return first


def _check_names(path: str, names: list[bytes], offsets: npt.NDArray[np.int64]) -> None:
    if b"".join(names).isascii():
        return
    for name, offset in zip(names, offsets.tolist(), strict=True):
        try:
            name.decode()
        except UnicodeDecodeError:
            raise FormatError(path, offset, f"the name {name!r}", "a name in UTF-8") from None


def _check_reserved(path: str, keys: list[bytes], names: list[bytes], rows: npt.NDArray[np.int64]) -> None:
    """Raise FormatError for a reserved name; `rows` are the first members with each name."""
    for name, (sample, _, offset, *_) in zip(names, rows.tolist(), strict=True):
        if name in _RESERVED:
            raise reserved_field(path, offset, keys[sample].decode(), name.decode())


def reserved_field(path: PathLike, offset: int, key: str, name: str) -> FormatError:
    """Return the error for a stored field with a reserved name."""
    found = f"the field {name!r} of sample {key!r}, a name that is reserved"
    return FormatError(path, offset, found, f"another name: rename {key}.{name} in the tar")
