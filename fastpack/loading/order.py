"""Epoch orders: a permutation as an object that gives any stretch of it, and how a rank steps through it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from fastpack import kernels

Indices: TypeAlias = npt.NDArray[Any]  # int32 where they fit, else int64; see index_dtype

WIDE_FROM = 0xFFFFFFFF // 20  # torch.randperm draws 64 bits an element from this length on
BLOCK = 1 << 14  # indices turned into Python ints, or computed, at a time
# Part of every key of order="feistel": an order, once trained on, must come back. Another network needs another number.
FEISTEL_VERSION = 1


def index_dtype(n: int) -> np.dtype[Any]:
    """The dtype of indices below `n`: int32 where they fit."""
    return np.dtype(np.int32 if n < 1 << 31 else np.int64)


class TorchGenerator:
    """torch's CPU generator after `manual_seed(seed)`, as far as `torch.randperm` needs it."""

    def __init__(self, seed: int) -> None:
        self._state = np.empty(625, np.uint32)
        kernels.seed_generator(self._state, seed & 0xFFFFFFFF)

    def copy(self) -> TorchGenerator:
        """A generator that goes on from the same state."""
        twin = TorchGenerator.__new__(TorchGenerator)
        twin._state = self._state.copy()
        return twin

    def permutation(self, n: int) -> Indices:
        """What `torch.randperm(n, generator=self)` returns, int32 [n] where that fits, else int64."""
        return self.shuffle(np.arange(n, dtype=index_dtype(n)))

    def shuffle(self, values: Indices) -> Indices:
        """`values[torch.randperm(len(values), generator=self)]`, done in place; returns `values`."""
        kernels.shuffle(self._state, len(values) >= WIDE_FROM, values)
        return values


class Order(Protocol):
    """A sequence of `n` indices, all below some bound that its dtype holds."""

    @property
    def n(self) -> int:
        """How many indices there are."""
        ...

    def take(self, first: int, step: int, count: int) -> Indices:
        """The indices at first, first + step, ..., `count` of them, all within [0, n)."""
        ...

    def at(self, places: npt.NDArray[np.int64]) -> Indices:
        """The indices at these places of [0, n)."""
        ...


@dataclass(frozen=True)
class HeldOrder:
    """An order held in memory."""

    indices: Indices

    @property
    def n(self) -> int:
        return len(self.indices)

    def take(self, first: int, step: int, count: int) -> Indices:
        # A copy when strided, so that a rank does not keep the whole order alive.
        part = self.indices[first : first + step * (count - 1) + 1 : step] if count > 0 else self.indices[:0]
        return np.ascontiguousarray(part)

    def at(self, places: npt.NDArray[np.int64]) -> Indices:
        return self.indices[places]


@dataclass(frozen=True)
class StraightOrder:
    """0, 1, ..., n - 1, not stored."""

    n: int

    def take(self, first: int, step: int, count: int) -> Indices:
        return np.arange(first, first + step * (count - 1) + 1, step, dtype=index_dtype(self.n))

    def at(self, places: npt.NDArray[np.int64]) -> Indices:
        return places.astype(index_dtype(self.n), copy=False)


class FeistelOrder:
    """A permutation of 0..n-1 that is computed where it is asked for and takes no memory; see `kernels.feistel`."""

    def __init__(self, n: int, seed: int, epoch: int, stream: int = 0) -> None:
        self.n = n
        self._keys = feistel_keys(seed, epoch, stream)

    def take(self, first: int, step: int, count: int) -> Indices:
        return self.at(np.arange(first, first + step * count, step, dtype=np.int64))

    def at(self, places: npt.NDArray[np.int64]) -> Indices:
        out = np.empty(len(places), index_dtype(self.n))
        kernels.feistel(self.n, self._keys, places, out)
        return out


def feistel_keys(seed: int, epoch: int, stream: int = 0) -> npt.NDArray[np.uint64]:
    """uint64 [4] for the permutation number `stream` of (seed, epoch): SplitMix64, seeded by all three in turn.

    Unlike torch's seed + epoch, (seed 42, epoch 1) and (seed 43, epoch 0) are different orders.
    """
    state = FEISTEL_VERSION
    for number in (seed, epoch, stream):
        state = _splitmix(state ^ number)
    return np.array([_splitmix(state + k * 0x9E3779B97F4A7C15) for k in range(4)], np.uint64)


def _splitmix(state: int) -> int:
    """The number SplitMix64 gives in this state."""
    mask = 0xFFFFFFFFFFFFFFFF
    value = (state + 0x9E3779B97F4A7C15) & mask
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & mask
    value = (value ^ value >> 27) * 0x94D049BB133111EB & mask
    return value ^ value >> 31


@dataclass(frozen=True)
class Steps:
    """One rank's way through an order: places first, first + step, ..., `count` of them, modulo `length`, modulo `n`.

    The second wrap repeats the order's beginning (padding to a multiple of the ranks), the first that of the layout
    itself (padding of what is left after a change of the world size).
    """

    order: Order
    length: int
    first: int
    step: int
    count: int

    def take(self, start: int, count: int) -> Indices:
        """Entries start, start + 1, ... of the way; fewer than `count` at its end."""
        count = max(0, min(count, self.count - start))
        parts, place = [], self.first + start * self.step
        while count:
            within = place % self.length
            offset = within % self.order.n
            room = min(self.length - within, self.order.n - offset)  # places until one of the wraps
            taken = min(count, -(-room // self.step))
            parts.append(self.order.take(offset, self.step, taken))
            place += taken * self.step
            count -= taken
        if len(parts) == 1:
            return parts[0]
        return np.concatenate(parts) if parts else self.order.take(0, 1, 0)

    def settled(self) -> Steps:
        """The same way with no more in memory than this rank's own part."""
        if not isinstance(self.order, HeldOrder) or self.step == 1:
            return self
        own = HeldOrder(self.take(0, self.count))
        return Steps(own, max(1, self.count), 0, 1, self.count)

    def blocks(self, start: int, size: int) -> Iterator[Indices]:
        """The entries from `start` on, `size` at a time."""
        for first in range(start, self.count, size):
            yield self.take(first, size)


def integers(blocks: Iterator[Indices]) -> Iterator[int]:
    """The entries of arrays as Python ints, one by one."""
    for block in blocks:
        yield from block.tolist()


def this_process() -> tuple[int, int]:
    """(number of ranks, this rank) of torch.distributed where it runs already, else (1, 0). Never imports torch."""
    distributed: Any = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return distributed.get_world_size(), distributed.get_rank()
    return 1, 0
