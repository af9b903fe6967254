"""Which shard holds a sample: the specification of the `locate` kernels, in NumPy."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def locate(cumulative: npt.NDArray[np.int64], index: int) -> int:
    """The shard of sample `index`: the last s with cumulative[s] <= index, which passes over empty shards.

    cumulative: int64 [n_shards + 1], from 0 to the number of samples; 0 <= index < cumulative[-1].
    """
    return int(np.searchsorted(cumulative, index, side="right")) - 1


def locate_many(
    cumulative: npt.NDArray[np.int64],
    indices: npt.NDArray[np.int64],
    shards: npt.NDArray[np.int64],
    locals_: npt.NDArray[np.int64],
) -> int:
    """Write the shard of every sample and its number within that shard; return the position of the first bad index.

    indices, shards, locals_: int64 [k]. An index outside [0, cumulative[-1]) stops the work: its position is returned;
    k when all are good.
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
    """Write the memory address of every sample's window; return the position of the first that has none.

    bases: uint64 [n_shards], where each shard's first window lies, 0 for a shard that is not mapped; step_bytes: from
    one window to the next. indices [k] and the value returned as in `locate_many`; addresses: uint64 [k].
    """
    bad = (indices < 0) | (indices >= cumulative[-1])
    shards = np.searchsorted(cumulative, np.where(bad, 0, indices), side="right") - 1
    missing = np.flatnonzero(bad | (bases[shards] == 0))
    n_good = int(missing[0]) if missing.size else len(indices)
    local = (indices - cumulative[shards])[:n_good]
    addresses[:n_good] = bases[shards[:n_good]] + (local * step_bytes).view(np.uint64)
    return n_good
