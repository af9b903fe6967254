"""A sampler's numbers, cut into batches."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, Protocol

import numpy as np

from fastpack.datasets.base import Selection

BATCHES_A_BLOCK = 512  # of an order that is computed, not stored


class BatchPlanner(Protocol):
    """A loader whose batches can be listed without loading them."""

    sampler: Any
    batch_size: int

    def __len__(self) -> int: ...

    def planned_batches(self) -> Iterator[Any]:
        """Return the sample numbers of each remaining batch of the epoch."""
        ...

    def row_options(self) -> dict[str, Any]:
        """Return the options for `dataset.batch` that produce rows like the loader's; raise ValueError if none do."""
        ...

    def set_epoch(self, epoch: int) -> None:
        """Start another epoch at the next `iter()`."""
        ...


class BatchNumbers:
    """The sample numbers of the batches that the next `iter()` of a loader yields, as lists of int.

    `StatefulDataLoader.batch_sampler` is one, for tools that expect torch's DataLoader (Lightning, accelerate,
    transformers): some read its attributes, and accelerate's `skip_first_batches` loads the listed batches from the
    dataset itself. Iterating it does not advance the loader.
    """

    drop_last = True

    def __init__(self, loader: BatchPlanner) -> None:
        self._loader = loader
        self.sampler, self.batch_size = loader.sampler, loader.batch_size

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[list[int]]:
        options, plan = self._loader.row_options(), self._loader.planned_batches()
        return (Selection(_integers(numbers), options) for numbers in plan)

    def set_epoch(self, epoch: int) -> None:
        """Set the loader's epoch."""
        self._loader.set_epoch(epoch)


def _integers(numbers: Any) -> list[Any]:
    listed: list[Any] = numbers.tolist() if isinstance(numbers, np.ndarray) else list(numbers)
    return listed


def batches_of(sampler: Any, skip: int, size: int) -> Iterator[Any]:
    """The sample numbers of each whole batch, after the first `skip` of them."""
    if isinstance(sampler, np.ndarray):
        return _sliced(sampler, skip, size)
    if skip == 0 and hasattr(sampler, "blocks"):
        return _of_blocks(sampler.blocks(size * BATCHES_A_BLOCK), size)
    if hasattr(sampler, "indices"):
        return _sliced(sampler.indices(), skip, size)
    return _listed(islice(iter(sampler), skip, None), size)


def _sliced(order: Any, first: int, size: int) -> Iterator[Any]:
    return (order[start : start + size] for start in range(first, len(order) - size + 1, size))


def _of_blocks(blocks: Iterator[Any], size: int) -> Iterator[Any]:
    """Batches of blocks that hold a whole number of them, but for the last one."""
    return (batch for block in blocks for batch in _sliced(block, 0, size))


def _listed(samples: Iterator[Any], size: int) -> Iterator[Any]:
    while len(batch := list(islice(samples, size))) == size:
        yield batch
