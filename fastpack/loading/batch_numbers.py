"""A sampler's numbers, cut into batches."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from fastpack.datasets.base import BatchDataset, Selection
from fastpack.datasets.outputs import WHOLE_OUTPUTS

if TYPE_CHECKING:
    from fastpack.loading.loader import StatefulDataLoader

BATCHES_A_BLOCK = 512  # of an order that is computed, not stored


class BatchNumbers:
    """The sample numbers of the batches that a loader's next `iter()` would give: lists of int.

    This is what a loader's `batch_sampler` is to tools that expect torch's DataLoader (Lightning, accelerate,
    transformers): some ask for its attributes, accelerate's `skip_first_batches` loads the batches of the lists
    from the dataset itself. Iterating does not move the loader.
    """

    drop_last = True

    def __init__(self, loader: StatefulDataLoader) -> None:
        self._loader = loader
        self.sampler, self.batch_size = loader.sampler, loader.batch_size

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[list[int]]:
        options = self._row_options()
        with self._loader._lock:
            plan = self._loader._plan()
        return (Selection(_integers(numbers), options) for numbers in plan)

    def _row_options(self) -> dict[str, Any]:
        """How the dataset is to make rows like the loader's; ValueError where it cannot."""
        loader, options = self._loader, self._loader._batch_options()
        whole = [name for name in WHOLE_OUTPUTS if name in (loader.outputs or ())]
        chosen = loader.outputs is not None or loader.dtype != "int64"
        if whole or (options and chosen and not isinstance(loader.dataset, BatchDataset)):
            what = f"outputs={list(loader.outputs or ())}, dtype={loader.dtype!r}"
            raise ValueError(
                f"a batch of this loader ({what}) cannot be put together from samples of its dataset, as "
                "skip_first_batches does: iterate the loader itself, and resume it with load_state_dict()"
            )
        return options

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
