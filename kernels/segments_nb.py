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
def _fill(addresses, rows, columns, lengths, sizes, numbers, padding, like, input_ids, labels, doc_ids, position_ids):
    """Write each segment into its row; outputs that are None are known at compile time, and left out of the loop."""
    n = len(addresses)
    if len(rows) != n or len(columns) != n or len(lengths) != n or len(sizes) != n or len(numbers) != n:
        raise ValueError("addresses, rows, columns, lengths, sizes and numbers must have one length")
    n_rows, width = input_ids.shape
    filler = input_ids.dtype.type(padding)
    misfit = np.int32(0)
    for k in range(n):
        row, start, length, size = rows[k], columns[k], lengths[k], sizes[k]
        if not (0 <= row < n_rows and 0 <= start <= width and 0 <= length <= size <= width - start):
            raise ValueError("a segment outside the outputs")
        if addresses[k] == 0:
            length = 0
        end, stop = start + length, start + size
        if end < stop:
            misfit |= np.int32(np.int64(filler) != padding)
            _set(input_ids[row, end:stop], filler)
        tokens = carray(pointer(addresses[k]), length, like.dtype)
        misfit |= _widen(tokens, input_ids[row, start:end])
        if labels is not None:
            last = max(end - 1, start)
            _widen(tokens[1:], labels[row, start:last])
            _set(labels[row, last:stop], -100)
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
    return _fill(addresses, rows, columns, lengths, lengths, rows, 0, like, out, None, None, None)


@jit
def fill_segments(
    addresses, rows, columns, lengths, sizes, numbers, padding, like, input_ids, labels, doc_ids, position_ids
):
    """Write segments into the rows of up to four outputs, [n_rows, length], all int64 or all int32.

    See `fastpack.kernels.segments_np.fill_segments`.
    """
    _check_shapes(input_ids, labels)
    _check_shapes(input_ids, doc_ids)
    _check_shapes(input_ids, position_ids)
    outputs = input_ids, labels, doc_ids, position_ids
    return _fill(addresses, rows, columns, lengths, sizes, numbers, padding, like, *outputs)


@jit
def _upper_bound(values, value):
    """Return the number of leading values that are at most `value`."""
    low, high = 0, len(values)
    while low < high:
        middle = (low + high) // 2
        if values[middle] <= value:
            low = middle + 1
        else:
            high = middle
    return low


@jit
def _place(placed, n, first, row, column, length, size, number):
    placed[0, n], placed[1, n], placed[2, n], placed[3, n] = first, row, column, length
    placed[4, n], placed[5, n] = size, number


@jit
def place_segments(row, document, start, end, passes, document_starts, document_ends, n_rows, width, multiple, placed):
    """Place segments of documents in rows, one after another, and padding after the last one of a row.

    See `fastpack.kernels.segments_np.place_segments`.
    """
    k_segments = len(row)
    if placed.shape[0] != 6 or placed.shape[1] < k_segments + n_rows or not 1 <= multiple <= width:
        raise ValueError("placed must be int64 [6, segments + rows], and multiple 1 to width")
    if len(document) != k_segments or len(start) != k_segments or len(end) != k_segments or passes.shape[1] != 3:
        raise ValueError("row, document, start and end must have one length")
    n_entries, ends = min(len(document_starts), len(document_ends)), passes[:, 0]
    n, k, current, used, number = 0, 0, 0, 0, 0
    while current < n_rows:
        if k < k_segments and row[k] == current:
            i = _upper_bound(ends, document[k])
            if i == len(ends) or document[k] < 0:
                return -1 - k
            entry = document[k] + passes[i, 1]
            if entry < 0 or entry >= n_entries:
                return -1 - k
            length = end[k] - start[k]
            if start[k] < 0 or end[k] < start[k] or end[k] > document_ends[entry] - document_starts[entry]:
                return -1 - k
            if length > width - used:
                return -1 - k
            size = (length + multiple - 1) // multiple * multiple
            if size > width - used:
                return -1 - k
            _place(placed, n, passes[i, 2] + document_starts[entry] + start[k], current, used, length, size, number)
            n, k, used, number = n + 1, k + 1, used + size, number + 1
            continue
        if k < k_segments and row[k] < current:
            return -1 - k
        if used < width:
            _place(placed, n, -1, current, used, 0, width - used, number)
            n += 1
        current, used, number = current + 1, 0, 0
    return n if k == k_segments else -1 - k


@jit
def locate_segments(first, lengths, run_ends, run_begins, run_starts, run_arrays, bases, token_size, addresses):
    """Write the address of each segment: lengths[k] tokens from token first[k] on. The address of token -1 is 0.

    See `fastpack.kernels.segments_np.locate_segments`.
    """
    if len(lengths) != len(first) or len(addresses) != len(first):
        raise ValueError("first, lengths and addresses must have one length")
    n_runs = len(run_ends)
    if len(run_begins) != n_runs or len(run_starts) != n_runs or len(run_arrays) != n_runs:
        raise ValueError("the arrays of runs must have one length")
    for k in range(len(first)):
        token = first[k]
        if token == -1:
            addresses[k] = np.uint64(0)
            continue
        run = _upper_bound(run_ends, token)
        if token < 0 or lengths[k] < 0 or run == n_runs or lengths[k] > run_ends[run] - token:
            return k
        array = run_arrays[run]
        if token < run_begins[run] or array < 0 or array >= len(bases) or bases[array] == 0:
            return k
        addresses[k] = bases[array] + np.uint64(run_starts[run] + (token - run_begins[run]) * token_size)
    return len(first)


def compile_all(token_dtypes: Sequence[str], out_dtypes: Sequence[str]) -> None:
    """Compile for these dtypes of tokens and outputs."""
    addresses, none = np.zeros(0, np.uint64), np.zeros(0, np.int64)
    place_segments(none, none, none, none, np.zeros((0, 3), np.int64), none, none, 0, 1, 1, np.zeros((6, 0), np.int64))
    locate_segments(none, none, none, none, none, none, addresses, 2, addresses)
    place = addresses, none, none, none
    for dtype in token_dtypes:
        like = np.empty(0, dtype)
        for out_dtype in out_dtypes:
            out = np.empty((1, 1), out_dtype)
            copy_segments(*place, like, out)
            for others in ((out, out, None), (out, out, out)):
                fill_segments(*place, none, none, 0, like, out, *others)
