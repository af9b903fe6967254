"""The `token_statistics` kernels in Numba."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fastpack.kernels.jit import jit

BLOCK = 512  # tokens per block; accumulators as narrow as the tokens keep the loop in vector registers


@jit
def _scan(tokens, eos):
    """Return (smallest, largest, whether any is EOS) of a block."""
    hit, low, high = tokens.dtype.type(0), tokens[0], tokens[0]
    for i in range(len(tokens)):
        hit |= tokens.dtype.type(tokens[i] == eos)
        low = min(low, tokens[i])
        high = max(high, tokens[i])
    return low, high, hit


@jit
def scan_tokens(tokens, eos):
    """Return (smallest token or 0, largest token or 0, number of EOS tokens).

    See `fastpack.kernels.token_statistics_np.scan_tokens`.
    """
    narrow = tokens.dtype.type(eos)
    present = np.int64(narrow) == eos
    smallest, largest, n_eos = np.int64(0), np.int64(0), 0
    for start in range(0, len(tokens), BLOCK):
        block = tokens[start : start + BLOCK]
        low, high, hit = _scan(block, narrow)
        smallest, largest = min(smallest, np.int64(low)), max(largest, np.int64(high))
        if hit and present:
            for i in range(len(block)):
                n_eos += block[i] == narrow
    return smallest, largest, n_eos


@jit
def count_tokens(tokens, counts):
    """Add the frequency of each token id to `counts`; return the number of tokens without an entry there.

    See `fastpack.kernels.token_statistics_np.count_tokens`.
    """
    n_ids, n_outside = np.uint64(len(counts)), 0
    for i in range(len(tokens)):
        token = np.uint64(np.int64(tokens[i]))  # negative tokens become the largest; unsigned indexes are not wrapped
        if token < n_ids:
            counts[token] += np.uint32(1)
        else:
            n_outside += 1
    return n_outside


@jit
def _any(data):
    bits = np.uint8(0)
    for i in range(len(data)):
        bits |= data[i]
    return bits != 0


@jit
def used_bytes(data):
    """Return the number of bytes of `data`, uint8 [n], up to and including the last nonzero one; 0 if there is none.

    See `fastpack.kernels.token_statistics_np.used_bytes`.
    """
    stop = len(data)
    while stop > 0:
        start = max(0, stop - 4096)
        if _any(data[start:stop]):
            while stop > start and data[stop - 1] == 0:
                stop -= 1
            if stop > start:
                return stop
        stop = start  # also if a mapped file was zeroed meanwhile
    return 0


def compile_all(token_dtypes: Sequence[str], _out_dtypes: Sequence[str]) -> None:
    """Compile for read-only tokens of these dtypes, as mappings are."""
    for dtype in token_dtypes:
        tokens = np.zeros(2, dtype)
        tokens.flags.writeable = False
        scan_tokens(tokens, 0)
        count_tokens(tokens, np.zeros(1, np.uint32))
        used_bytes(tokens.view(np.uint8))
