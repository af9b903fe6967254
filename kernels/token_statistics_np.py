"""Looking through all tokens of a shard at the speed of memory: the specification of the `scan` kernels, in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def scan_tokens(tokens: npt.NDArray[Any], eos: int) -> tuple[int, int, int]:
    """The smallest token (or 0), the largest (or 0), and how many are `eos`.

    tokens: uint8, uint16, uint32, int8, int16, int32 or int64 [n]; an `eos` outside the dtype's range is nowhere.
    """
    return int(tokens.min(initial=0)), int(tokens.max(initial=0)), int(np.count_nonzero(tokens == eos))


def count_tokens(tokens: npt.NDArray[Any], counts: npt.NDArray[np.uint32]) -> int:
    """Add to `counts` how often each token id occurs; returns how many tokens have no place there.

    tokens: as above [n]; counts: uint32 [n_ids], by id. A token below 0, or from n_ids on, has none. Whoever owns
    `counts` adds them up elsewhere before 2^32 tokens were counted: a table of half the size stays in the cache.
    """
    inside = tokens[(tokens >= 0) & (tokens < len(counts))]
    counts += np.bincount(inside, minlength=len(counts)).astype(np.uint32)
    return len(tokens) - len(inside)


def used_bytes(data: npt.NDArray[np.uint8]) -> int:
    """How many bytes of `data` (uint8 [n]) there are up to and with the last one that is not zero; 0 if all are."""
    for stop in range(len(data), 0, -65536):
        found = np.flatnonzero(data[max(0, stop - 65536) : stop])
        if found.size:
            return int(max(0, stop - 65536) + found[-1] + 1)
    return 0
