"""Batches from windows of tokens: the specification of the `batches` kernels, in NumPy.

A window is given by the memory address of its first token, so that one call serves any number of shards. All windows
of a call have the dtype of `like`, an array of that dtype (usually empty). `rows` assigns a row of the outputs to each
window, so that shards of several dtypes are served by one call per dtype.

Addresses must be aligned and inside mapped memory. That is the caller's responsibility; kernels cannot check it.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt

Addresses = npt.NDArray[np.uint64]
Rows = npt.NDArray[np.int64]


def window(address: int, n_tokens: int, like: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a view of `n_tokens` tokens of like's dtype at `address`."""
    n_bytes = n_tokens * like.dtype.itemsize
    memory = (ctypes.c_uint8 * n_bytes).from_address(address)
    return np.frombuffer(memoryview(memory), like.dtype)


def check(addresses: Addresses, rows: Rows, *outputs: npt.NDArray[Any]) -> None:
    """Raise ValueError if a kernel would read or write beyond an array: different shapes, or a row outside."""
    if len(addresses) != len(rows):
        raise ValueError("addresses and rows must have one length")
    if any(array.shape != outputs[0].shape for array in outputs):
        raise ValueError("outputs must have one shape")
    if len(rows) and not 0 <= rows.min() <= rows.max() < len(outputs[0]):
        raise ValueError("a row outside the outputs")


def fill_packed(
    addresses: Addresses,
    rows: Rows,
    like: npt.NDArray[Any],
    eos: int,
    input_ids: npt.NDArray[Any],
    labels: npt.NDArray[Any],
    doc_ids: npt.NDArray[Any],
) -> int:
    """Write input_ids, labels (-100 after EOS) and doc_ids of windows of length + 1 tokens.

    addresses: uint64 [k]. rows: int64 [k]. like: uint8, uint16, uint32, int8, int16, int32 or int64. input_ids, labels,
    doc_ids: [n_rows, length], all int64 or all int32.

    Returns 0, or 1 if the outputs are int32 and a token does not fit (the outputs are then undefined). Raises
    ValueError for a row outside the outputs; earlier rows may then be filled.
    """
    check(addresses, rows, input_ids, labels, doc_ids)
    overflow = fill_plain(addresses, rows, like, input_ids, labels)
    for address, row in zip(addresses.tolist(), rows.tolist(), strict=True):
        ends = window(address, input_ids.shape[1], like) == eos
        labels[row, ends] = -100
        doc_ids[row, :1] = 0
        doc_ids[row, 1:] = np.cumsum(ends[:-1])
    return overflow


def fill_documents(
    addresses: Addresses,
    rows: Rows,
    like: npt.NDArray[Any],
    eos: int,
    input_ids: npt.NDArray[Any],
    labels: npt.NDArray[Any],
    doc_ids: npt.NDArray[Any],
    position_ids: npt.NDArray[Any],
) -> int:
    """Write input_ids, labels (-100 after EOS), doc_ids and position_ids of windows of length + 1 tokens.

    position_ids: the distance of a token from the first token of its document in the row. Otherwise as `fill_packed`.
    """
    check(addresses, rows, input_ids, position_ids)
    overflow = fill_packed(addresses, rows, like, eos, input_ids, labels, doc_ids)
    places = np.arange(input_ids.shape[1])
    for row in rows.tolist():
        opens = np.diff(doc_ids[row], prepend=-1) != 0
        position_ids[row] = places - np.maximum.accumulate(np.where(opens, places, 0))
    return overflow


def fill_plain(
    addresses: Addresses, rows: Rows, like: npt.NDArray[Any], input_ids: npt.NDArray[Any], labels: npt.NDArray[Any]
) -> int:
    """Write input_ids and labels of windows of length + 1 tokens, without document boundaries.

    Otherwise as `fill_packed`.
    """
    check(addresses, rows, input_ids, labels)
    length, overflow = input_ids.shape[1], 0
    for address, row in zip(addresses.tolist(), rows.tolist(), strict=True):
        tokens = window(address, length + 1, like)
        overflow |= _misfit(tokens[:-1], input_ids) | _misfit(tokens[1:], labels)
        input_ids[row] = tokens[:-1]
        labels[row] = tokens[1:]
    return overflow


def fill_tokens(addresses: Addresses, rows: Rows, like: npt.NDArray[Any], out: npt.NDArray[Any]) -> int:
    """Write windows of `length` tokens into the rows of `out`, [n_rows, length], int64 or int32.

    Otherwise as `fill_packed`.
    """
    check(addresses, rows, out)
    overflow = 0
    for address, row in zip(addresses.tolist(), rows.tolist(), strict=True):
        tokens = window(address, out.shape[1], like)
        overflow |= _misfit(tokens, out)
        out[row] = tokens
    return overflow


def _misfit(tokens: npt.NDArray[Any], out: npt.NDArray[Any]) -> int:
    return int(not np.array_equal(tokens.astype(out.dtype), tokens))
