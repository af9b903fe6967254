"""Rows filled from segments of documents: the specification of the `segments` kernels, in NumPy.

A segment is given by the memory address of its first token, its length in tokens, and the row and column of the outputs
where it starts. All segments of a call have the dtype of `like`, an array of that dtype (usually empty); a batch from
files of several dtypes takes one call per dtype. Segments may be in any order. What no segment covers is not written.

Addresses must be aligned and inside mapped memory. That is the caller's responsibility; kernels cannot check it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fastpack.kernels.batches_np import Addresses, _misfit, window

Numbers = npt.NDArray[np.int64]
Output = npt.NDArray[Any]


def copy_segments(
    addresses: Addresses, rows: Numbers, columns: Numbers, lengths: Numbers, like: npt.NDArray[Any], out: Output
) -> int:
    """Copy segments: out[rows[k], columns[k] : columns[k] + lengths[k]] = the tokens at addresses[k].

    addresses: uint64 [k]. rows, columns, lengths: int64 [k]. like: uint8, uint16, uint32, int8, int16, int32 or int64.
    out: int64 or int32 [n_rows, length].

    Returns 0, or 1 if `out` is int32 and a token does not fit (`out` is then undefined). Raises ValueError for a
    segment outside `out`; earlier segments may then be copied.
    """
    return fill_segments(addresses, rows, columns, lengths, rows, 0, like, out, None, None, None)


def fill_segments(
    addresses: Addresses,
    rows: Numbers,
    columns: Numbers,
    lengths: Numbers,
    numbers: Numbers,
    padding: int,
    like: npt.NDArray[Any],
    input_ids: Output,
    labels: Output | None,
    doc_ids: Output | None,
    position_ids: Output | None,
) -> int:
    """Write segments into the rows of up to four outputs, [n_rows, length], all int64 or all int32.

    A segment whose address is 0 is padding: its tokens are `padding`, its labels -100.

    labels: the next token of the segment, -100 for its last one. doc_ids: numbers[k], int64 [k]. position_ids: from 0
    in every segment. An output that is None is not written. Otherwise as `copy_segments`.
    """
    if any(array is not None and array.shape != input_ids.shape for array in (labels, doc_ids, position_ids)):
        raise ValueError("outputs must have one shape")
    if any(len(array) != len(addresses) for array in (rows, columns, lengths, numbers)):
        raise ValueError("addresses, rows, columns, lengths and numbers must have one length")
    overflow, places = 0, _places(rows, columns, lengths, input_ids)
    for address, number, (row, at) in zip(addresses.tolist(), numbers.tolist(), places, strict=True):
        n_tokens = at.stop - at.start
        tokens = window(address, n_tokens, like) if address else np.full(n_tokens, padding)
        overflow |= _misfit(tokens, input_ids)
        input_ids[row, at] = tokens
        if labels is not None:
            labels[row, at] = -100
            if address and n_tokens:
                labels[row, at.start : at.stop - 1] = tokens[1:]
        if doc_ids is not None:
            doc_ids[row, at] = number
        if position_ids is not None:
            position_ids[row, at] = np.arange(n_tokens)
    return overflow


def _places(rows: Numbers, columns: Numbers, lengths: Numbers, out: Output) -> list[tuple[int, slice]]:
    """Return the row and the columns of each segment; ValueError for one outside `out`."""
    n_rows, width = out.shape
    places = []
    for row, start, length in zip(rows.tolist(), columns.tolist(), lengths.tolist(), strict=True):
        if not (0 <= row < n_rows and 0 <= start <= start + length <= width):
            raise ValueError("a segment outside the outputs")
        places.append((row, slice(start, start + length)))
    return places
