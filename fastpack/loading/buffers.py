"""Leased output buffers: an array owns its memory until the last reference to it is released.

A new allocation per batch costs 1.5 to 3.5 times the filling (page faults); a ring of reused arrays would overwrite
batches that the caller kept. So memory returns to the pool only when nothing refers to it: the base of a leased array
is its lease, every view and tensor of the array keeps the lease alive, and the lease's deletion returns the memory. No
locks are taken: a lease may be deleted by the garbage collector in any thread, at any instruction, where a lock could
already be held.
"""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Memory: TypeAlias = npt.NDArray[np.uint8]

ALIGNMENT = 64  # a cache line; the alignment of AVX-512 stores
# Memory that exceeds the need by this factor is not reused: it would be kept for too little.
MAX_WASTE = 2
SMALL = 4096


def aligned_memory(n_bytes: int) -> Memory:
    """Allocate `n_bytes` whose address is a multiple of 64."""
    memory = np.empty(n_bytes + ALIGNMENT, np.uint8)
    offset = -memory.ctypes.data % ALIGNMENT
    return memory[offset : offset + n_bytes]


class _Block:
    """A piece of memory and its array interface, which is cached: building it takes 5 us."""

    __slots__ = ("interface", "memory", "n_bytes", "returned", "shaped")

    def __init__(self, memory: Memory) -> None:
        self.memory, self.n_bytes = memory, memory.nbytes
        self.returned = 0  # the batch number of its return
        self.interface: dict[str, Any] = {}
        self.shaped: tuple[tuple[int, ...], np.dtype[Any]] | None = None

    def shape_as(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.shaped = shape, dtype
        address = self.memory.__array_interface__["data"][0]
        self.interface = {"version": 3, "shape": shape, "typestr": dtype.str, "data": (address, False)}


class _Lease:
    """The base of a leased array; its deletion returns the block."""

    __slots__ = ("__array_interface__", "_block", "_home", "_pool")

    def __init__(self, pool: BufferPool, block: _Block) -> None:
        self.__array_interface__ = block.interface
        self._pool, self._block = pool, block
        self._home = pool._idle  # of this process: after a fork, this memory is not returned

    def __del__(self) -> None:
        self._block.returned = self._pool._batches
        # The append of a deque is atomic; beyond its length it drops, and so frees, the block that was idle longest.
        self._home.append(self._block)


class BufferPool:
    """A pool of arrays whose memory is reused once nothing refers to it.

    Safe with threads, without a lock, and with fork: a child starts without idle buffers. Pickles as an empty pool.

    Parameters
    ----------
    ring
        The maximum number of idle buffers; further ones are freed.
    rest
        The number of batches (calls of `next_batch`) before a returned buffer is reused: copies to a device may be in
        flight.
    allocate
        Allocates memory, aligned at least as the arrays' dtypes require.
    """

    def __init__(self, ring: int = 16, rest: int = 0, allocate: Callable[[int], Memory] = aligned_memory) -> None:
        self._ring, self._rest, self._allocate = ring, rest, allocate
        self._idle: deque[_Block] = deque(maxlen=ring)
        self._batches = 0
        self._pid = os.getpid()

    def lease(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Return a contiguous array with undefined content that owns its memory.

        The memory is reused when the array, its views and all objects that share its memory are released. Raises
        ValueError for a dtype that holds Python objects.
        """
        if self._pid != os.getpid():
            self._pid, self._idle = os.getpid(), deque(maxlen=self._ring)
        block = None if self._rest else self._newest()
        if block is None or block.shaped != (shape, dtype):
            block = self._search(block, shape, np.dtype(dtype))
        return np.asarray(_Lease(self, block))

    def _newest(self) -> _Block | None:
        """Return the block that was returned last: usually the right one, and still in the processor's cache."""
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def _search(self, newest: _Block | None, shape: tuple[int, ...], dtype: np.dtype[Any]) -> _Block:
        if newest is not None:
            self._idle.append(newest)
        if dtype.hasobject:
            raise ValueError(f"{dtype} holds Python objects, which leased memory cannot")
        block = self._take(math.prod(shape) * dtype.itemsize)
        if block.shaped != (shape, dtype):
            block.shape_as(shape, dtype)
        return block

    def next_batch(self) -> None:
        """Count one more batch."""
        self._batches += 1

    @property
    def idle(self) -> int:
        """The number of idle buffers."""
        return len(self._idle)

    def _take(self, n_bytes: int) -> _Block:
        """Return an idle block that fits and has rested, otherwise a new one."""
        idle, passed_over, found = self._idle, [], None
        largest = max(SMALL, MAX_WASTE * n_bytes)
        # Without rest the newest first, which may still be in the processor's cache; else the one that rested longest.
        pop, put_back = (idle.popleft, idle.appendleft) if self._rest else (idle.pop, idle.append)
        try:
            for _ in range(self._ring):
                block = pop()
                if n_bytes <= block.n_bytes <= largest and self._batches - block.returned >= self._rest:
                    found = block
                    break
                passed_over.append(block)
        except IndexError:  # none left: another thread may have taken the last
            pass
        for block in reversed(passed_over):
            put_back(block)
        return _Block(self._allocate(n_bytes)) if found is None else found

    def __reduce__(self) -> tuple[type[BufferPool], tuple[Any, ...]]:
        return type(self), (self._ring, self._rest, self._allocate)
