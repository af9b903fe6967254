"""The datasets and the loader with torch tensors out, in the same memory; the only module that imports torch.

Works under torch's own DataLoader and torchdata's StatefulDataLoader too: datasets are map-style, pickle as paths, and
make a whole batch at once there (`__getitems__`).
"""

# mypy: disable-error-code="misc, override"
# pyright: reportIncompatibleMethodOverride=false
# Both: the classes below narrow the arrays of their parents' batches to tensors.
from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from fastpack.datasets.base import Indices
from fastpack.datasets.flat_windows import MemoryMappedDataset as _MemoryMappedDataset
from fastpack.datasets.mixture import CombinedDataset as _CombinedDataset
from fastpack.datasets.mixture import MixtureDataset as _MixtureDataset
from fastpack.datasets.packed_blocks import PackedMemMapDatasetBase as _PackedMemMapDatasetBase
from fastpack.datasets.packed_blocks import PackedMemMapDatasetContinuous as _PackedMemMapDatasetContinuous
from fastpack.datasets.packed_megatron import PackedMemMapDatasetMegatron as _PackedMemMapDatasetMegatron
from fastpack.errors import MissingExtra
from fastpack.loading.buffers import BufferPool, Memory
from fastpack.loading.collators import DatasetBatch as _DatasetBatch
from fastpack.loading.collators import GPT2LLMCollateFn as _GPT2LLMCollateFn
from fastpack.loading.collators import LossMaskingCollateFnWrapper as _LossMaskingCollateFnWrapper
from fastpack.loading.fetch import Fetch
from fastpack.loading.loader import StatefulDataLoader as _StatefulDataLoader
from fastpack.webdataset.dataset import WebDataset as _WebDataset
from fastpack.webdataset.decoding import Decoder

try:
    # Any, so that type checkers say the same where torch is installed and where it is not.
    torch: Any = importlib.import_module("torch")
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise  # installed but broken
    raise MissingExtra("torch", "torch", "fastpack.torch") from error

__all__ = [
    "CombinedDataset",
    "DatasetBatch",
    "GPT2LLMCollateFn",
    "LossMaskingCollateFnWrapper",
    "MemoryMappedDataset",
    "MixtureDataset",
    "PackedMemMapDatasetBase",
    "PackedMemMapDatasetContinuous",
    "PackedMemMapDatasetMegatron",
    "StatefulDataLoader",
    "WebDataset",
    "from_arrays",
    "sample_by_sample",
]

Tensor: TypeAlias = Any
_tensor = torch.from_numpy
REST = 2  # batches that pinned memory rests for: the copy of the last one or two to a device may be in flight


def from_arrays(value: Any) -> Any:
    """`value` with every NumPy array in its dicts, lists and tuples as a tensor in the same memory."""
    if type(value) is dict:  # first what a batch is: a check for Mapping takes as long as making a tensor
        return {name: _tensor(one) if type(one) is np.ndarray else from_arrays(one) for name, one in value.items()}
    if isinstance(value, np.ndarray):
        return _tensor(value)
    if isinstance(value, Mapping):
        return {name: from_arrays(one) for name, one in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(from_arrays, value))
    return type(value)(map(from_arrays, value)) if isinstance(value, (list, tuple)) else value


class _Tensors:
    """Put before a dataset's class: its samples and batches as tensors."""

    def __getitem__(self, index: Any) -> dict[str, Tensor]:
        """As the NumPy class, in tensors."""
        parent: Any = super()
        sample: dict[str, Tensor] = from_arrays(parent.__getitem__(index))
        return sample

    def fill(self, indices: Indices, out: dict[str, Any]) -> None:
        """As the NumPy class, into tensors or arrays; what comes to be while filling is a tensor."""
        parent: Any = super()
        arrays = {name: value.numpy() if isinstance(value, torch.Tensor) else value for name, value in out.items()}
        parent.fill(indices, arrays)
        out.update((name, from_arrays(arrays[name])) for name, value in out.items() if value is None)

    def batch(
        self,
        indices: Indices,
        outputs: Sequence[str] | None = None,
        dtype: Any = None,
        out: dict[str, Any] | None = None,
        **options: Any,
    ) -> dict[str, Tensor]:
        """As the NumPy class, in tensors; `out` may hold tensors, and is what comes back."""
        if out is not None:
            self.fill(indices, out)
            return out
        given = {"outputs": outputs, "dtype": dtype, **options}
        parent: Any = super()
        batch = parent.batch(indices, **{name: value for name, value in given.items() if value is not None})
        tensors: dict[str, Tensor] = from_arrays(batch)
        return tensors


class MemoryMappedDataset(_Tensors, _MemoryMappedDataset):
    """fastpack.MemoryMappedDataset with tensors out."""


class PackedMemMapDatasetContinuous(_Tensors, _PackedMemMapDatasetContinuous):
    """fastpack.PackedMemMapDatasetContinuous with tensors out."""


class PackedMemMapDatasetMegatron(_Tensors, _PackedMemMapDatasetMegatron):
    """fastpack.PackedMemMapDatasetMegatron with tensors out."""


class PackedMemMapDatasetBase(_Tensors, _PackedMemMapDatasetBase):
    """fastpack.PackedMemMapDatasetBase with tensors out."""


class MixtureDataset(_Tensors, _MixtureDataset):
    """fastpack.MixtureDataset with tensors out; its datasets may give arrays or tensors."""


class CombinedDataset(_Tensors, _CombinedDataset):
    """fastpack.CombinedDataset with tensors out; its datasets may give arrays or tensors."""


class WebDataset(_WebDataset):
    """fastpack.WebDataset with images as Energon gives them: tensors for the modes named torch..., the default too.
    An AVDecoder returns tensors.

    All other parts are what they are without torch, arrays of .npy parts for one, as with Energon.
    """

    def _make_decoder(self, options: Mapping[str, Any]) -> Callable[[str, bytes], Any]:
        return _TensorDecoder(**options, trust_code=self._trust_code)


class _TensorDecoder(Decoder):
    tensors = True

    def image(self, data: bytes) -> Any:
        value = super().image(data)
        return from_arrays(value) if self.image_decode.startswith("torch") else value


@dataclass
class DatasetBatch(_DatasetBatch):
    """fastpack.DatasetBatch of tensors, with what a training loop asks of Modalities' own."""

    @property
    def device(self) -> Any:
        """Where the samples are."""
        return next(iter(self.samples.values())).device

    def to(self, device: Any) -> None:
        """Move samples and targets to `device`, in place."""
        self.samples = {name: tensor.to(device) for name, tensor in self.samples.items()}
        self.targets = {name: tensor.to(device) for name, tensor in self.targets.items()}

    def detach(self) -> None:
        """Take samples and targets out of the graph, in place."""
        self.samples = {name: tensor.detach() for name, tensor in self.samples.items()}
        self.targets = {name: tensor.detach() for name, tensor in self.targets.items()}

    def pin_memory(self) -> DatasetBatch:
        """A copy in page-locked memory: what a DataLoader with pin_memory=True calls."""
        samples = {name: tensor.pin_memory() for name, tensor in self.samples.items()}
        targets = {name: tensor.pin_memory() for name, tensor in self.targets.items()}
        return type(self)(samples, targets, self.batch_dim)


class GPT2LLMCollateFn(_GPT2LLMCollateFn):
    """fastpack.GPT2LLMCollateFn with tensors out; it takes tensors too."""

    def __call__(self, batch: Sequence[Mapping[str, Any]]) -> DatasetBatch:
        return _batch_of_tensors(super().__call__(batch))


class LossMaskingCollateFnWrapper(_LossMaskingCollateFnWrapper):
    """fastpack.LossMaskingCollateFnWrapper with tensors out; the collator inside may give arrays or tensors."""

    def __call__(self, batch: Any) -> Any:
        collated = super().__call__(batch)
        if type(collated) is _DatasetBatch:
            return _batch_of_tensors(collated)
        collated.targets.update((name, from_arrays(collated.targets[name])) for name in self.target_keys_to_mask)
        return collated


def _batch_of_tensors(batch: _DatasetBatch) -> DatasetBatch:
    return DatasetBatch(from_arrays(batch.samples), from_arrays(batch.targets), batch.batch_dim)


class StatefulDataLoader(_StatefulDataLoader):
    """fastpack.StatefulDataLoader with tensors out, that share the leased arrays' memory.

    Of a dataset without `batch` the samples go through torch's default_collate. pin_memory: whether batches lie in
    pinned memory, by default as `config.pin_memory` says; without a device to copy to there is nothing to pin, and only
    asking for it explicitly warns then. Pinned memory rests for two more batches before it is filled again, so that
    `tensor.to(device, non_blocking=True)` is safe as long as the device is at most two batches behind.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int,
        sampler: Any = None,
        config: Any = None,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        *,
        prefetch: int | None = None,
        outputs: Sequence[str] | None = None,
        dtype: Literal["int64", "int32"] = "int64",
        num_threads: int = 1,
        elastic: bool = True,
        cu_seqlens_length: int | None = None,
        pin_memory: bool | None = None,
    ) -> None:
        has_device = torch.cuda.is_available()
        if pin_memory and not has_device:
            warnings.warn("pin_memory=True, but torch sees no CUDA device: nothing is pinned", stacklevel=2)
        wanted = getattr(config, "pin_memory", False) if pin_memory is None else pin_memory
        self.pin_memory = bool(wanted and has_device)
        super().__init__(
            dataset,
            batch_size,
            sampler,
            config,
            collate_fn,
            prefetch=prefetch,
            outputs=outputs,
            dtype=dtype,
            num_threads=num_threads,
            elastic=elastic,
            cu_seqlens_length=cu_seqlens_length,
        )

    def _make_pool(self) -> BufferPool:
        if not self.pin_memory:
            return super()._make_pool()
        return BufferPool(ring=8 * (self.prefetch + 2 + REST), rest=REST, allocate=pinned_memory)

    def _make_fetch(self) -> Fetch:
        if self.collate_fn is None and callable(getattr(self.dataset, "batch", None)):
            return _TensorFetch(super()._make_fetch(), from_arrays)
        chosen, self.collate_fn = self.collate_fn, self.collate_fn or torch.utils.data.default_collate
        fetch = super()._make_fetch()
        self.collate_fn = chosen
        return _TensorFetch(fetch, _pinned) if self.pin_memory else fetch


class _TensorFetch:
    """Another fetch's batch, changed."""

    def __init__(self, fetch: Fetch, change: Callable[[Any], Any]) -> None:
        self._fetch, self._change = fetch, change
        self.session: Any = getattr(fetch, "session", nullcontext)

    def __call__(self, indices: Any) -> Any:
        return self._change(self._fetch(indices))


def pinned_memory(n_bytes: int) -> Memory:
    """New page-locked memory, which a device copies from without waiting."""
    memory: Memory = torch.empty(n_bytes, dtype=torch.uint8, pin_memory=True).numpy()
    return memory


def _pinned(batch: Any) -> Any:
    """The batch with every tensor in its dicts, lists and tuples copied to pinned memory."""
    if isinstance(batch, (torch.Tensor, DatasetBatch)):
        return batch.pin_memory()
    if isinstance(batch, Mapping):
        return {name: _pinned(one) for name, one in batch.items()}
    return type(batch)(map(_pinned, batch)) if type(batch) in (list, tuple) else batch


class _OneByOne:
    """A dataset without its whole batches."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: int) -> Any:
        return from_arrays(self._dataset[index])


def sample_by_sample(dataset: Any, batch_size: int) -> Iterator[Any]:
    """Shuffled batches, epoch after epoch, of torch's own DataLoader that asks for one sample after the other."""
    loader = torch.utils.data.DataLoader(_OneByOne(dataset), batch_size, shuffle=True, drop_last=True)
    while True:
        yield from loader
