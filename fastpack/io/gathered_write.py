"""Writing many pieces of arrays by few calls of the system, without copying them to one buffer first."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fastpack.io.mapping import libc

_pwritev = getattr(libc, "pwritev", None)
if _pwritev is not None:
    _pwritev.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_int64)
    _pwritev.restype = ctypes.c_ssize_t
_MAX_VECTORS = 1024  # IOV_MAX


class Spans(NamedTuple):
    """Pieces of an array: start and length of each in bytes, int64 [n]."""

    data: npt.NDArray[np.uint8]
    starts: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]


def write_interleaved(fd: int, offset: int, spans: Sequence[Spans]) -> int:
    """Write the first piece of each array at `offset`, then the second of each, and so on; return the number of bytes.

    Raises ValueError for a piece outside its array. The arrays may be maps of files: a page that is missing because the
    file became shorter is an OSError.
    """
    vectors = np.empty((len(spans[0].starts), len(spans), 2), np.uint64)
    for at, (data, starts, lengths) in enumerate(spans):
        if len(starts) and (min(starts.min(), lengths.min()) < 0 or (starts + lengths).max() > data.nbytes):
            raise ValueError("a piece outside its array")
        vectors[:, at, 0] = data.ctypes.data + starts
        vectors[:, at, 1] = lengths
    flat = vectors.reshape(-1, 2)
    done = first = 0
    while first < len(flat):
        n_bytes = _write(fd, flat[first : first + _MAX_VECTORS], offset + done)
        done += n_bytes
        ends = np.cumsum(flat[first : first + _MAX_VECTORS, 1])
        n_whole = int(np.searchsorted(ends, n_bytes, "right"))
        if n_whole < len(ends):  # a short write
            rest = n_bytes - (int(ends[n_whole - 1]) if n_whole else 0)
            flat[first + n_whole] += np.array([rest, -rest], np.int64).view(np.uint64)
        first += n_whole
    return done


def _write(fd: int, vectors: npt.NDArray[np.uint64], offset: int) -> int:
    if _pwritev is None:
        pieces = [ctypes.string_at(address, n_bytes) for address, n_bytes in vectors.tolist()]
        return os.pwrite(fd, b"".join(pieces), offset)
    while True:
        n_bytes = int(_pwritev(fd, vectors.ctypes.data, len(vectors), offset))
        if n_bytes >= 0:
            return n_bytes
        if ctypes.get_errno() != errno.EINTR:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
