"""The `row_spans` kernels in Numba."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numba import carray

from fastpack.kernels.jit import jit, pointer

BLOCK = 128  # tokens tested for EOS at once, as in `batches_nb`


@jit
def _has(tokens, eos):
    hit = tokens.dtype.type(0)
    for i in range(len(tokens)):
        hit |= tokens.dtype.type(tokens[i] == eos)
    return hit != 0


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
def _ramp(out, first):
    for i in range(len(out)):
        out[i] = first + i


@jit
def _mask(tokens, eos, labels):
    """Write -100 over the labels after an EOS."""
    n = len(labels)
    for start in range(0, n, BLOCK):
        stop = min(start + BLOCK, n)
        if _has(tokens[start:stop], eos):
            for i in range(start, stop):
                if tokens[i] == eos:
                    labels[i] = -100


@jit
def document_ends(addresses, rows, n_tokens, like, eos, ends):
    """Write the ends (exclusive) of the documents in windows of `n_tokens` tokens, of the rows as one sequence.

    See `fastpack.kernels.row_spans_np.document_ends`.
    """
    if len(addresses) != len(rows):
        raise ValueError("addresses and rows must have one length")
    narrow = like.dtype.type(eos)
    present = np.int64(narrow) == eos
    found = 0
    for k in range(len(addresses)):
        tokens = carray(pointer(addresses[k]), n_tokens, like.dtype)
        base = rows[k] * n_tokens
        for start in range(0, n_tokens - 1, BLOCK):
            stop = min(start + BLOCK, n_tokens - 1)
            if present and _has(tokens[start:stop], narrow):
                for i in range(start, stop):
                    if tokens[i] == narrow:
                        if found < len(ends):
                            ends[found] = base + i + 1
                        found += 1
        if n_tokens > 0:
            if found < len(ends):
                ends[found] = base + n_tokens
            found += 1
    return found


@jit
def _check_shapes(input_ids, other):
    if other is not None and other.shape != input_ids.shape:
        raise ValueError("outputs must have one shape")


@jit
def fill_spans(
    addresses,
    rows,
    columns,
    lengths,
    numbers,
    firsts,
    like,
    eos,
    input_ids,
    labels,
    doc_ids,
    position_ids,
):
    """Write spans into the rows of up to four outputs, [n_rows, width], all int64 or all int32.

    See `fastpack.kernels.row_spans_np.fill_spans`. Outputs that are None are known at compile time.
    """
    _check_shapes(input_ids, labels)
    _check_shapes(input_ids, doc_ids)
    _check_shapes(input_ids, position_ids)
    n = len(addresses)
    if len(rows) != n or len(columns) != n or len(lengths) != n or len(numbers) != n or len(firsts) != n:
        raise ValueError("the arrays of spans must have one length")
    n_rows, width = input_ids.shape
    misfit = np.int32(0)
    for k in range(n):
        row, start, length = rows[k], columns[k], lengths[k]
        if row < 0 or row >= n_rows or start < 0 or length < 0 or start > width or length > width - start:
            raise ValueError("a span outside the outputs")
        stop = start + length
        if addresses[k] == 0:
            _set(input_ids[row, start:stop], 0)
            if labels is not None:
                _set(labels[row, start:stop], -100)
        elif length > 0:
            tokens = carray(pointer(addresses[k]), length + int(labels is not None), like.dtype)
            misfit |= _widen(tokens[:length], input_ids[row, start:stop])
            if labels is not None:
                misfit |= _widen(tokens[1:], labels[row, start:stop])
                if eos is not None:
                    narrow = like.dtype.type(eos)
                    if np.int64(narrow) == eos:
                        _mask(tokens[:length], narrow, labels[row, start:stop])
        if doc_ids is not None:
            _set(doc_ids[row, start:stop], numbers[k])
        if position_ids is not None:
            _ramp(position_ids[row, start:stop], firsts[k])
    return int(misfit != 0)


def compile_all(token_dtypes: Sequence[str], out_dtypes: Sequence[str]) -> None:
    """Compile for these dtypes of tokens and outputs, as a loader calls them."""
    none, numbers = np.zeros(0, np.uint64), np.zeros(0, np.int64)
    for dtype in token_dtypes:
        like = np.empty(0, dtype)
        document_ends(none, numbers, 1, like, 0, numbers)
        for out_dtype in out_dtypes:
            out = np.empty((1, 1), out_dtype)
            for eos, others in ((None, (out, None, None)), (0, (out, out, out))):
                fill_spans(none, numbers, numbers, numbers, numbers, numbers, like, eos, out, *others)
