"""Output buffers that are leased: an array owns its memory until the last reference to it is gone.

A fresh allocation a batch costs 1.5 to 3.5 times the work of filling it (page faults), a ring of arrays that is filled
again and again overwrites what the caller kept. So memory comes back here only when nothing refers to it any more: an
array handed out has a lease for its base, every view and tensor of it keeps that lease alive, and the lease's death
returns the memory. Nothing here takes a lock: a lease may die inside the garbage collector, in any thread, at any
instruction, where a lock could already be held.
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

ALIGNMENT = 64  # a cache line, and what AVX-512 stores want
# Memory this much larger than needed is not used: it would be held for less than it is worth.
MAX_WASTE = 2
SMALL = 4096


def aligned_memory(n_bytes: int) -> Memory:
    """`n_bytes` of new memory that starts at a multiple of 64."""
    memory = np.empty(n_bytes + ALIGNMENT, np.uint8)
    offset = -memory.ctypes.data % ALIGNMENT
    return memory[offset : offset + n_bytes]


class _Block:
    """A piece of memory and how numpy is told of it, which seldom changes: saying it anew costs 5 us."""

    __slots__ = ("interface", "memory", "n_bytes", "returned", "shaped")

    def __init__(self, memory: Memory) -> None:
        self.memory, self.n_bytes = memory, memory.nbytes
        self.returned = 0  # at which batch it came back
        self.interface: dict[str, Any] = {}
        self.shaped: tuple[tuple[int, ...], np.dtype[Any]] | None = None

    def shape_as(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.shaped = shape, dtype
        address = self.memory.__array_interface__["data"][0]
        self.interface = {"version": 3, "shape": shape, "typestr": dtype.str, "data": (address, False)}


class _Lease:
    """The base of an array that was handed out; when it dies, the block goes back."""

    __slots__ = ("__array_interface__", "_block", "_home", "_pool")

    def __init__(self, pool: BufferPool, block: _Block) -> None:
        self.__array_interface__ = block.interface
        self._pool, self._block = pool, block
        self._home = pool._idle  # of this process: after a fork the pool has another, and the memory is left alone

    def __del__(self) -> None:
        self._block.returned = self._pool._batches
        # A deque's append is atomic; past the ring's length it drops, and so frees, what lay idle longest.
        self._home.append(self._block)


class BufferPool:
    """Arrays from memory that is used again once nobody refers to it.

    ring: how many buffers lie idle at most, what comes back beyond them is freed. rest: how many more batches (calls of
    `next_batch`) a buffer rests after it came back, for copies to a device that may be in flight. allocate: where new
    memory comes from, at least as aligned as the arrays' dtypes need. Safe under threads, without a lock, and under
    fork: a child begins with no idle buffers. Pickles as an empty pool.
    """

    def __init__(self, ring: int = 16, rest: int = 0, allocate: Callable[[int], Memory] = aligned_memory) -> None:
        self._ring, self._rest, self._allocate = ring, rest, allocate
        self._idle: deque[_Block] = deque(maxlen=ring)
        self._batches = 0
        self._pid = os.getpid()

    def lease(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """An array of that shape and dtype, contiguous, with undefined content, that owns its memory.

        The memory is used again when the array, its views and everything made from them without a copy are gone.
        Raises ValueError for a dtype that holds Python objects.
        """
        if self._pid != os.getpid():
            self._pid, self._idle = os.getpid(), deque(maxlen=self._ring)
        block = None if self._rest else self._newest()
        if block is None or block.shaped != (shape, dtype):
            block = self._search(block, shape, np.dtype(dtype))
        return np.asarray(_Lease(self, block))

    def _newest(self) -> _Block | None:
        """The block that came back last: most often just what is needed next, and still in the processor's cache."""
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def _search(self, newest: _Block | None, shape: tuple[int, ...], dtype: np.dtype[Any]) -> _Block:
        if newest is not None:
            self._idle.append(newest)
        if dtype.hasobject:
            raise ValueError(f"{dtype} holds Python objects, which cannot lie in leased memory")
        block = self._take(math.prod(shape) * dtype.itemsize)
        if block.shaped != (shape, dtype):
            block.shape_as(shape, dtype)
        return block

    def next_batch(self) -> None:
        """One more batch was handed on: what rests has one batch less to rest."""
        self._batches += 1

    @property
    def idle(self) -> int:
        """How many buffers lie idle now."""
        return len(self._idle)

    def _take(self, n_bytes: int) -> _Block:
        """An idle block that fits and has rested, else a new one."""
        idle, passed_over, found = self._idle, [], None
        largest = max(SMALL, MAX_WASTE * n_bytes)
        # Without rest the newest first, which the processor's cache may still hold; else the one that rested longest.
        pop, put_back = (idle.popleft, idle.appendleft) if self._rest else (idle.pop, idle.append)
        try:
            for _ in range(self._ring):
                block = pop()
                if n_bytes <= block.n_bytes <= largest and self._batches - block.returned >= self._rest:
                    found = block
                    break
                passed_over.append(block)
        except IndexError:  # none left; another thread may have taken the last
            pass
        for block in reversed(passed_over):
            put_back(block)
        return _Block(self._allocate(n_bytes)) if found is None else found

    def __reduce__(self) -> tuple[type[BufferPool], tuple[Any, ...]]:
        return type(self), (self._ring, self._rest, self._allocate)
