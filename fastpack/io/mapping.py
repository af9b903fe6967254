"""Read-only memory maps that need no open file, and advice to the system about their pages."""

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
    """A read-only memory map of a file; it is unmapped when the last array over it is deleted.

    Python's mmap keeps one descriptor open per map. A process may have 1,024 descriptors (or 256), but 65,530 maps.
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
    """Release the memory of bytes [start, end) of a `map_bytes` array that was read sequentially.

    The bytes stay readable (from the page cache or the disk); they no longer count as memory of this process.
    """
    mapping = getattr(data, "base", None)
    first, last = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE, end // mmap.PAGESIZE * mmap.PAGESIZE
    if isinstance(mapping, Mapping) and last > first:
        libc.madvise(mapping.address + first, last - first, mmap.MADV_DONTNEED)


def will_need(address: int, n_bytes: int) -> None:
    """Hint the OS to prefetch these bytes of a map. Returns immediately; a no-op where unsupported."""
    start = address & -mmap.PAGESIZE
    libc.madvise(start, address + n_bytes - start, mmap.MADV_WILLNEED)


def read_at_random(address: int, n_bytes: int) -> None:
    """Advise the OS that a map is read at random, so that it does not read ahead."""
    start = address & -mmap.PAGESIZE
    libc.madvise(start, address + n_bytes - start, mmap.MADV_RANDOM)


def is_in_memory(address: int, n_bytes: int) -> bool:
    """Return whether these bytes of a map are in memory; also True for read-only files of another user."""
    start = address & -mmap.PAGESIZE
    pages = (ctypes.c_ubyte * (-(-(address + n_bytes - start) // mmap.PAGESIZE)))()
    failed = libc.mincore(start, address + n_bytes - start, pages)
    return not failed and all(page & 1 for page in pages)
