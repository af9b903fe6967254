"""Documents of many places copied to many places: the specification of the `spans` kernels, in NumPy."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Places = npt.NDArray[np.int64]


def copy_spans(
    data: npt.NDArray[np.uint8], starts: Places, targets: Places, lengths: Places, out: npt.NDArray[np.uint8]
) -> None:
    """out[targets[i] : targets[i] + lengths[i]] = data[starts[i] : starts[i] + lengths[i]] for every i, in order.

    data: uint8 [n]; out: uint8 [m]; starts, targets, lengths: int64 [k], in bytes. Raises ValueError for a span that
    does not lie in both arrays; those before it are copied then.
    """
    if not len(starts) == len(targets) == len(lengths):
        raise ValueError("starts, targets and lengths must have one length")
    for start, target, length in zip(starts.tolist(), targets.tolist(), lengths.tolist(), strict=True):
        if min(start, target, length) < 0 or start + length > len(data) or target + length > len(out):
            raise ValueError("a span outside data or out")
        out[target : target + length] = data[start : start + length]
