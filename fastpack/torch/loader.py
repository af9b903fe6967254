# mypy: disable-error-code="misc"
"""The loader, with batches of tensors, in pinned memory on request."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar, Unpack, overload

from fastpack.datasets.map_dataset import MapDataset
from fastpack.datasets.outputs import Batch, OutputDtype
from fastpack.loading.adapters import as_batch_dataset
from fastpack.loading.buffers import BufferPool
from fastpack.loading.context_parallel import CpLayout
from fastpack.loading.fetch import Fetch, make_fetch
from fastpack.loading.loader import StatefulDataLoader as _StatefulDataLoader
from fastpack.loading.protocols import BatchDataset, LoaderOptions
from fastpack.torch.device import MAX_IN_FLIGHT, DeviceFetch, map_tensors, open_stream, pinned_memory
from fastpack.torch.tensors import Tensor, from_arrays, torch  # pyright: ignore[reportAttributeAccessIssue]

SampleT = TypeVar("SampleT")
BatchT = TypeVar("BatchT")

REST = 2  # batches before pinned memory is reused: the copies of the last two to a device may be in flight


class TorchLoaderOptions(LoaderOptions, total=False):
    """The keyword-only arguments of `StatefulDataLoader`."""

    pin_memory: bool | None
    device: Any
    widen: bool


class StatefulDataLoader(_StatefulDataLoader[BatchT]):
    """`fastpack.StatefulDataLoader` that returns tensors, in the memory of the leased arrays.

    Samples of a dataset without `batch` are collated by torch's default_collate.

    Parameters
    ----------
    pin_memory
        Whether batches lie in page-locked memory; by default as `config.pin_memory`. Without a CUDA device nothing is
        pinned; True then warns. Pinned memory is reused two batches later, so `tensor.to(device, non_blocking=True)` is
        safe as long as the device is at most two batches behind.
    device
        A CUDA device, to get batches there: the background thread queues the copies of `prefetch` batches ahead, from
        pinned memory and on a stream of its own. The current stream of the thread that takes a batch waits for its
        copy; the thread itself does not. Values that are not tensors (max_seqlen) are kept, and so are batches with
        shapes_only. Default: batches stay in host memory.
    widen
        Whether to copy [B, L] arrays as int32 and convert them to int64 on the device.

    Raises
    ------
    ValueError
        If there is no such device, or for widen=True without one.

    Notes
    -----
    All other parameters are those of `fastpack.StatefulDataLoader`. With share_memory, a device gets the one array by
    one copy, and cuts it into input_ids and labels, each contiguous and with memory of its own. With pin_memory and
    without a device, the default is share_memory=False: copies of views to a device are not asynchronous.

    Examples
    --------
    >>> import tempfile, numpy as np, fastpack.torch
    >>> folder = tempfile.mkdtemp()
    >>> np.save(f"{folder}/a.npy", np.arange(40, dtype=np.uint16))
    >>> dataset = fastpack.torch.MemoryMappedDataset(folder, seq_len=4)
    >>> loader = fastpack.torch.StatefulDataLoader(dataset, batch_size=2, sampler=range(10))
    >>> next(iter(loader))["labels"]
    tensor([[1, 2, 3],
            [5, 6, 7]])
    >>> loader.close()
    """

    @overload
    def __init__(
        self: StatefulDataLoader[Batch[Tensor]],
        dataset: BatchDataset[Batch[Any]],
        batch_size: int,
        sampler: Iterable[int] | None = None,
        config: object = None,
        collate_fn: None = None,
        **options: Unpack[TorchLoaderOptions],
    ) -> None: ...
    @overload
    def __init__(
        self,
        dataset: MapDataset[SampleT],
        batch_size: int,
        sampler: Iterable[int] | None = None,
        config: object = None,
        *,
        collate_fn: Callable[[list[SampleT]], BatchT],
        **options: Unpack[TorchLoaderOptions],
    ) -> None: ...
    @overload
    def __init__(
        self: StatefulDataLoader[Any],
        dataset: MapDataset[Any],
        batch_size: int,
        sampler: Iterable[Any] | None = None,
        config: object = None,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        **options: Unpack[TorchLoaderOptions],
    ) -> None: ...
    def __init__(
        self,
        dataset: Any,
        batch_size: int,
        sampler: Iterable[Any] | None = None,
        config: object = None,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        *,
        prefetch: int | None = None,
        outputs: Sequence[str] | None = None,
        dtype: OutputDtype = "int64",
        num_threads: int = 1,
        elastic: bool = True,
        cu_seqlens_length: int | None = None,
        context_parallel: tuple[int, int] | None = None,
        cp_layout: CpLayout = "zigzag",
        shapes_only: bool = False,
        share_memory: bool | None = None,
        pin_memory: bool | None = None,
        device: Any = None,
        widen: bool = False,
    ) -> None:
        if widen and device is None:
            raise ValueError("widen=True converts on a device: pass device=, or dtype='int64'")
        self.device, self.widen = device, widen
        has_device = torch.cuda.is_available()
        if pin_memory and not has_device:
            warnings.warn("pin_memory=True, but torch finds no CUDA device: nothing is pinned", stacklevel=2)
        requested = getattr(config, "pin_memory", False) if pin_memory is None else pin_memory
        self.pin_memory = bool(requested and has_device)
        super().__init__(
            dataset,
            batch_size,
            sampler,
            config,
            collate_fn,
            prefetch=prefetch,
            outputs=outputs,
            dtype="int32" if widen else dtype,
            num_threads=num_threads,
            elastic=elastic,
            cu_seqlens_length=cu_seqlens_length,
            context_parallel=context_parallel,
            cp_layout=cp_layout,
            shapes_only=shapes_only,
            # A copy from pinned memory to a device is asynchronous only if it is contiguous.
            share_memory=False if share_memory is None and self.pin_memory and device is None else share_memory,
        )

    def _make_pool(self) -> BufferPool:
        self._stream = None if self.device is None or self.shapes_only else open_stream(self.device)
        self._cuts_windows = self._stream is None
        if self._stream is not None:  # whose event says when memory can be reused
            return BufferPool(8 * (self.prefetch + 2 + MAX_IN_FLIGHT), allocate=self._stream.pinned_memory)
        if not self.pin_memory:
            return super()._make_pool()
        return BufferPool(ring=8 * (self.prefetch + 2 + REST), rest=REST, allocate=pinned_memory)

    def _make_fetch(self) -> Fetch:
        if self.shapes_only or (self.collate_fn is None and as_batch_dataset(self.dataset).batch is not None):
            fetch: Fetch = _ConvertedFetch(super()._make_fetch(), from_arrays)
        else:
            collate_fn = self.collate_fn or torch.utils.data.default_collate
            fetch = make_fetch(self.dataset, self._options()._replace(collate_fn=collate_fn), self._pool)
            fetch = _ConvertedFetch(fetch, _pinned) if self.pin_memory else fetch
        return fetch if self._stream is None else DeviceFetch(fetch, self._stream, self.widen)

    def __next__(self) -> BatchT:
        batch: Any = super().__next__()
        received: BatchT = self._fetch.receive(batch) if isinstance(self._fetch, DeviceFetch) else batch
        return received

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "_stream"}


class _ConvertedFetch(Fetch):
    """Converts the batches of another fetch."""

    def __init__(self, fetch: Fetch, convert: Callable[[Any], Any]) -> None:
        self._fetch, self._convert, self.will_need = fetch, convert, fetch.will_need

    def __call__(self, indices: Any) -> Any:
        return self._convert(self._fetch(indices))

    @contextmanager
    def session(self) -> Iterator[None]:
        with self._fetch.session():
            yield


def _pinned(batch: Any) -> Any:
    """Copy the tensors in nested dicts, lists and tuples to pinned memory."""
    return map_tensors(batch, lambda tensor: tensor.pin_memory())


class _OneByOne:
    """A dataset without `batch` and `__getitems__`."""

    def __init__(self, dataset: MapDataset[Any]) -> None:
        self._dataset = dataset

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: int) -> Any:
        return from_arrays(self._dataset[index])


def sample_by_sample(dataset: MapDataset[Any], batch_size: int) -> Iterator[Any]:
    """Yield shuffled batches of torch's DataLoader over single samples, epoch after epoch, as a benchmark baseline.

    Parameters
    ----------
    dataset
        A map-style dataset; its `batch` is not used.
    batch_size
        Samples per batch; an epoch's last batch is dropped if it is smaller.

    Yields
    ------
    object
        A batch, as torch's default_collate makes it.

    Examples
    --------
    >>> import fastpack.torch
    >>> batches = fastpack.torch.sample_by_sample([{"x": 1}, {"x": 1}], batch_size=2)
    >>> next(batches)
    {'x': tensor([1, 1])}
    """
    loader = torch.utils.data.DataLoader(_OneByOne(dataset), batch_size, shuffle=True, drop_last=True)
    while True:
        yield from loader
