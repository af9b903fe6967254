"""Files in memory: read-only mappings that need no open file, and what the system is told about their pages."""

from __future__ import annotations

import ctypes
import mmap
import os
from typing import Any

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *(ctypes.c_int,) * 3, ctypes.c_long)
libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
libc.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
_MAP_FAILED = ctypes.c_void_p(-1).value


class Mapping:
    """A file in memory, read-only, without a file descriptor; unmapped when the last array over it is gone.

    Python's own mmap keeps a descriptor a mapping, of which a process may have 1,024, or 256; mappings 65,530.
    """

    __slots__ = ("address", "n_bytes")

    def __init__(self, fd: int, n_bytes: int) -> None:
        self.n_bytes = 0
        address = libc.mmap(None, n_bytes, mmap.PROT_READ, mmap.MAP_SHARED, fd, 0)
        if address == _MAP_FAILED:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        self.address, self.n_bytes = address, n_bytes

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return {"version": 3, "shape": (self.n_bytes,), "typestr": "|u1", "data": (self.address, True)}

    def __del__(self, _munmap: Any = libc.munmap) -> None:
        if self.n_bytes:
            _munmap(self.address, self.n_bytes)


def drop_pages(data: object, start: int, end: int) -> None:
    """Give back the memory of bytes [start, end) of a `map_bytes` array that was read from front to back.

    The bytes stay readable (from the page cache, or the disk again); they only stop counting as this process's own.
    """
    mapping = getattr(data, "base", None)
    first, last = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE, end // mmap.PAGESIZE * mmap.PAGESIZE
    if isinstance(mapping, Mapping) and last > first:
        libc.madvise(mapping.address + first, last - first, mmap.MADV_DONTNEED)


def will_need(address: int, n_bytes: int) -> None:
    """Have the system read these bytes of a mapping from the disk in the background; no harm where it cannot."""
    start = address & -mmap.PAGESIZE
    libc.madvise(start, address + n_bytes - start, mmap.MADV_WILLNEED)


def read_at_random(address: int, n_bytes: int) -> None:
    """Tell the system that a mapping is read here and there: a touched page then brings no neighbours along."""
    start = address & -mmap.PAGESIZE
    libc.madvise(start, address + n_bytes - start, mmap.MADV_RANDOM)


def is_in_memory(address: int, n_bytes: int) -> bool:
    """Whether all these bytes of a mapping are in memory; True as well for files that are another user's, read-only."""
    start = address & -mmap.PAGESIZE
    pages = (ctypes.c_ubyte * (-(-(address + n_bytes - start) // mmap.PAGESIZE)))()
    failed = libc.mincore(start, address + n_bytes - start, pages)
    return not failed and all(page & 1 for page in pages)
