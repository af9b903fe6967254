"""A sampler's numbers, cut into batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np

from fastpack.datasets.base import RowDataset, Selection
from fastpack.datasets.outputs import WHOLE_OUTPUTS
from fastpack.loading.adapters import SamplerAdapter
from fastpack.loading.fetch import BatchOptions, batch_arguments
from fastpack.loading.mixture_epochs import MixtureEpochs
from fastpack.loading.protocols import ResumableSampler

BATCHES_PER_BLOCK = 512  # of an order that is computed, not stored


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


def row_options(dataset: Any, options: BatchOptions) -> dict[str, Any]:
    """Return the options of `dataset.batch` that produce rows like a loader's; ValueError if none do."""
    whole = [name for name in WHOLE_OUTPUTS if name in (options.outputs or ())]
    whole += ["context_parallel"] * (options.context_parallel is not None or options.shapes_only)
    arguments = {} if whole else batch_arguments(dataset, options) or {}
    chosen = options.outputs is not None or options.dtype != "int64"
    if whole or (arguments and chosen and not isinstance(dataset, RowDataset)):
        what = f"outputs={list(options.outputs or ())}, dtype={options.dtype!r}"
        raise ValueError(
            f"a batch of this loader ({what}) cannot be put together from samples of its dataset, as "
            "skip_first_batches does: iterate the loader itself, and resume it with load_state_dict()"
        )
    return arguments


def _integers(numbers: Any) -> list[Any]:
    listed: list[Any] = numbers.tolist() if isinstance(numbers, np.ndarray) else list(numbers)
    return listed


def batches_of(sampler: ResumableSampler, size: int) -> Iterator[Any]:
    """Return the sample numbers of each whole batch of the sampler's next iteration, which starts now."""
    # An adapted sampler may be an iterator, which is not read ahead.
    n_batches = 1 if isinstance(sampler, SamplerAdapter) else BATCHES_PER_BLOCK
    if isinstance(sampler, MixtureEpochs):
        return sampler.batches(size, n_batches)
    blocks = sampler.blocks(size * n_batches)  # not within the generator: the sampler may change before the first batch
    return (numbers[start : start + size] for numbers in blocks for start in range(0, len(numbers) - size + 1, size))
