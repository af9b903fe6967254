"""Epoch orders: a permutation that can be read at any position, and the steps of a rank through it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from fastpack.datasets.permutations import Indices, index_dtype

BLOCK = 1 << 14  # indices that are computed, or converted to Python ints, at a time


class Order(Protocol):
    """A sequence of `n` indices."""

    @property
    def n(self) -> int:
        """The number of indices."""
        ...

    def take(self, first: int, step: int, count: int) -> Indices:
        """Return the indices at positions first, first + step, ..., `count` of them, all within [0, n)."""
        ...

    def at(self, positions: npt.NDArray[np.int64]) -> Indices:
        """Return the indices at these positions of [0, n)."""
        ...


@dataclass(frozen=True)
class HeldOrder:
    """An order that is stored."""

    indices: Indices

    @property
    def n(self) -> int:
        return len(self.indices)

    def take(self, first: int, step: int, count: int) -> Indices:
        # Strided: a copy, so that a rank does not keep the whole order in memory.
        taken = self.indices[first : first + step * (count - 1) + 1 : step] if count > 0 else self.indices[:0]
        return np.ascontiguousarray(taken)

    def at(self, positions: npt.NDArray[np.int64]) -> Indices:
        return self.indices[positions]


@dataclass(frozen=True)
class StraightOrder:
    """0, 1, ..., n - 1, not stored."""

    n: int

    def take(self, first: int, step: int, count: int) -> Indices:
        return np.arange(first, first + step * (count - 1) + 1, step, dtype=index_dtype(self.n))

    def at(self, positions: npt.NDArray[np.int64]) -> Indices:
        return positions.astype(index_dtype(self.n), copy=False)


@dataclass(frozen=True)
class Steps:
    """The positions of one rank in an order: first, first + step, ..., `count` of them, modulo `length`, modulo `n`.

    The modulo n repeats the start of the order (padding to a multiple of the ranks); the modulo length repeats the
    start of that padded layout (padding of the rest of an epoch after a change of the world size).
    """

    order: Order
    length: int
    first: int
    step: int
    count: int

    def take(self, start: int, count: int) -> Indices:
        """Return the indices at steps start, start + 1, ...; fewer than `count` at the end."""
        count = max(0, min(count, self.count - start))
        pieces, position = [], self.first + start * self.step
        while count:
            within = position % self.length
            offset = within % self.order.n
            until_wrap = min(self.length - within, self.order.n - offset)
            taken = min(count, -(-until_wrap // self.step))
            pieces.append(self.order.take(offset, self.step, taken))
            position += taken * self.step
            count -= taken
        if len(pieces) == 1:
            return pieces[0]
        return np.concatenate(pieces) if pieces else self.order.take(0, 1, 0)

    def settled(self) -> Steps:
        """Return the same steps, holding only this rank's own indices in memory."""
        if not isinstance(self.order, HeldOrder) or self.step == 1:
            return self
        own = HeldOrder(self.take(0, self.count))
        return Steps(own, max(1, self.count), 0, 1, self.count)

    def blocks(self, start: int, size: int) -> Iterator[Indices]:
        """Yield the indices from step `start` on, `size` at a time."""
        for first in range(start, self.count, size):
            yield self.take(first, size)


def this_process() -> tuple[int, int]:
    """Return the number of ranks and this rank: those of torch.distributed if initialized, else (1, 0).

    Never imports torch.
    """
    distributed: Any = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return distributed.get_world_size(), distributed.get_rank()
    return 1, 0
