"""Sample numbers to a batch, by the methods that the dataset has: `fill`, `batch`, or one sample at a time."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from fastpack import kernels
from fastpack.datasets.base import RowDataset
from fastpack.datasets.outputs import WHOLE_OUTPUTS, OutputDtype, Outputs
from fastpack.datasets.row_format import DATASET_IDX
from fastpack.datasets.row_shares import Spans
from fastpack.item_numbers import item_numbers
from fastpack.loading.adapters import as_batch_dataset
from fastpack.loading.buffers import BufferPool
from fastpack.loading.context_parallel import GLOBAL_OUTPUTS, ContextShare, CpLayout
from fastpack.loading.default_collate import collate
from fastpack.loading.leased_rows import LeasedRows, cut_windows, has_rows, why_not_shared
from fastpack.loading.protocols import BatchDataset

# Compiling the Numba kernels takes a second and saves 0.2 ns per token over the Cython ones: it pays from here on. Not
# for rows with doc_ids, which the Cython kernels fill faster.
WARM_TOKENS = 5_000_000_000

CollateFn: TypeAlias = Callable[[list[Any]], Any]


class BatchOptions(NamedTuple):
    """The options of a loader's batches."""

    collate_fn: CollateFn | None
    outputs: Sequence[str] | None
    dtype: OutputDtype
    num_threads: int
    cu_seqlens_length: int | None
    context_parallel: tuple[int, int] | None = None
    cp_layout: CpLayout = "zigzag"
    shapes_only: bool = False
    share_memory: bool | None = None


def make_fetch(dataset: Any, options: BatchOptions, pool: BufferPool, cut: bool = True) -> Fetch:
    """Return what makes a batch of `dataset`; ValueError if the dataset lacks a requested option.

    cut: whether the one array of a loader with share_memory is cut into input_ids and labels.
    """
    in_windows = _shares_memory(dataset, options)
    if options.shapes_only:
        return ShapeFetch(dataset, options)
    if options.context_parallel is not None:
        return ShareFetch(dataset, options, pool)
    arguments = batch_arguments(dataset, options)
    if arguments is None:
        return SampleFetch(dataset, options.collate_fn, pool)
    source = as_batch_dataset(dataset)
    if source.fill is None:
        return BatchFetch(dataset, arguments)

    if has_rows(dataset):
        rows = LeasedRows(dataset, arguments, pool.lease, in_windows)
        return FillFetch(rows.fill, rows.allocate, options.num_threads, cut_windows if in_windows and cut else None)

    def allocate(numbers: npt.NDArray[np.int64]) -> Outputs:
        if isinstance(source, BatchDataset):
            return source.new_outputs(len(numbers), empty=pool.lease, **arguments)
        return source.new_outputs(numbers, arguments, pool.lease)

    return FillFetch(source.fill, allocate, options.num_threads)


def _shares_memory(dataset: Any, options: BatchOptions) -> bool:
    """Return whether input_ids and labels are views of one array; ValueError if they must be and cannot."""
    if options.share_memory is False:
        return False
    if options.context_parallel is not None:
        why: str | None = "context_parallel cuts each row"
    else:
        why = why_not_shared(dataset, batch_arguments(dataset, options))
    if why is not None and options.share_memory:
        raise ValueError(f"share_memory=True is not possible: {why}. Omit it to get an array for each")
    return why is None


def batch_arguments(dataset: Any, options: BatchOptions) -> dict[str, Any] | None:
    """Return the arguments of `dataset.batch` other than the sample numbers; None if samples are collated.

    Raises
    ------
    ValueError
        If the dataset lacks a requested option.
    """
    outputs, length = options.outputs, options.cu_seqlens_length
    if options.context_parallel is not None and outputs is not None:
        outputs = [name for name in outputs if name not in GLOBAL_OUTPUTS]
    accepted = _batch_parameters(dataset) if options.collate_fn is None else None
    if outputs is not None and (accepted is None or "outputs" not in accepted):
        why = "with a collate_fn" if options.collate_fn is not None else f"of a {type(dataset).__name__}"
        raise ValueError(f"outputs cannot be chosen {why}: that takes a dataset with batch(indices, outputs=...)")
    if length is not None and "cu_seqlens" not in (outputs or ()):
        raise ValueError("cu_seqlens_length= is for the output cu_seqlens, which was not requested")
    if accepted is None:
        return None
    arguments: dict[str, Any] = {"dtype": options.dtype} if "dtype" in accepted else {}
    if outputs is not None:
        arguments["outputs"] = tuple(outputs)
    if length is not None:
        arguments["cu_seqlens_length"] = length
    whole = [name for name in WHOLE_OUTPUTS if name in (outputs or ())]
    if whole and options.num_threads > 1:
        raise ValueError(f"{', '.join(whole)} are of a whole batch, which num_threads > 1 would slice")
    return arguments


def output_names(dataset: Any, options: BatchOptions) -> list[str]:
    """Return the names of the arrays of a batch; none if samples are collated, or batches are of another kind."""
    if options.context_parallel is not None:
        return list(make_share(dataset, options).new_outputs(0, np.empty))
    arguments = batch_arguments(dataset, options)
    if arguments is None or not isinstance(dataset, BatchDataset):
        return []
    return list(dataset.new_outputs(0, **arguments))


def warm_kernels(dataset: Any, options: BatchOptions, n_samples: Callable[[], int]) -> None:
    """Switch to the Numba kernels where that pays: in a main process, before an epoch of many tokens."""
    is_main = multiprocessing.parent_process() is None
    has_rows = options.collate_fn is None and options.context_parallel is None
    if is_main and has_rows and isinstance(dataset, BatchDataset) and len(dataset):
        arrays = dataset.new_outputs(1, **(batch_arguments(dataset, options) or {}))
        n_tokens = max((array.size for array in arrays.values() if array is not None), default=0)
        if "doc_ids" not in arrays and n_samples() * n_tokens >= WARM_TOKENS:
            kernels.warm(out_dtypes=(options.dtype,))


def _batch_parameters(dataset: Any) -> frozenset[str] | None:
    """Return the names of the parameters of `batch`; None if the dataset has no `batch`."""
    source = as_batch_dataset(dataset)
    if isinstance(source, BatchDataset):
        return frozenset(("outputs", "dtype", "cu_seqlens_length"))
    return source.batch_options if source.batch is not None else None


class Fetch:
    """Makes a batch of sample numbers."""

    will_need: Callable[[Any], object] | None = None  # instead of the dataset's

    def __call__(self, indices: Any) -> Any:
        """Return the batch of these samples."""
        raise NotImplementedError

    def with_spans(self, indices: Any) -> tuple[Any, Spans | None]:
        """Return the batch of these samples, and which spans of their rows it holds; None: whole rows."""
        return self(indices), None

    @contextmanager
    def session(self) -> Iterator[None]:
        """Hold resources that many batches share."""
        yield


class SampleFetch(Fetch):
    """Collates samples: `__getitems__` of the dataset where it has that, otherwise `[i]` for each one."""

    def __init__(self, dataset: Any, collate_fn: CollateFn | None, pool: BufferPool) -> None:
        self._dataset, self._collate_fn, self._pool = dataset, collate_fn, pool

    def __call__(self, indices: Any) -> Any:
        numbers = indices.tolist() if isinstance(indices, np.ndarray) else indices
        several: Any = getattr(self._dataset, "__getitems__", None)
        samples: list[Any] = [self._dataset[number] for number in numbers] if several is None else several(numbers)
        return collate(samples, self._pool) if self._collate_fn is None else self._collate_fn(samples)


class BatchFetch(Fetch):
    """Returns the result of the dataset's `batch`."""

    def __init__(self, dataset: Any, arguments: dict[str, Any]) -> None:
        self._dataset, self._arguments = dataset, arguments

    def __call__(self, indices: Any) -> Any:
        return self._dataset.batch(indices, **self._arguments)


class ShareFetch(Fetch):
    """Fills leased arrays with this rank's share of each row."""

    def __init__(self, dataset: Any, options: BatchOptions, pool: BufferPool) -> None:
        self._share, self._pool = make_share(dataset, options), pool
        self.will_need = self._share.will_need

    def __call__(self, indices: Any) -> Any:
        return self.with_spans(indices)[0]

    def with_spans(self, indices: Any) -> tuple[Any, Spans | None]:
        numbers = item_numbers(indices)
        cut = self._share.cut(numbers)
        return self._share.fill(cut, len(numbers), self._pool.lease), cut.spans


class ShapeFetch(Fetch):
    """Makes arrays of the right shapes and dtypes that hold only zeros and take no memory; no token is read."""

    def __init__(self, dataset: Any, options: BatchOptions) -> None:
        if not isinstance(dataset, RowDataset):
            raise ValueError(f"shapes_only is for rows of tokens: a {type(dataset).__name__} has none")
        self._dataset, self._share, self._arguments = dataset, None, {}
        if options.context_parallel is not None:
            self._share = make_share(dataset, options)
        else:
            self._arguments = batch_arguments(dataset, options) or {}
        unknown = [name for name, array in self._outputs(1).items() if array is None]
        if unknown:
            raise ValueError(f"shapes_only: {', '.join(unknown)} depend on the tokens")
        self.will_need = lambda _: None

    def _outputs(self, n_rows: int) -> Outputs:
        if self._share is not None:
            return self._share.new_outputs(n_rows, _zeros)
        return self._dataset.new_outputs(n_rows, empty=_zeros, **self._arguments)

    def __call__(self, indices: Any) -> Any:
        numbers = item_numbers(indices)
        out = self._outputs(len(numbers))
        if DATASET_IDX in out:
            out[DATASET_IDX] = np.empty(len(numbers), np.int64)
            self._dataset.fill(numbers, {DATASET_IDX: out[DATASET_IDX]})
        return out


def _zeros(shape: tuple[int, ...], dtype: Any) -> npt.NDArray[Any]:
    """Return zeros in the memory of one; writeable, so that torch makes a tensor of them without a warning."""
    return np.lib.stride_tricks.as_strided(np.zeros(1, dtype), shape, (0,) * len(shape))


def make_share(dataset: Any, options: BatchOptions) -> ContextShare:
    """Return this rank's share of a dataset's rows; ValueError for options that do not allow one."""
    if options.collate_fn is not None or options.num_threads > 1 or options.context_parallel is None:
        raise ValueError("context_parallel takes neither a collate_fn nor num_threads > 1")
    place = options.context_parallel, options.cp_layout
    return ContextShare(dataset, *place, options.outputs, options.dtype, options.cu_seqlens_length)


class FillFetch(Fetch):
    """Fills leased arrays by the dataset's `fill`, in slices over `num_threads` threads."""

    def __init__(
        self,
        fill: Callable[[npt.NDArray[np.int64], Outputs], Any],
        allocate: Callable[[npt.NDArray[np.int64]], Outputs],
        num_threads: int,
        finish: Callable[[Outputs], Outputs] | None = None,
    ) -> None:
        self._fill, self._allocate, self._num_threads, self._finish = fill, allocate, num_threads, finish
        self._local = threading.local()  # the slicing threads of the thread that makes batches

    @contextmanager
    def session(self) -> Iterator[None]:
        """Keep the slicing threads between batches: starting and ending them takes 200 us."""
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
        out = self._allocate(numbers)
        if self._num_threads == 1:
            self._fill(numbers, out)
        else:
            self._fill_sliced(numbers, out)
        return out if self._finish is None else self._finish(out)

    def _fill_sliced(self, numbers: npt.NDArray[np.int64], out: Outputs) -> None:
        bounds = np.linspace(0, len(numbers), self._num_threads + 1).astype(int).tolist()
        slices = [slice(first, end) for first, end in pairwise(bounds) if first < end]

        def fill(rows: slice) -> None:
            self._fill(numbers[rows], {name: array[rows] for name, array in out.items()})

        # Without a session the batch is made in the caller's thread.
        with nullcontext() if hasattr(self._local, "threads") else self.session():
            for done in [self._local.threads.submit(fill, rows) for rows in slices]:
                done.result()
