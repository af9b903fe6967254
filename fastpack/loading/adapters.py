"""Adapters that let the loader use any map-style dataset and any iterable of sample numbers."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

import numpy as np

from fastpack.datasets.base import Indices
from fastpack.datasets.map_dataset import MapDataset
from fastpack.datasets.outputs import Allocate, Outputs
from fastpack.loading.protocols import BatchDataset, ResumableSampler

# What determines the order of a sampler without a fingerprint(), other than the epoch.
ORDER_ATTRIBUTES = ("seed", "shuffle", "drop_last")


def as_batch_dataset(dataset: Any) -> BatchDataset[Any] | DatasetAdapter:
    """Return `dataset` itself if it is a `BatchDataset`, otherwise an adapter of it."""
    return dataset if isinstance(dataset, BatchDataset) else DatasetAdapter(dataset)


def as_resumable_sampler(sampler: Any) -> ResumableSampler:
    """Return `sampler` itself if it is a `ResumableSampler`, otherwise an adapter of it."""
    return sampler if isinstance(sampler, ResumableSampler) else SamplerAdapter(sampler)


class DatasetAdapter:
    """Any map-style dataset, with its optional methods as attributes: None for those that it does not have.

    Attributes
    ----------
    batch, fill
        As of a `BatchDataset`, though `batch` may return anything and lack options.
    batch_options : frozenset of str
        The names of the parameters of `batch`.
    will_need, check_unchanged
        As of a `BatchDataset`.
    """

    def __init__(self, dataset: MapDataset[Any]) -> None:
        self._dataset: Any = dataset
        self.batch = self._optional("batch")
        self.fill = self._optional("fill") if self.batch else None
        self.batch_options = frozenset(inspect.signature(self.batch).parameters if self.batch else ())
        self.will_need = self._optional("will_need")
        self.check_unchanged = self._optional("check_unchanged")
        self._row_types: dict[str, tuple[tuple[int, ...], np.dtype[Any]]] | None = None

    def _optional(self, name: str) -> Callable[..., Any] | None:
        method = getattr(self._dataset, name, None)
        return method if callable(method) else None

    def new_outputs(self, numbers: Indices, options: Mapping[str, Any], empty: Allocate) -> Outputs:
        """Allocate the arrays of a batch; their shapes and dtypes are those of a batch of one sample."""
        if self._row_types is None:
            assert self.batch is not None
            first = self.batch(numbers[:1], **options)
            arrays = {name: np.asarray(array) for name, array in first.items()}
            self._row_types = {name: (array.shape[1:], array.dtype) for name, array in arrays.items()}
        return {name: empty((len(numbers), *shape), dtype) for name, (shape, dtype) in self._row_types.items()}


class SamplerAdapter:
    """A `ResumableSampler` of any iterable of sample numbers: a list, an array, torch's or KempnerForge's samplers.

    Methods that the sampler has are forwarded; a skip is otherwise applied here, and a state is empty.
    """

    def __init__(self, sampler: Iterable[Any]) -> None:
        self._sampler: Any = sampler
        self._skip = 0

    def _forward(self, name: str, *arguments: Any) -> Any:
        method = getattr(self._sampler, name, None)
        return None if method is None else method(*arguments)

    @property
    def num_replicas(self) -> int:
        """The number of ranks: 1 unless the sampler has the attribute."""
        return int(getattr(self._sampler, "num_replicas", 1))

    def __len__(self) -> int:
        return len(self._sampler)

    def blocks(self, size: int) -> Iterator[Any]:
        """Yield the sample numbers after the skip, `size` at a time, as arrays or lists."""
        skip, self._skip = self._skip, 0
        numbers = self._sampler
        if not isinstance(numbers, np.ndarray) and hasattr(numbers, "indices"):
            numbers = numbers.indices()
        if isinstance(numbers, np.ndarray):
            return (numbers[start : start + size] for start in range(skip, len(numbers), size))
        return _listed(islice(iter(numbers), skip, None), size)

    def set_epoch(self, epoch: int) -> None:
        """Forward `set_epoch`."""
        self._forward("set_epoch", epoch)

    def set_skip(self, skip: int) -> None:
        """Forward `set_skip`, or skip in the next `blocks`."""
        if hasattr(self._sampler, "set_skip"):
            self._sampler.set_skip(skip)
        else:
            self._skip = skip

    def resume_at(self, consumed: int, base_num_replicas: int) -> None:
        """Forward `resume_at`."""
        self.check_resume_at(base_num_replicas)
        self._sampler.resume_at(consumed, base_num_replicas)

    def check_resume_at(self, base_num_replicas: int) -> None:
        """Raise ValueError if the sampler has no `resume_at`."""
        if not hasattr(self._sampler, "resume_at"):
            raise ValueError(
                f"a {type(self._sampler).__name__} cannot share out the rest of an epoch that {base_num_replicas} "
                "ranks began: it has no resume_at(consumed, base_num_replicas)"
            )

    def forget_resume(self) -> None:
        """Forward `forget_resume`."""
        self._forward("forget_resume")

    def fingerprint(self) -> Mapping[str, Any]:
        """Forward `fingerprint`, or return the attributes that usually determine an order."""
        found: Mapping[str, Any] | None = self._forward("fingerprint")
        if found is not None:
            return found
        return {name: getattr(self._sampler, name) for name in ORDER_ATTRIBUTES if hasattr(self._sampler, name)}

    def state_dict(self) -> dict[str, Any]:
        """Forward `state_dict`."""
        return self._forward("state_dict") or {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Forward `load_state_dict`."""
        self._forward("load_state_dict", state)


def _listed(samples: Iterator[Any], size: int) -> Iterator[list[Any]]:
    while block := list(islice(samples, size)):
        yield block
