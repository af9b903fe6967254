"""Indexes of packed files as stored, and the defect of the index that Modalities' merge writes since June 2024.

That index is 12 bytes too low for each preceding file. Only the offsets are wrong: the documents of such a file are
contiguous, in the order of the index, and their lengths are right, so their sums give the offsets.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

import numpy as np
import numpy.typing as npt

from fastpack import kernels
from fastpack.errors import FormatError
from fastpack.io import ByteArray, PathLike
from fastpack.kernels.codecs.pickled_index_errors import IndexSyntaxError
from fastpack.tokens.pbin.layout import HEADER_BYTES, INDEX_BASES, Layout
from fastpack.tokens.pbin.packed_tokens import PackedTokens
from fastpack.tokens.pbin.packed_writer import PackedWriter, packed_size
from fastpack.tokens.token_file import Rows, TokenFile, TokenFormat


def stored_base(file: TokenFile, *, headers_only: bool) -> int:
    """Return what the offsets of the index of a packed file count from, in bytes.

    Raises ValueError for a file that Modalities 0.5 cannot read. `headers_only`: do not read the index, and return 0.
    """
    assert isinstance(file, PackedTokens)
    generation = file.file.layout.generation if headers_only else file.file.generation
    if generation < 4:
        found = f"{file.path} is of generation {generation}"
        raise ValueError(f"{found}, which Modalities 0.5 cannot read: compat=None can")
    return 0 if headers_only else INDEX_BASES[generation][0]


def _pickle_index(write: Callable[[memoryview], object], blocks: Iterable[Rows]) -> int:
    """Write the pickle of rows with negative offsets, all at once; return its size in bytes."""
    rows = np.concatenate([np.empty((0, 2), np.int64), *blocks])
    data = pickle.dumps(list(map(tuple, rows.tolist())), protocol=4)
    write(memoryview(data))
    return len(data)


class _LegacyWriter(PackedWriter):
    """A PackedWriter of negative offsets, as Modalities' are after a file with fewer than 12 bytes of tokens."""

    @staticmethod
    def _write_index(write: Callable[[memoryview], object], blocks: Iterable[Rows]) -> int:
        return _pickle_index(write, blocks)


def legacy_format(row: TokenFormat) -> TokenFormat:
    """Return the format of packed files, `row`, with negative offsets in the index."""
    return replace(
        row,
        create=lambda path, dtype, policy: _LegacyWriter(path, dtype.itemsize, if_exists=policy),
        predict_size=partial(packed_size, write_index=_pickle_index),
    )


def read_rows(file: ByteArray, path: PathLike, layout: Layout) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """Return the index rows int64 [n, 2] of a packed file as stored, maybe negative, and the bytes after the index.

    Raises FormatError for anything but a pickled list of integer pairs.
    """
    segment = file[layout.index_offset :]
    try:
        rows, n_bytes, _ = kernels.decode_index(segment)
    except IndexSyntaxError as error:
        raise FormatError(path, layout.index_offset + error.offset, error.found, error.expected) from None
    return rows, segment[n_bytes:]


def starts_in_order(rows: npt.NDArray[np.int64], data_length: int) -> npt.NDArray[np.int64] | None:
    """Return the starts of contiguous documents of these lengths, int64 [n]; None if they do not fill the data."""
    lengths = rows[:, 1]
    if len(rows) and (int(lengths.min()) < 0 or int(lengths.max()) > data_length):
        return None
    if float(lengths.sum(dtype=np.float64)) > 2.0**62:  # the sum could overflow
        return None
    ends = np.cumsum(lengths)
    return ends - lengths if int(ends[-1] if len(ends) else 0) == data_length else None


def is_tiled(rows: npt.NDArray[np.int64], data_length: int) -> bool:
    """Return whether the documents, in any order, fill the data without gaps and overlaps."""
    filled = rows[rows[:, 1] > 0]
    filled = filled[np.argsort(filled[:, 0], kind="stable")]
    right = starts_in_order(filled, data_length)
    return right is not None and bool((filled[:, 0] == right).all())


def merge_borders(rows: npt.NDArray[np.int64], data_length: int) -> int:
    """Return the number of borders between merged files at which offsets become too low; 0 without the defect.

    `rows` are relative to the start of the data.
    """
    right = starts_in_order(rows, data_length)
    if right is None or len(rows) < 2 or int(rows[0, 0]) not in (0, HEADER_BYTES):
        return 0
    missing = right - rows[:, 0]
    if missing.any() and not (missing % HEADER_BYTES).any() and not is_tiled(rows, data_length):
        return int(np.count_nonzero(np.diff(missing)))
    return 0
