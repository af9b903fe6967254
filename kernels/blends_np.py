"""The order of a blend of datasets, as Megatron's helpers choose it: the specification, in NumPy."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def blend_datasets(
    weights: npt.NDArray[np.float64],
    limits: npt.NDArray[np.int64],
    first: int,
    counts: npt.NDArray[np.int64],
    out: npt.NDArray[np.int16],
) -> int:
    """Write the dataset of samples `first`, `first` + 1, ... of a blend, and count the samples of each dataset.

    Sample s is taken from the dataset with the largest error, weight * max(s, 1) - its samples so far, the first one of
    several; datasets that have reached their limit are left out. weights: float64 [k]. limits: int64 [k]. counts: int64
    [k], the samples of each dataset before `first`; they advance. out: int16 [n].

    The product is rounded before the subtraction (no fused multiply-add), so that the result is the same everywhere.
    Returns how many were written: less than n if every dataset has reached its limit.
    """
    if not len(weights) == len(limits) == len(counts):
        raise ValueError("weights, limits and counts must have one length")
    for i in range(len(out)):
        errors = np.where(counts < limits, weights * max(float(first + i), 1.0) - counts, -np.inf)
        chosen = int(errors.argmax()) if len(errors) else 0
        if not len(errors) or counts[chosen] >= limits[chosen]:
            return i
        out[i] = chosen
        counts[chosen] += 1
    return len(out)
