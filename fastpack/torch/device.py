"""Copies of batches to a device, on a side stream, while the training step runs."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

from fastpack.datasets.row_format import WINDOWS
from fastpack.loading.buffers import Memory
from fastpack.loading.fetch import Fetch
from fastpack.loading.leased_rows import cut_windows
from fastpack.torch.collators import DatasetBatch
from fastpack.torch.tensors import torch

MAX_IN_FLIGHT = 4  # host batches that wait for their copy; then the background thread waits, not the training step


class Event(Protocol):
    """A point in a stream's work."""

    def query(self) -> bool:
        """Return whether the device has reached it."""
        ...

    def synchronize(self) -> None:
        """Wait until the device has reached it."""
        ...


class SideStream(Protocol):
    """A stream of a device that copies; its methods return without waiting for the device."""

    def pinned_memory(self, n_bytes: int) -> Memory:
        """Allocate page-locked memory."""
        ...

    def copy(self, tensor: Any, dtype: Any) -> Any:
        """Queue a copy of a host tensor, converted on the device to `dtype` (None: as it is), and return it."""
        ...

    def contiguous(self, view: Any) -> Any:
        """Queue a contiguous copy of a view of a tensor on the device, and return it."""
        ...

    def record(self) -> Event:
        """Return an event after all that is queued."""
        ...

    def let_wait(self, event: Event) -> None:
        """Let the stream of the training step wait for an event."""
        ...

    def keep(self, tensor: Any) -> None:
        """Keep a tensor's memory until the stream of the training step has used it."""
        ...


class CudaStream:
    """A `SideStream` of a CUDA device."""

    def __init__(self, device: Any) -> None:
        self._device = torch.device("cuda", torch.cuda.current_device() if device.index is None else device.index)
        self._stream = torch.cuda.Stream(self._device)

    def pinned_memory(self, n_bytes: int) -> Memory:
        return pinned_memory(n_bytes)

    def copy(self, tensor: Any, dtype: Any) -> Any:
        with torch.cuda.stream(self._stream):
            on_device = tensor.to(self._device, non_blocking=True)
            return on_device if dtype is None else on_device.to(dtype)

    def contiguous(self, view: Any) -> Any:
        with torch.cuda.stream(self._stream):
            return view.contiguous()

    def record(self) -> Event:
        event: Event = self._stream.record_event()
        return event

    def let_wait(self, event: Event) -> None:
        torch.cuda.current_stream(self._device).wait_event(event)

    def keep(self, tensor: Any) -> None:
        tensor.record_stream(torch.cuda.current_stream(self._device))


def pinned_memory(n_bytes: int) -> Memory:
    """Allocate page-locked memory, from which copies to a device are asynchronous."""
    memory: Memory = torch.empty(n_bytes, dtype=torch.uint8, pin_memory=True).numpy()
    return memory


def open_stream(device: Any) -> SideStream | None:
    """Return a side stream of a device; None for the CPU, where batches are.

    Raises
    ------
    ValueError
        If the device is another than the CPU or a CUDA device, or there is no such device.
    """
    where = torch.device(device)
    if where.type == "cpu":
        return None
    if where.type != "cuda":
        raise ValueError(f"device={str(device)!r}: choose 'cuda', 'cuda:N' or 'cpu'")
    n_devices = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if (where.index or 0) >= n_devices:
        raise ValueError(
            f"device={str(device)!r}, but torch {torch.__version__} finds {n_devices} CUDA devices: omit device= to "
            "get batches on the CPU, or run where there is a GPU, with a CUDA build of torch"
        )
    return CudaStream(where)


class SentBatch(NamedTuple):
    """A batch whose copies are queued, and the event after them."""

    batch: Any
    event: Event


class DeviceFetch(Fetch):
    """Makes batches of another fetch and queues their copies; the background thread of a loader calls it.

    A host batch is kept until its copies are done; then its memory returns to the pool.
    """

    def __init__(self, fetch: Fetch, stream: SideStream, widen: bool) -> None:
        self._fetch, self._stream, self._widen, self.will_need = fetch, stream, widen, fetch.will_need
        self._in_flight: deque[SentBatch] = deque()

    def __call__(self, indices: Any) -> SentBatch:
        host = self._fetch(indices)
        batch = map_tensors(host, self._send)
        if isinstance(batch, dict) and WINDOWS in batch:
            batch = map_tensors(cut_windows(batch), self._stream.contiguous)
        sent = SentBatch(batch, self._stream.record())
        self._in_flight.append(SentBatch(host, sent.event))
        if len(self._in_flight) > MAX_IN_FLIGHT:
            self._in_flight[0].event.synchronize()
        while self._in_flight and self._in_flight[0].event.query():
            self._in_flight.popleft()
        return sent

    def _send(self, tensor: Any) -> Any:
        widen = self._widen and tensor.dtype == torch.int32 and tensor.ndim > 1
        return self._stream.copy(tensor, torch.int64 if widen else None)

    def receive(self, sent: SentBatch) -> Any:
        """Return a batch for use in the stream of the training step, which waits for it on the device."""
        self._stream.let_wait(sent.event)
        map_tensors(sent.batch, self._stream.keep)
        return sent.batch

    @contextmanager
    def session(self) -> Iterator[None]:
        with self._fetch.session():
            yield


def map_tensors(batch: Any, function: Callable[[Any], Any]) -> Any:
    """Apply a function to the tensors in nested dicts, lists and tuples."""
    if isinstance(batch, torch.Tensor):
        return function(batch)
    if isinstance(batch, DatasetBatch):
        return type(batch)(map_tensors(batch.samples, function), map_tensors(batch.targets, function), batch.batch_dim)
    if isinstance(batch, Mapping):
        return {name: map_tensors(one, function) for name, one in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(map_tensors(one, function) for one in batch))
    if type(batch) in (list, tuple):
        return type(batch)(map_tensors(one, function) for one in batch)
    return batch
