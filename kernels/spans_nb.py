"""The `spans` kernel in Numba."""

from collections.abc import Sequence

import numpy as np

from fastpack.kernels.jit import jit, prefetcher

AHEAD = 8  # spans between the prefetch of a span's first cache line and its copy; see spans_cy
_prefetch = prefetcher(for_writing=False)


@jit
def copy_spans(data, starts, targets, lengths, out):
    """Copy spans of bytes: out[targets[i] : targets[i] + lengths[i]] = data[starts[i] : starts[i] + lengths[i]].

    See `fastpack.kernels.spans_np.copy_spans`.
    """
    n = len(starts)
    if len(targets) != n or len(lengths) != n:
        raise ValueError("starts, targets and lengths must have one length")
    for i in range(n):
        ahead = min(i + AHEAD, n - 1)
        _prefetch(data, starts[ahead])
        _prefetch(out, targets[ahead])
        start, target, length = starts[i], targets[i], lengths[i]
        if start < 0 or target < 0 or length < 0 or length > len(data) - start or length > len(out) - target:
            raise ValueError("a span outside data or out")
        span = data[start : start + length]
        place = out[target : target + length]
        for k in range(length):
            place[k] = span[k]


def compile_all(_token_dtypes: Sequence[str], _out_dtypes: Sequence[str]) -> None:
    """Compile for writeable and read-only data (a read-only array is another signature)."""
    one = np.zeros(1, np.int64)
    for writeable in (True, False):
        data = np.zeros(1, np.uint8)
        data.flags.writeable = writeable
        copy_spans(data, one, one, one + 1, np.zeros(1, np.uint8))
