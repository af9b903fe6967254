"""Spans of rows, as context parallelism cuts them: the specification of the `row_spans` kernels, in NumPy.

A span is given by the memory address of its first token, its length in tokens, and the row and column of the outputs
where it goes. All spans of a call have the dtype of `like`, an array of that dtype (usually empty); a batch from files
of several dtypes takes one call per dtype. Spans may be in any order. What no span covers is not written.

Addresses must be aligned and inside mapped memory. That is the caller's responsibility; kernels cannot check it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fastpack.kernels.batches_np import Addresses, _misfit, window
from fastpack.kernels.segments_np import Numbers, Output, _places


def document_ends(
    addresses: Addresses, rows: Numbers, n_tokens: int, like: npt.NDArray[Any], eos: int, ends: Numbers
) -> int:
    """Write the ends (exclusive) of the documents in windows of `n_tokens` tokens, of the rows as one sequence.

    A document ends after an EOS token and at the end of its row: token i of row r has the number r * n_tokens + i.

    addresses: uint64 [k]. rows: int64 [k], the row of each window. like: uint8, uint16, uint32, int8, int16, int32 or
    int64. ends: int64 [n], sorted within each window.

    Returns the number of documents. If it exceeds n, the last ones are not written.
    """
    if len(addresses) != len(rows):
        raise ValueError("addresses and rows must have one length")
    found = []
    for address, row in zip(addresses.tolist(), rows.tolist(), strict=True):
        inside = np.flatnonzero(window(address, n_tokens, like)[:-1] == eos) + 1
        found += [row * n_tokens + inside, [(row + 1) * n_tokens] * (n_tokens > 0)]
    every = np.concatenate([np.zeros(0, np.int64), *found])
    ends[: len(every)] = every[: len(ends)]
    return len(every)


def fill_spans(
    addresses: Addresses,
    rows: Numbers,
    columns: Numbers,
    lengths: Numbers,
    numbers: Numbers,
    firsts: Numbers,
    like: npt.NDArray[Any],
    eos: int | None,
    input_ids: Output,
    labels: Output | None,
    doc_ids: Output | None,
    position_ids: Output | None,
) -> int:
    """Write spans into the rows of up to four outputs, [n_rows, width], all int64 or all int32.

    input_ids: the tokens. labels: the next token, which is read beyond the end of the span too; -100 after `eos`, if
    that is not None. doc_ids: numbers[k]. position_ids: firsts[k] and counting up. An output that is None is not
    written. A span whose address is 0 is padding: its tokens are 0, its labels -100.

    addresses: uint64 [k]. rows, columns, lengths, numbers, firsts: int64 [k]. like: as for `document_ends`.

    Returns 0, or 1 if the outputs are int32 and a token does not fit (the outputs are then undefined). Raises
    ValueError for a span outside the outputs; earlier spans may then be filled.
    """
    if any(array is not None and array.shape != input_ids.shape for array in (labels, doc_ids, position_ids)):
        raise ValueError("outputs must have one shape")
    if any(len(array) != len(addresses) for array in (rows, columns, lengths, numbers, firsts)):
        raise ValueError("the arrays of spans must have one length")
    overflow, places = 0, _places(rows, columns, lengths, lengths, input_ids)
    for k, (row, at) in enumerate(places):
        address, n_tokens = int(addresses[k]), at.stop - at.start
        read = n_tokens + (labels is not None and n_tokens > 0)
        tokens = window(address, read, like) if address else np.zeros(read, np.int64)
        overflow |= _misfit(tokens, input_ids)
        input_ids[row, at] = tokens[:n_tokens]
        if labels is not None and n_tokens:
            labels[row, at] = tokens[1:] if address else -100
            if address and eos is not None:
                labels[row, at][tokens[:-1] == eos] = -100
        if doc_ids is not None:
            doc_ids[row, at] = numbers[k]
        if position_ids is not None:
            position_ids[row, at] = np.arange(firsts[k], firsts[k] + n_tokens)
    return overflow
