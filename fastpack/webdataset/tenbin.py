"""Decode the `.ten` fields of WebDatasets: arrays in chunks of a magic word, a length, and bytes padded to 64."""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np
import numpy.typing as npt

_MAGIC = b"~TenBin~"
_DTYPES = {
    f"{kind}{size}".encode(): np.dtype(f"<{kind}{size}")
    for kind in "fiu"
    for size in (1, 2, 4, 8)
    if kind + str(size) != "f1"
}


def decode_tenbin(data: bytes) -> list[npt.NDArray[Any]]:
    """Return copies of the arrays in a file, in order, without their names. Raises ValueError."""
    chunks = _chunks(data)
    if len(chunks) % 2:
        raise ValueError("a header without an array")
    return [_array(header, values) for header, values in zip(chunks[::2], chunks[1::2], strict=True)]


def _chunks(data: bytes) -> list[bytes]:
    chunks, offset = [], 0
    while offset < len(data):
        if data[offset : offset + 8] != _MAGIC:
            raise ValueError(f"no chunk starts at byte {offset}")
        if offset + 16 > len(data):
            raise ValueError(f"the chunk at byte {offset} is truncated")
        (n_bytes,) = struct.unpack_from("<q", data, offset + 8)
        start = offset + 16
        if not 0 <= n_bytes <= len(data) - start:
            raise ValueError(f"the chunk at byte {offset} has {n_bytes} bytes, {len(data) - start} exist")
        chunks.append(data[start : start + n_bytes])
        offset = start + -(-n_bytes // 64) * 64
    return chunks


def _array(header: bytes, values: bytes) -> npt.NDArray[Any]:
    if len(header) < 24 or len(header) % 8:
        raise ValueError(f"an array's header of {len(header)} bytes")
    dtype = _DTYPES.get(header[:8].rstrip(b"\0"))
    rank = struct.unpack_from("<q", header, 16)[0]
    if dtype is None or not 0 <= rank <= len(header) // 8 - 3:
        raise ValueError(f"an array of unknown kind: {header[:24]!r}")
    shape = struct.unpack_from(f"<{rank}q", header, 24)
    if any(size < 0 for size in shape) or math.prod(shape) * dtype.itemsize > len(values):
        raise ValueError(f"an array {shape} of {dtype} in {len(values)} bytes")
    return np.frombuffer(values, dtype, math.prod(shape)).reshape(shape).copy()
