"""Copies of many byte spans: the specification of the `spans` kernel, in NumPy."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Places = npt.NDArray[np.int64]


def copy_spans(
    data: npt.NDArray[np.uint8], starts: Places, targets: Places, lengths: Places, out: npt.NDArray[np.uint8]
) -> None:
    """Copy spans of bytes: out[targets[i] : targets[i] + lengths[i]] = data[starts[i] : starts[i] + lengths[i]].

    data: uint8 [n]. out: uint8 [m]. starts, targets, lengths: int64 [k], in bytes. The spans are copied in order.
    Raises ValueError for a span outside either array; the spans before it are then copied.
    """
    if not len(starts) == len(targets) == len(lengths):
        raise ValueError("starts, targets and lengths must have one length")
    for start, target, length in zip(starts.tolist(), targets.tolist(), lengths.tolist(), strict=True):
        if min(start, target, length) < 0 or start + length > len(data) or target + length > len(out):
            raise ValueError("a span outside data or out")
        out[target : target + length] = data[start : start + length]
