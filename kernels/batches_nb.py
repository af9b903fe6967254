"""The `batches` kernels in Numba."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numba import carray

from fastpack.kernels.jit import jit, pointer

# Tokens tested for EOS at once: 128 keeps the test in registers and the loop after a hit short. LLVM unrolls blocks of
# 64 to scalar code (540 instead of 1,240 to 2,015 Mtok/s).
BLOCK = 128


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
def _has(tokens, eos):
    hit = tokens.dtype.type(0)
    for i in range(len(tokens)):
        hit |= tokens.dtype.type(tokens[i] == eos)
    return hit != 0


@jit
def _fill(out, value):
    for i in range(len(out)):
        out[i] = value


@jit
def _mark(tokens, eos, labels, doc_ids):
    """Write the doc_ids of a row, and -100 over the labels after an EOS."""
    document = 0
    n = len(doc_ids)
    for start in range(0, n, BLOCK):
        stop = min(start + BLOCK, n)
        if _has(tokens[start:stop], eos):
            for i in range(start, stop):
                doc_ids[i] = document
                if tokens[i] == eos:
                    labels[i] = -100
                    document += 1
        else:
            _fill(doc_ids[start:stop], document)


@jit
def _ramp(out, first):
    for i in range(len(out)):
        out[i] = first + i


@jit
def _mark_and_place(tokens, eos, labels, doc_ids, position_ids):
    """As `_mark`, and write the position_ids of the row."""
    document, opened = 0, 0
    n = len(doc_ids)
    for start in range(0, n, BLOCK):
        stop = min(start + BLOCK, n)
        written = start
        if _has(tokens[start:stop], eos):
            for i in range(start, stop):
                if tokens[i] == eos:
                    _fill(doc_ids[written : i + 1], document)
                    _ramp(position_ids[written : i + 1], written - opened)
                    labels[i] = -100
                    document += 1
                    opened = written = i + 1
        _fill(doc_ids[written:stop], document)
        _ramp(position_ids[written:stop], written - opened)


@jit
def _row(out, number):
    """Return a row; ValueError for a number outside `out`."""
    if number < 0 or number >= len(out):
        raise ValueError("a row outside the outputs")
    return out[number]


@jit
def _fill_rows(addresses, rows, like, eos, input_ids, labels, doc_ids, position_ids):
    """Write each window into its row; outputs that are None are known at compile time, and left out of the loop."""
    if len(addresses) != len(rows):
        raise ValueError("addresses and rows must have one length")
    length = input_ids.shape[1]
    narrow = like.dtype.type(eos)
    present = np.int64(narrow) == eos
    misfit = np.int32(0)
    for k in range(len(addresses)):
        row = rows[k]
        if row < 0 or row >= len(input_ids):
            raise ValueError("a row outside the outputs")
        tokens = carray(pointer(addresses[k]), length + int(labels is not None), like.dtype)
        misfit |= _widen(tokens[:length], input_ids[row])
        if labels is not None:
            misfit |= _widen(tokens[1:], labels[row])
        if position_ids is not None:
            if present:
                _mark_and_place(tokens[:length], narrow, labels[row], doc_ids[row], position_ids[row])
            else:
                _fill(doc_ids[row], 0)
                _ramp(position_ids[row], 0)
        elif doc_ids is not None:
            if present:
                _mark(tokens[:length], narrow, labels[row], doc_ids[row])
            else:
                _fill(doc_ids[row], 0)
    return int(misfit != 0)


@jit
def _check_shapes(input_ids, labels, doc_ids):
    if labels.shape != input_ids.shape or doc_ids.shape != input_ids.shape:
        raise ValueError("outputs must have one shape")


@jit
def fill_packed(addresses, rows, like, eos, input_ids, labels, doc_ids):
    """Write input_ids, labels (-100 after EOS) and doc_ids of windows of length + 1 tokens.

    See `fastpack.kernels.batches_np.fill_packed`.
    """
    _check_shapes(input_ids, labels, doc_ids)
    return _fill_rows(addresses, rows, like, eos, input_ids, labels, doc_ids, None)


@jit
def fill_documents(addresses, rows, like, eos, input_ids, labels, doc_ids, position_ids):
    """Write input_ids, labels (-100 after EOS), doc_ids and position_ids of windows of length + 1 tokens.

    See `fastpack.kernels.batches_np.fill_documents`.
    """
    _check_shapes(input_ids, labels, doc_ids)
    _check_shapes(input_ids, labels, position_ids)
    return _fill_rows(addresses, rows, like, eos, input_ids, labels, doc_ids, position_ids)


@jit
def fill_plain(addresses, rows, like, input_ids, labels):
    """Write input_ids and labels of windows of length + 1 tokens, without document boundaries.

    See `fastpack.kernels.batches_np.fill_plain`.
    """
    _check_shapes(input_ids, labels, labels)
    return _fill_rows(addresses, rows, like, 0, input_ids, labels, None, None)


@jit
def fill_tokens(addresses, rows, like, out):
    """Write windows of `length` tokens into the rows of `out`, [n_rows, length], int64 or int32.

    See `fastpack.kernels.batches_np.fill_tokens`.
    """
    return _fill_rows(addresses, rows, like, 0, out, None, None, None)


def compile_all(token_dtypes: Sequence[str], out_dtypes: Sequence[str]) -> None:
    """Compile for these dtypes of tokens and outputs."""
    for dtype in token_dtypes:
        tokens = np.zeros(2, dtype)
        addresses, rows = np.array([tokens.ctypes.data], np.uint64), np.zeros(1, np.int64)
        for out_dtype in out_dtypes:
            out = np.empty((1, 1), out_dtype)
            fill_packed(addresses, rows, tokens[:0], 0, out, out.copy(), out.copy())
            fill_documents(addresses, rows, tokens[:0], 0, out, out.copy(), out.copy(), out.copy())
            fill_plain(addresses, rows, tokens[:0], out, out.copy())
            fill_tokens(addresses, rows, tokens[:0], out)
