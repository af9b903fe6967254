"""The `segments` kernels in Numba."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numba import carray

from fastpack.kernels.jit import jit, pointer


@jit
def _widen(tokens, out):
    """Copy into the output's type; the result is nonzero if a token does not fit."""
    if out.itemsize == 8 or tokens.itemsize < 4:  # known at compile time: the loop has no test
        for i in range(len(out)):
            out[i] = tokens[i]
        return 0
    misfit = np.int32(0)
    for i in range(len(out)):
        value = np.int32(tokens[i])
        out[i] = value
        misfit |= np.int32(np.int64(value) != np.int64(tokens[i]))
    return misfit


@jit
def _set(out, value):
    for i in range(len(out)):
        out[i] = value


@jit
def _ramp(out):
    for i in range(len(out)):
        out[i] = i


@jit
def _check_shapes(input_ids, other):
    if other is not None and other.shape != input_ids.shape:
        raise ValueError("outputs must have one shape")


@jit
def _fill(addresses, rows, columns, lengths, numbers, padding, like, input_ids, labels, doc_ids, position_ids):
    """Write each segment into its row; outputs that are None are known at compile time, and left out of the loop."""
    n = len(addresses)
    if len(rows) != n or len(columns) != n or len(lengths) != n or len(numbers) != n:
        raise ValueError("addresses, rows, columns, lengths and numbers must have one length")
    n_rows, width = input_ids.shape
    misfit = np.int32(0)
    for k in range(n):
        row, start, length = rows[k], columns[k], lengths[k]
        if row < 0 or row >= n_rows or start < 0 or length < 0 or start > width or length > width - start:
            raise ValueError("a segment outside the outputs")
        stop = start + length
        if addresses[k] == 0:
            filler = input_ids.dtype.type(padding)
            misfit |= np.int32(length > 0 and np.int64(filler) != padding)
            _set(input_ids[row, start:stop], filler)
            if labels is not None:
                _set(labels[row, start:stop], -100)
        else:
            tokens = carray(pointer(addresses[k]), length, like.dtype)
            misfit |= _widen(tokens, input_ids[row, start:stop])
            if labels is not None and length > 0:
                _widen(tokens[1:], labels[row, start : stop - 1])
                labels[row, stop - 1] = -100
        if doc_ids is not None:
            _set(doc_ids[row, start:stop], numbers[k])
        if position_ids is not None:
            _ramp(position_ids[row, start:stop])
    return int(misfit != 0)


@jit
def copy_segments(addresses, rows, columns, lengths, like, out):
    """Copy segments: out[rows[k], columns[k] : columns[k] + lengths[k]] = the tokens at addresses[k].

    See `fastpack.kernels.segments_np.copy_segments`.
    """
    return _fill(addresses, rows, columns, lengths, rows, 0, like, out, None, None, None)


@jit
def fill_segments(addresses, rows, columns, lengths, numbers, padding, like, input_ids, labels, doc_ids, position_ids):
    """Write segments into the rows of up to four outputs, [n_rows, length], all int64 or all int32.

    See `fastpack.kernels.segments_np.fill_segments`.
    """
    _check_shapes(input_ids, labels)
    _check_shapes(input_ids, doc_ids)
    _check_shapes(input_ids, position_ids)
    return _fill(addresses, rows, columns, lengths, numbers, padding, like, input_ids, labels, doc_ids, position_ids)


def compile_all(token_dtypes: Sequence[str], out_dtypes: Sequence[str]) -> None:
    """Compile for these dtypes of tokens and outputs."""
    place = (np.zeros(0, np.uint64), *(np.zeros(0, np.int64) for _ in range(3)))
    for dtype in token_dtypes:
        like = np.empty(0, dtype)
        for out_dtype in out_dtypes:
            out = np.empty((1, 1), out_dtype)
            copy_segments(*place, like, out)
            for others in ((out, out, None), (out, out, out)):
                fill_segments(*place, place[1], 0, like, out, *others)
