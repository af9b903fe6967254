"""The `locate` kernels in Numba."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fastpack.kernels.jit import jit


@jit
def _last_not_above(cumulative, index):
    low, high = 0, len(cumulative)
    while low < high:
        middle = (low + high) >> 1
        if cumulative[middle] <= index:
            low = middle + 1
        else:
            high = middle
    return low - 1


@jit
def locate(cumulative, index):
    """Return the shard of sample `index`: the last s with cumulative[s] <= index.

    See `fastpack.kernels.locate_np.locate`.
    """
    return _last_not_above(cumulative, index)


@jit
def locate_many(cumulative, indices, shards, locals_):
    """Write the shard of each sample and its number in the shard; return the position of the first bad index.

    See `fastpack.kernels.locate_np.locate_many`.
    """
    n = len(cumulative)
    if len(shards) < len(indices) or len(locals_) < len(indices):
        raise ValueError("shards and locals_ must be as long as indices")
    total = cumulative[n - 1] if n else 0
    for k in range(len(indices)):
        index = indices[k]
        if index < 0 or index >= total:
            return k
        shard = _last_not_above(cumulative, index)
        if shard < 0 or shard >= n - 1:  # `cumulative` is not ascending, or another thread changes it
            return k
        shards[k] = shard
        locals_[k] = index - cumulative[shard]
    return len(indices)


@jit
def locate_windows(cumulative, indices, bases, step_bytes, addresses):
    """Write the memory address of each sample's window; return the position of the first sample without one.

    See `fastpack.kernels.locate_np.locate_windows`.
    """
    n = len(cumulative)
    if len(addresses) < len(indices) or len(bases) < n - 1:
        raise ValueError("addresses must be as long as indices, bases as long as there are shards")
    total = cumulative[n - 1] if n else 0
    for k in range(len(indices)):
        index = indices[k]
        if index < 0 or index >= total:
            return k
        shard = _last_not_above(cumulative, index)
        if shard < 0 or shard >= n - 1:
            return k
        base = bases[shard]
        if base == 0:
            return k
        addresses[k] = base + np.uint64((index - cumulative[shard]) * step_bytes)
    return len(indices)


def compile_all(_token_dtypes: Sequence[str], _out_dtypes: Sequence[str]) -> None:
    """Compile for writeable and read-only arrays (a read-only array is another signature)."""
    for writeable in (True, False):
        cumulative = np.array([0, 1])
        cumulative.flags.writeable = writeable
        out = np.empty(1, np.int64)
        locate(cumulative, 0)
        for indices in (np.zeros(1, np.int64), cumulative[:1]):
            locate_many(cumulative, indices, out, out.copy())
            locate_windows(cumulative, indices, np.ones(1, np.uint64), 8, np.empty(1, np.uint64))
