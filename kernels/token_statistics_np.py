"""Statistics over all tokens of a shard: the specification of the `token_statistics` kernels, in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def scan_tokens(tokens: npt.NDArray[Any], eos: int) -> tuple[int, int, int]:
    """Return (smallest token or 0, largest token or 0, number of EOS tokens).

    tokens: uint8, uint16, uint32, int8, int16, int32 or int64 [n]. An `eos` outside the range of the dtype never
    occurs.
    """
    return int(tokens.min(initial=0)), int(tokens.max(initial=0)), int(np.count_nonzero(tokens == eos))


def count_tokens(tokens: npt.NDArray[Any], counts: npt.NDArray[np.uint32]) -> int:
    """Add the frequency of each token id to `counts`; return the number of tokens without an entry there.

    tokens: as in `scan_tokens`, [n]. counts: uint32 [n_ids]. A token below 0, or from n_ids on, has no entry. The
    caller must empty `counts` before 2^32 tokens are counted; uint64 would need twice the cache.
    """
    inside = tokens[(tokens >= 0) & (tokens < len(counts))]
    counts += np.bincount(inside, minlength=len(counts)).astype(np.uint32)
    return len(tokens) - len(inside)


def used_bytes(data: npt.NDArray[np.uint8]) -> int:
    """Return the number of bytes of `data`, uint8 [n], up to and including the last nonzero one; 0 if there is none."""
    for stop in range(len(data), 0, -65536):
        found = np.flatnonzero(data[max(0, stop - 65536) : stop])
        if found.size:
            return int(max(0, stop - 65536) + found[-1] + 1)
    return 0
