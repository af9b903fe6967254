"""Documents of many places copied to many places: the specification of the `spans` kernels, in NumPy."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Places = npt.NDArray[np.int64]


def copy_spans(
    data: npt.NDArray[np.uint8], starts: Places, targets: Places, lengths: Places, out: npt.NDArray[np.uint8]
) -> None:
    """out[targets[i] : targets[i] + lengths[i]] = data[starts[i] : starts[i] + lengths[i]] for every i, in order.

    data: uint8 [n]; out: uint8 [m]; starts, targets, lengths: int64 [k], in bytes, within their arrays (not checked).
    """
    for start, target, length in zip(starts.tolist(), targets.tolist(), lengths.tolist(), strict=True):
        out[target : target + length] = data[start : start + length]
