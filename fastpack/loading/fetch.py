"""Sample numbers -> a batch, the way the dataset offers: `fill`, `batch`, or one sample after the other."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fastpack.datasets.outputs import WHOLE_OUTPUTS
from fastpack.item_numbers import item_numbers
from fastpack.loading.buffers import BufferPool
from fastpack.loading.default_collate import collate

Fetch: TypeAlias = Callable[[Any], Any]
Rows: TypeAlias = dict[str, tuple[tuple[int, ...], np.dtype[Any]]]


def make_fetch(
    dataset: Any,
    collate_fn: Callable[[list[Any]], Any] | None,
    pool: BufferPool,
    outputs: Sequence[str] | None,
    dtype: str,
    num_threads: int,
    cu_seqlens_length: int | None = None,
) -> Fetch:
    """What makes a batch of `dataset`; ValueError where it cannot do what was asked for."""
    options = batch_options(dataset, collate_fn, outputs, dtype, num_threads, cu_seqlens_length)
    if options is None:
        return SampleFetch(dataset, collate_fn, pool)
    if callable(getattr(dataset, "fill", None)):
        return FillFetch(dataset, options, pool, num_threads)
    return BatchFetch(dataset, options)


def batch_options(
    dataset: Any,
    collate_fn: Callable[[list[Any]], Any] | None,
    outputs: Sequence[str] | None,
    dtype: str,
    num_threads: int,
    cu_seqlens_length: int | None,
) -> dict[str, Any] | None:
    """What `dataset.batch` is given next to the sample numbers; None where batches are made sample by sample.

    Raises ValueError where the dataset cannot do what was asked for.
    """
    takes = _batch_parameters(dataset) if collate_fn is None else None
    if outputs is not None and (takes is None or "outputs" not in takes):
        why = "with a collate_fn" if collate_fn is not None else f"of a {type(dataset).__name__}"
        raise ValueError(f"outputs cannot be chosen {why}: that takes a dataset with batch(indices, outputs=...)")
    if cu_seqlens_length is not None and "cu_seqlens" not in (outputs or ()):
        raise ValueError("cu_seqlens_length= is for the output cu_seqlens, which was not asked for")
    if takes is None:
        return None
    options: dict[str, Any] = {"dtype": dtype} if "dtype" in takes else {}
    if outputs is not None:
        options["outputs"] = tuple(outputs)
    if cu_seqlens_length is not None:
        options["cu_seqlens_length"] = cu_seqlens_length
    whole = [name for name in WHOLE_OUTPUTS if name in (outputs or ())]
    if whole and num_threads > 1:
        raise ValueError(f"{', '.join(whole)} are of a whole batch, which num_threads > 1 would slice")
    return options


def _batch_parameters(dataset: Any) -> frozenset[str] | None:
    batch = getattr(dataset, "batch", None)
    return frozenset(inspect.signature(batch).parameters) if callable(batch) else None


class SampleFetch:
    """`[i]` for each sample (all at once where the dataset has `__getitems__`), then collate."""

    def __init__(self, dataset: Any, collate_fn: Callable[[list[Any]], Any] | None, pool: BufferPool) -> None:
        self._dataset, self._collate_fn, self._pool = dataset, collate_fn, pool

    def __call__(self, indices: Any) -> Any:
        numbers = indices.tolist() if isinstance(indices, np.ndarray) else indices
        several: Any = getattr(self._dataset, "__getitems__", None)
        samples: list[Any] = [self._dataset[number] for number in numbers] if several is None else several(numbers)
        return collate(samples, self._pool) if self._collate_fn is None else self._collate_fn(samples)


class BatchFetch:
    """Whatever the dataset's `batch` gives."""

    def __init__(self, dataset: Any, options: dict[str, Any]) -> None:
        self._dataset, self._options = dataset, options

    def __call__(self, indices: Any) -> Any:
        return self._dataset.batch(indices, **self._options)


class FillFetch:
    """Leased arrays that the dataset fills, sliced over threads when wanted."""

    def __init__(self, dataset: Any, options: dict[str, Any], pool: BufferPool, num_threads: int) -> None:
        self._dataset, self._options, self._pool, self._num_threads = dataset, options, pool, num_threads
        self._rows: Rows | None = None
        self._local = threading.local()  # the threads of the thread that makes batches

    @contextmanager
    def session(self) -> Iterator[None]:
        """Keep the threads from batch to batch meanwhile: starting and ending them takes 200 us."""
        if self._num_threads == 1:
            yield
            return
        with ThreadPoolExecutor(self._num_threads, "fastpack-slice") as self._local.threads:
            try:
                yield
            finally:
                del self._local.threads

    def __call__(self, indices: Any) -> Any:
        numbers = item_numbers(indices)
        out = self._new_outputs(numbers)
        if self._num_threads == 1:
            self._dataset.fill(numbers, out)
        else:
            self._fill_sliced(numbers, out)
        return out

    def _new_outputs(self, numbers: npt.NDArray[np.int64]) -> Any:
        if hasattr(self._dataset, "new_outputs"):
            return self._dataset.new_outputs(len(numbers), empty=self._pool.lease, **self._options)
        if self._rows is None:  # shape and dtype of a row of each output, from a batch of one
            one = self._dataset.batch(numbers[:1], **self._options)
            arrays = {name: np.asarray(array) for name, array in one.items()}
            self._rows = {name: (array.shape[1:], array.dtype) for name, array in arrays.items()}
        return {name: self._pool.lease((len(numbers), *shape), dtype) for name, (shape, dtype) in self._rows.items()}

    def _fill_sliced(self, numbers: npt.NDArray[np.int64], out: dict[str, npt.NDArray[Any]]) -> None:
        bounds = np.linspace(0, len(numbers), self._num_threads + 1).astype(int).tolist()
        slices = [slice(first, end) for first, end in pairwise(bounds) if first < end]

        def fill(part: slice) -> None:
            self._dataset.fill(numbers[part], {name: array[part] for name, array in out.items()})

        # No session: the batch is made where it was asked for.
        with nullcontext() if hasattr(self._local, "threads") else self.session():
            for done in [self._local.threads.submit(fill, part) for part in slices]:
                done.result()
