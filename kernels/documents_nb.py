"""The `documents` kernels in Numba."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fastpack.kernels.jit import jit

BLOCK = 128  # as in batches_nb: the test for EOS stays in registers, the loop after a hit stays short


@jit
def _has(tokens, eos):
    hit = tokens.dtype.type(0)
    for i in range(len(tokens)):
        hit |= tokens.dtype.type(tokens[i] == eos)
    return hit != 0


@jit
def doc_ids(tokens, eos, out):
    """Write the document number of each token: the number of EOS tokens before it.

    See `fastpack.kernels.documents_np.doc_ids`.
    """
    n = len(tokens)
    if len(out) != n:
        raise ValueError("out must be as long as tokens")
    narrow = tokens.dtype.type(eos)
    present = np.int64(narrow) == eos  # an EOS outside the dtype's range never occurs
    document = 0
    for start in range(0, n, BLOCK):
        stop = min(start + BLOCK, n)
        if present and _has(tokens[start:stop], narrow):
            for i in range(start, stop):
                out[i] = document
                document += tokens[i] == narrow
        else:
            out[start:stop] = document


@jit
def mask_labels(tokens, eos, out):
    """Write the labels of a window: the next token, or -100 after an EOS token.

    See `fastpack.kernels.documents_np.mask_labels`.
    """
    narrow = tokens.dtype.type(eos)
    present = np.int64(narrow) == eos
    n = len(out)
    if len(tokens) != n + 1:
        raise ValueError("tokens must be one longer than out")
    before, after = tokens[:n], tokens[1 : n + 1]
    for i in range(n):
        out[i] = -100 if present and before[i] == narrow else after[i]


@jit
def _count(position_ids):
    """Return (number of bounds, longest document); the position of a document's last token is its length."""
    n_rows, length = position_ids.shape
    needed, longest = 1, 0
    for row in range(n_rows):
        end = length
        while end > 0:
            position = int(position_ids[row, end - 1])
            if position < 0 or position >= end:
                return 0, row * length + end - 1
            longest = max(longest, position + 1)
            end -= position + 1
            needed += 1
    return needed, longest


@jit
def _write(position_ids, out, needed):
    """Write the `needed` bounds; return -1, or the index of a token that changed since they were counted."""
    n_rows, length = position_ids.shape
    out[0] = 0
    k = needed - 1
    for row in range(n_rows - 1, -1, -1):
        end = length
        while end > 0:
            position = int(position_ids[row, end - 1])
            if position < 0 or position >= end or k < 1:
                return row * length + end - 1
            out[k] = row * length + end
            end -= position + 1
            k -= 1
    return -1 if k == 0 else 0


@jit
def cu_seqlens(position_ids, out):
    """Write the cumulative document lengths of a batch, all rows concatenated, with a leading 0.

    See `fastpack.kernels.documents_np.cu_seqlens`.
    """
    needed, longest = _count(position_ids)
    if 0 < needed <= len(out):
        changed = _write(position_ids, out, needed)
        if changed >= 0:
            return 0, changed
        out[needed:] = out[needed - 1]
    return needed, longest


def compile_all(token_dtypes: Sequence[str], out_dtypes: Sequence[str]) -> None:
    """Compile for these token dtypes, writeable and read-only (a read-only array is another signature)."""
    out = np.empty(2, np.int64)
    for dtype in token_dtypes:
        for writeable in (True, False):
            tokens = np.zeros(3, dtype)
            tokens.flags.writeable = writeable
            doc_ids(tokens[:2], 0, out)
            mask_labels(tokens, 0, out)
    for out_dtype in out_dtypes:
        cu_seqlens(np.zeros((1, 1), out_dtype), np.empty(2, np.int32))
