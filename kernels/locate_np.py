"""The shard of a sample: the specification of the `locate` kernels, in NumPy."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def locate(cumulative: npt.NDArray[np.int64], index: int) -> int:
    """Return the shard of sample `index`: the last s with cumulative[s] <= index.

    cumulative: int64 [n_shards + 1], from 0 to the number of samples; empty shards are skipped.
    0 <= index < cumulative[-1].
    """
    return int(np.searchsorted(cumulative, index, side="right")) - 1


def locate_many(
    cumulative: npt.NDArray[np.int64],
    indices: npt.NDArray[np.int64],
    shards: npt.NDArray[np.int64],
    locals_: npt.NDArray[np.int64],
) -> int:
    """Write the shard of each sample and its number in the shard; return the position of the first bad index.

    cumulative: as in `locate`. indices, shards, locals_: int64 [k]. An index outside [0, cumulative[-1]) stops the
    loop, and its position is returned; k if all are good.
    """
    bad = np.flatnonzero((indices < 0) | (indices >= cumulative[-1]))
    n_good = int(bad[0]) if bad.size else len(indices)
    good = indices[:n_good]
    shards[:n_good] = np.searchsorted(cumulative, good, side="right") - 1
    locals_[:n_good] = good - cumulative[shards[:n_good]]
    return n_good


def locate_windows(
    cumulative: npt.NDArray[np.int64],
    indices: npt.NDArray[np.int64],
    bases: npt.NDArray[np.uint64],
    step_bytes: int,
    addresses: npt.NDArray[np.uint64],
) -> int:
    """Write the memory address of each sample's window; return the position of the first sample without one.

    cumulative, indices: as in `locate_many`, also the return value. bases: uint64 [n_shards], address of each shard's
    first window, 0 if the shard is not mapped. step_bytes: distance between windows. addresses: uint64 [k].
    """
    bad = (indices < 0) | (indices >= cumulative[-1])
    shards = np.searchsorted(cumulative, np.where(bad, 0, indices), side="right") - 1
    missing = np.flatnonzero(bad | (bases[shards] == 0))
    n_good = int(missing[0]) if missing.size else len(indices)
    local = (indices - cumulative[shards])[:n_good]
    addresses[:n_good] = bases[shards[:n_good]] + (local * step_bytes).view(np.uint64)
    return n_good
