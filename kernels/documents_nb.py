"""The `documents` kernels in Numba."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fastpack.kernels.jit import jit

BLOCK = 128  # as in batches_nb: the test for EOS stays in registers, the walk after a hit stays short


@jit
def _has(tokens, eos):
    hit = tokens.dtype.type(0)
    for i in range(len(tokens)):
        hit |= tokens.dtype.type(tokens[i] == eos)
    return hit != 0


@jit
def doc_ids(tokens, eos, out):
    n = len(tokens)
    narrow = tokens.dtype.type(eos)
    present = np.int64(narrow) == eos  # an EOS beyond the dtype's range is nowhere
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
    narrow = tokens.dtype.type(eos)
    present = np.int64(narrow) == eos
    n = len(out)
    before, after = tokens[:n], tokens[1 : n + 1]
    for i in range(n):
        out[i] = -100 if present and before[i] == narrow else after[i]


def compile_all(token_dtypes: Sequence[str], _out_dtypes: Sequence[str]) -> None:
    """Compile for these token dtypes, writeable and read-only (a read-only array is another signature)."""
    out = np.empty(2, np.int64)
    for dtype in token_dtypes:
        for writeable in (True, False):
            tokens = np.zeros(3, dtype)
            tokens.flags.writeable = writeable
            doc_ids(tokens[:2], 0, out)
            mask_labels(tokens, 0, out)
