"""The `batches` kernels in Numba: what a training loop runs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numba import carray, types
from numba.extending import intrinsic

from fastpack.kernels.jit import jit

# Tokens looked at together for EOS: 128 keeps the test in registers and the walk after a hit short. Blocks of 64 are
# unrolled to scalar code by LLVM (540 against 1,240-2,015 Mtok/s).
BLOCK = 128


@intrinsic
def _pointer(context, address):  # noqa: ARG001
    """An integer address as a void pointer, which `carray` takes."""

    def codegen(_context, builder, _signature, args):
        return builder.inttoptr(args[0], _context.get_value_type(types.voidptr))

    return types.voidptr(types.uint64), codegen


@jit
def _widen(tokens, out):
    """Copy into a wider type; the result is nonzero when a token did not fit."""
    if out.itemsize == 8 or tokens.itemsize < 4:  # known when compiling: no test is left in the loop
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
    """doc_ids of a row, and -100 over the labels behind an EOS."""
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
    """As `_mark`, and the position_ids of the row."""
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
    """The row of that number; ValueError for one that `out` does not have."""
    if number < 0 or number >= len(out):
        raise ValueError("a row outside the outputs")
    return out[number]


@jit
def _check(addresses, rows, first, second):
    """Refuse what would have a loop read or write beyond an array."""
    if len(addresses) != len(rows):
        raise ValueError("addresses and rows must have one length")
    if first.shape != second.shape:
        raise ValueError("outputs must have one shape")


@jit
def fill_packed(addresses, rows, like, eos, input_ids, labels, doc_ids):
    _check(addresses, rows, input_ids, labels)
    _check(addresses, rows, input_ids, doc_ids)
    length = input_ids.shape[1]
    narrow = like.dtype.type(eos)
    present = np.int64(narrow) == eos
    misfit = np.int32(0)
    for k in range(len(addresses)):
        tokens = carray(_pointer(addresses[k]), length + 1, like.dtype)
        row = rows[k]
        misfit |= _widen(tokens[:length], _row(input_ids, row))
        misfit |= _widen(tokens[1:], labels[row])
        if present:
            _mark(tokens[:length], narrow, labels[row], doc_ids[row])
        else:
            _fill(doc_ids[row], 0)
    return int(misfit != 0)


@jit
def fill_documents(addresses, rows, like, eos, input_ids, labels, doc_ids, position_ids):
    _check(addresses, rows, input_ids, labels)
    _check(addresses, rows, doc_ids, position_ids)
    _check(addresses, rows, input_ids, doc_ids)
    length = input_ids.shape[1]
    narrow = like.dtype.type(eos)
    present = np.int64(narrow) == eos
    misfit = np.int32(0)
    for k in range(len(addresses)):
        tokens = carray(_pointer(addresses[k]), length + 1, like.dtype)
        row = rows[k]
        misfit |= _widen(tokens[:length], _row(input_ids, row))
        misfit |= _widen(tokens[1:], labels[row])
        if present:
            _mark_and_place(tokens[:length], narrow, labels[row], doc_ids[row], position_ids[row])
        else:
            _fill(doc_ids[row], 0)
            _ramp(position_ids[row], 0)
    return int(misfit != 0)


@jit
def fill_plain(addresses, rows, like, input_ids, labels):
    _check(addresses, rows, input_ids, labels)
    length = input_ids.shape[1]
    misfit = np.int32(0)
    for k in range(len(addresses)):
        tokens = carray(_pointer(addresses[k]), length + 1, like.dtype)
        row = rows[k]
        misfit |= _widen(tokens[:length], _row(input_ids, row))
        misfit |= _widen(tokens[1:], labels[row])
    return int(misfit != 0)


@jit
def fill_tokens(addresses, rows, like, out):
    _check(addresses, rows, out, out)
    misfit = np.int32(0)
    for k in range(len(addresses)):
        misfit |= _widen(carray(_pointer(addresses[k]), out.shape[1], like.dtype), _row(out, rows[k]))
    return int(misfit != 0)


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
