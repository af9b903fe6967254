"""Zeros at the end of a file or of its tokens: unused space, or the trace of a crash."""

from __future__ import annotations

from fastpack import kernels
from fastpack.io import ByteArray

MIN_ZERO_TAIL = 1024  # tokens; fewer zeros at the end are not reported as unused space
_WINDOW = 8 << 20  # bytes searched at once


def used_bytes(data: ByteArray, start: int, end: int) -> int:
    """Return the number of bytes in [start, end) of a file before its trailing zeros. Reads backwards from `end`."""
    while end > start:
        first = max(start, end - _WINDOW)
        if used := kernels.used_bytes(data[first:end]):
            return first + used - start
        end = first
    return 0
