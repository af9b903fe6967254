"""The `blends` kernel in Numba."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fastpack.kernels.jit import jit


@jit
def blend_datasets(weights, limits, first, counts, out):
    """Write the dataset of samples `first`, `first` + 1, ... of a blend, and count the samples of each dataset.

    See `fastpack.kernels.blends_np.blend_datasets`.
    """
    if not len(weights) == len(limits) == len(counts):
        raise ValueError("weights, limits and counts must have one length")
    for i in range(len(out)):
        number, chosen, largest = np.float64(max(first + i, 1)), -1, -np.inf
        for k in range(len(weights)):
            error = weights[k] * number - np.float64(counts[k])
            if error > largest and counts[k] < limits[k]:
                chosen, largest = k, error
        if chosen < 0:
            return i
        out[i] = chosen
        counts[chosen] += 1
    return len(out)


def compile_all(_token_dtypes: Sequence[str], _out_dtypes: Sequence[str]) -> None:
    """Compile; the arguments do not matter here."""
    blend_datasets(np.ones(1), np.ones(1, np.int64), 0, np.zeros(1, np.int64), np.empty(1, np.int16))
