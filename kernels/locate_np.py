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
