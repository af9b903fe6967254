"""Rows filled from segments of documents: the specification of the `segments` kernels, in NumPy.

A segment is given by the memory address of its first token, its length in tokens, and the row and column of the outputs
where it starts. It may take more columns than it has tokens; the others are padding. All segments of a call have the
dtype of `like`, an array of that dtype (usually empty); a batch from files of several dtypes takes one call per dtype.
Segments may be in any order. What no segment covers is not written.

Addresses must be aligned and inside mapped memory. That is the caller's responsibility; kernels cannot check it.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fastpack.kernels.batches_np import Addresses, _misfit, window

Numbers = npt.NDArray[np.int64]
Output = npt.NDArray[Any]
_State: TypeAlias = tuple[int, int, int]  # a row, the tokens in it so far, and the segments


def copy_segments(
    addresses: Addresses, rows: Numbers, columns: Numbers, lengths: Numbers, like: npt.NDArray[Any], out: Output
) -> int:
    """Copy segments: out[rows[k], columns[k] : columns[k] + lengths[k]] = the tokens at addresses[k].

    addresses: uint64 [k]. rows, columns, lengths: int64 [k]. like: uint8, uint16, uint32, int8, int16, int32 or int64.
    out: int64 or int32 [n_rows, length].

    Returns 0, or 1 if `out` is int32 and a token does not fit (`out` is then undefined). Raises ValueError for a
    segment outside `out`; earlier segments may then be copied.
    """
    return fill_segments(addresses, rows, columns, lengths, lengths, rows, 0, like, out, None, None, None)


def fill_segments(
    addresses: Addresses,
    rows: Numbers,
    columns: Numbers,
    lengths: Numbers,
    sizes: Numbers,
    numbers: Numbers,
    padding: int,
    like: npt.NDArray[Any],
    input_ids: Output,
    labels: Output | None,
    doc_ids: Output | None,
    position_ids: Output | None,
) -> int:
    """Write segments into the rows of up to four outputs, [n_rows, length], all int64 or all int32.

    Segment k has lengths[k] tokens and takes sizes[k] columns, int64 [k]: after its tokens, input_ids are `padding` and
    labels -100. A segment whose address is 0 has no tokens.

    labels: the next token of the segment, -100 for its last one. doc_ids: numbers[k], int64 [k]. position_ids: from 0
    in every segment. An output that is None is not written. Otherwise as `copy_segments`.
    """
    if any(array is not None and array.shape != input_ids.shape for array in (labels, doc_ids, position_ids)):
        raise ValueError("outputs must have one shape")
    if any(len(array) != len(addresses) for array in (rows, columns, lengths, sizes, numbers)):
        raise ValueError("addresses, rows, columns, lengths, sizes and numbers must have one length")
    overflow, places = 0, _places(rows, columns, lengths, sizes, input_ids)
    for address, number, length, (row, at) in zip(
        addresses.tolist(), numbers.tolist(), lengths.tolist(), places, strict=True
    ):
        n, size = length if address else 0, at.stop - at.start
        tokens = np.full(size, padding)
        if n:
            tokens[:n] = window(address, n, like)
        overflow |= _misfit(tokens, input_ids)
        input_ids[row, at] = tokens
        if labels is not None:
            labels[row, at] = -100
            labels[row, at.start : at.start + max(n - 1, 0)] = tokens[1:n]
        if doc_ids is not None:
            doc_ids[row, at] = number
        if position_ids is not None:
            position_ids[row, at] = np.arange(size)
    return overflow


def place_segments(
    row: Numbers,
    document: Numbers,
    start: Numbers,
    end: Numbers,
    passes: Numbers,
    document_starts: Numbers,
    document_ends: Numbers,
    n_rows: int,
    width: int,
    multiple: int,
    placed: Numbers,
) -> int:
    """Place segments of documents in rows, one after another, and padding after the last one of a row.

    Each segment takes a multiple of `multiple` columns.

    row, document, start, end: int64 [k]; rows do not descend. passes: int64 [p, 3], for the documents before passes[i,
    0] that are not in an earlier pass: what to add to the number of a document to get its entry in document_starts and
    document_ends, and what to add to these to get the number of a token. placed: int64 [6, m], where m is at least k +
    n_rows: the first token (-1 for padding), row, column, length (0 for padding), columns, and number within the row.

    Returns the number of segments and paddings, or -1 - k if segment k is not within its document or its row.
    """
    if placed.shape[0] != 6 or placed.shape[1] < len(row) + n_rows or not 1 <= multiple <= width:
        raise ValueError("placed must be int64 [6, segments + rows], and multiple 1 to width")
    ends, n = passes[:, 0], 0
    before: _State = (-1, 0, 0)
    segments = zip(row.tolist(), document.tolist(), start.tolist(), end.tolist(), strict=True)
    for k, (number, item, first, stop) in enumerate(segments):
        if not max(0, before[0]) <= number < n_rows:
            return -1 - k
        n, before = _pad(n, before, number, width, placed)
        i = int(np.searchsorted(ends, item, side="right"))
        entry = item + int(passes[i, 1]) if i < len(passes) and item >= 0 else -1
        if not 0 <= entry < min(len(document_starts), len(document_ends)):
            return -1 - k
        begin, n_tokens = int(document_starts[entry]), int(document_ends[entry] - document_starts[entry])
        size = -(-(stop - first) // multiple) * multiple
        if not 0 <= first <= stop <= n_tokens or size > width - before[1]:
            return -1 - k
        placed[:, n] = int(passes[i, 2]) + begin + first, number, before[1], stop - first, size, before[2]
        n, before = n + 1, (number, before[1] + size, before[2] + 1)
    return _pad(n, before, n_rows, width, placed)[0]


def _pad(n: int, before: _State, row: int, width: int, placed: Numbers) -> tuple[int, _State]:
    """Write the padding of a row and of empty rows up to `row`; return the number of entries, and the state there."""
    number, used, n_segments = before
    while number < row:
        if number >= 0 and used < width:
            placed[:, n] = -1, number, used, 0, width - used, n_segments
            n += 1
        number, used, n_segments = number + 1, 0, 0
    return n, (number, used, n_segments)


def locate_segments(
    first: Numbers,
    lengths: Numbers,
    run_ends: Numbers,
    run_begins: Numbers,
    run_starts: Numbers,
    run_arrays: Numbers,
    bases: Addresses,
    token_size: int,
    addresses: Addresses,
) -> int:
    """Write the address of each segment: lengths[k] tokens from token first[k] on. The address of token -1 is 0.

    Tokens are numbered over runs: run r contains the tokens [run_begins[r], run_ends[r]), int64 [n], ascending; it
    starts at byte run_starts[r] of array run_arrays[r], whose address is bases[run_arrays[r]], or 0 if it is not known.

    Returns the number of leading segments whose addresses are written; the next one is not within a run, or its array
    has no address.
    """
    if not len(first) == len(lengths) == len(addresses):
        raise ValueError("first, lengths and addresses must have one length")
    if not len(run_ends) == len(run_begins) == len(run_starts) == len(run_arrays):
        raise ValueError("the arrays of runs must have one length")
    for k, (token, length) in enumerate(zip(first.tolist(), lengths.tolist(), strict=True)):
        if token == -1:
            addresses[k] = 0
            continue
        run = int(np.searchsorted(run_ends, token, side="right"))
        if token < 0 or length < 0 or run == len(run_ends) or length > int(run_ends[run]) - token:
            return k
        begin, array = int(run_begins[run]), int(run_arrays[run])
        if token < begin or not 0 <= array < len(bases) or not bases[array]:
            return k
        addresses[k] = int(bases[array]) + int(run_starts[run]) + (token - begin) * token_size
    return len(first)


def _places(rows: Numbers, columns: Numbers, lengths: Numbers, sizes: Numbers, out: Output) -> list[tuple[int, slice]]:
    """Return the row and the columns of each segment; ValueError for one outside `out`, or of more tokens."""
    n_rows, width = out.shape
    places = []
    columns_of = (array.tolist() for array in (rows, columns, lengths, sizes))
    for row, start, length, size in zip(*columns_of, strict=True):
        if not (0 <= row < n_rows and 0 <= start <= start + length <= start + size <= width):
            raise ValueError("a segment outside the outputs")
        places.append((row, slice(start, start + size)))
    return places
