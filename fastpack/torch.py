# mypy: disable-error-code="misc, override"
# pyright: reportIncompatibleMethodOverride=false
# (Both: the classes below narrow the arrays of their parents' batches to tensors.)
"""The datasets and the loader with torch tensors in the same memory; the only module that imports torch.

The datasets are map-style, pickle as paths and produce whole batches (`__getitems__`), so torch's DataLoader and
torchdata's StatefulDataLoader take them as well.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

import numpy as np

from fastpack.datasets.base import Indices
from fastpack.datasets.flat_windows import MemoryMappedDataset as _MemoryMappedDataset
from fastpack.datasets.map_dataset import MapDataset
from fastpack.datasets.mixture import CombinedDataset as _CombinedDataset
from fastpack.datasets.mixture import MixtureDataset as _MixtureDataset
from fastpack.datasets.outputs import Batch, OutputDtype
from fastpack.datasets.packed_blocks import PackedMemMapDatasetBase as _PackedMemMapDatasetBase
from fastpack.datasets.packed_blocks import PackedMemMapDatasetContinuous as _PackedMemMapDatasetContinuous
from fastpack.datasets.packed_megatron import PackedMemMapDatasetMegatron as _PackedMemMapDatasetMegatron
from fastpack.errors import MissingExtra
from fastpack.loading.adapters import as_batch_dataset
from fastpack.loading.buffers import BufferPool, Memory
from fastpack.loading.collators import DatasetBatch as _DatasetBatch
from fastpack.loading.collators import GPT2LLMCollateFn as _GPT2LLMCollateFn
from fastpack.loading.collators import LossMaskingCollateFnWrapper as _LossMaskingCollateFnWrapper
from fastpack.loading.fetch import Fetch, make_fetch
from fastpack.loading.loader import StatefulDataLoader as _StatefulDataLoader
from fastpack.loading.protocols import BatchDataset, LoaderOptions
from fastpack.webdataset.dataset import WebDataset as _WebDataset
from fastpack.webdataset.decoding import Decoder

try:
    # Any, so that type checkers report the same with and without torch.
    torch: Any = importlib.import_module("torch")
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise  # installed but broken
    raise MissingExtra("torch", "torch", "fastpack.torch") from error

if TYPE_CHECKING:
    from torch._tensor import Tensor  # pyright: ignore[reportMissingImports]  # else it takes this file for torch
else:
    Tensor = torch.Tensor

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

SampleT = TypeVar("SampleT")
BatchT = TypeVar("BatchT")

_tensor = torch.from_numpy
REST = 2  # batches before pinned memory is reused: the copies of the last two to a device may be in flight


def from_arrays(value: Any) -> Any:
    """Convert NumPy arrays in nested dicts, lists and tuples to tensors that share their memory.

    Parameters
    ----------
    value
        An array, or a dict, list or tuple that holds arrays at any depth. Other values are kept.

    Returns
    -------
    object
        The tensors, in dicts, lists and tuples of the same types.

    Examples
    --------
    >>> import numpy as np, fastpack.torch
    >>> fastpack.torch.from_arrays({"input_ids": np.arange(3)})
    {'input_ids': tensor([0, 1, 2])}
    """
    if type(value) is dict:  # the type of a batch comes first: a check for Mapping costs as much as making a tensor
        return {name: _tensor(one) if type(one) is np.ndarray else from_arrays(one) for name, one in value.items()}
    if isinstance(value, np.ndarray):
        return _tensor(value)
    if isinstance(value, Mapping):
        return {name: from_arrays(one) for name, one in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(from_arrays, value))
    return type(value)(map(from_arrays, value)) if isinstance(value, (list, tuple)) else value


class _TensorSamples:
    """Mixin: samples as tensors."""

    def __getitem__(self, index: Any) -> Any:
        """Return the sample of the NumPy class, as tensors."""
        parent: Any = super()
        return from_arrays(parent.__getitem__(index))


class _TensorBatches(_TensorSamples):
    """Mixin: samples and batches as tensors."""

    def fill(self, indices: Indices, out: dict[str, Any]) -> None:
        """Write the samples into tensors or arrays, as the NumPy class; a None in `out` is replaced by a tensor.

        Parameters
        ----------
        indices, out
            As for the NumPy class; the values of `out` may be tensors or arrays.
        """
        parent: Any = super()
        arrays = {name: value.numpy() if isinstance(value, torch.Tensor) else value for name, value in out.items()}
        parent.fill(indices, arrays)
        out.update((name, from_arrays(arrays[name])) for name, value in out.items() if value is None)

    def batch(
        self,
        indices: Indices,
        outputs: Sequence[str] | None = None,
        dtype: OutputDtype | None = None,
        out: dict[str, Any] | None = None,
        *,
        cu_seqlens_length: int | None = None,
    ) -> Batch[Tensor]:
        """Return the batch of the NumPy class, as tensors; `out` may hold tensors and is returned.

        Parameters
        ----------
        indices, outputs, dtype, cu_seqlens_length
            As for the NumPy class.
        out
            Tensors or arrays to fill instead of new ones.

        Returns
        -------
        dict
            The tensors by name; `out` if it was given.
        """
        if out is not None:
            self.fill(indices, out)
            tensors: Any = out
        else:
            parent: Any = super()
            tensors = from_arrays(parent.batch(indices, outputs, dtype, cu_seqlens_length=cu_seqlens_length))
        batch: Batch[Tensor] = tensors
        return batch


class MemoryMappedDataset(_TensorBatches, _MemoryMappedDataset):
    """`fastpack.MemoryMappedDataset` that returns tensors.

    Examples
    --------
    >>> import tempfile, numpy as np, fastpack.torch
    >>> folder = tempfile.TemporaryDirectory()
    >>> np.save(f"{folder.name}/a.npy", np.arange(40, dtype=np.uint16))
    >>> with fastpack.torch.MemoryMappedDataset(folder.name, seq_len=4) as dataset:
    ...     dataset[1]["labels"]
    tensor([5, 6, 7])
    >>> folder.cleanup()
    """


class PackedMemMapDatasetContinuous(_TensorBatches, _PackedMemMapDatasetContinuous):
    """`fastpack.PackedMemMapDatasetContinuous` that returns tensors.

    Examples
    --------
    >>> import tempfile, fastpack.torch
    >>> folder = tempfile.TemporaryDirectory()
    >>> with fastpack.PackedWriter(f"{folder.name}/a.pbin", 2) as writer:
    ...     writer.append([1, 2, 3, 4])
    ...     writer.append([5, 6, 7, 8])
    >>> with fastpack.torch.PackedMemMapDatasetContinuous(writer.path, "input_ids", 4, False) as dataset:
    ...     dataset[1]["input_ids"]
    tensor([5, 6, 7, 8], dtype=torch.int32)
    >>> folder.cleanup()
    """


class PackedMemMapDatasetMegatron(_TensorBatches, _PackedMemMapDatasetMegatron):
    """`fastpack.PackedMemMapDatasetMegatron` that returns tensors.

    Examples
    --------
    >>> import tempfile, fastpack.torch
    >>> folder = tempfile.TemporaryDirectory()
    >>> with fastpack.PackedWriter(f"{folder.name}/a.pbin", 2) as writer:
    ...     writer.append([1, 2, 3, 4])
    ...     writer.append([5, 6, 7, 8])
    >>> with fastpack.torch.PackedMemMapDatasetMegatron(writer.path, "input_ids", block_size=4) as dataset:
    ...     dataset[1]["input_ids"]
    tensor([5, 6, 7, 8], dtype=torch.int32)
    >>> folder.cleanup()
    """


class PackedMemMapDatasetBase(_TensorSamples, _PackedMemMapDatasetBase):
    """`fastpack.PackedMemMapDatasetBase` that returns tensors.

    Examples
    --------
    >>> import tempfile, fastpack.torch
    >>> folder = tempfile.TemporaryDirectory()
    >>> with fastpack.PackedWriter(f"{folder.name}/a.pbin", 2) as writer:
    ...     writer.append([1, 2, 3, 4])
    ...     writer.append([5, 6, 7, 8])
    >>> with fastpack.torch.PackedMemMapDatasetBase(writer.path, "input_ids") as dataset:
    ...     dataset[1]["input_ids"]
    tensor([5, 6, 7, 8], dtype=torch.int32)
    >>> folder.cleanup()
    """

    def batch(self, indices: Indices) -> dict[str, list[Tensor]]:
        """Return several documents as tensors.

        Parameters
        ----------
        indices
            Numbers of documents; negative ones count from the end.

        Returns
        -------
        dict
            {sample_key: list of documents}; a document is a tensor of its tokens.
        """
        batch: dict[str, list[Tensor]] = from_arrays(super().batch(indices))
        return batch


class MixtureDataset(_TensorBatches, _MixtureDataset):
    """`fastpack.MixtureDataset` that returns tensors; its datasets may return arrays or tensors.

    Examples
    --------
    >>> import tempfile, numpy as np, fastpack.torch
    >>> folder = tempfile.TemporaryDirectory()
    >>> np.save(f"{folder.name}/a.npy", np.arange(40, dtype=np.uint16))
    >>> dataset = fastpack.torch.MemoryMappedDataset(folder.name, seq_len=4)
    >>> with fastpack.torch.MixtureDataset([dataset, dataset], ["web", "books"]) as mixture:
    ...     mixture.batch([1, 11])["dataset_idx"]
    tensor([0, 1])
    >>> folder.cleanup()
    """


class CombinedDataset(_TensorBatches, _CombinedDataset):
    """`fastpack.CombinedDataset` that returns tensors; its datasets may return arrays or tensors.

    Examples
    --------
    >>> import numpy as np, fastpack.torch
    >>> dataset = fastpack.torch.CombinedDataset([[{"x": np.arange(2)}], [{"x": np.arange(3)}]])
    >>> dataset[1]
    {'x': tensor([0, 1, 2])}
    """


class _TensorDecoder(Decoder):
    tensors = True

    def image(self, data: bytes) -> Any:
        value = super().image(data)
        return from_arrays(value) if self.image_decode.startswith("torch") else value


class WebDataset(_WebDataset):
    """`fastpack.WebDataset` with images as tensors for the image modes named torch..., the default one included.

    An AVDecoder returns tensors as well. All other fields are the same as without torch: a .npy field is an array
    (as in Energon).

    Examples
    --------
    >>> import io, tarfile, tempfile, fastpack.torch
    >>> from PIL import Image
    >>> file = io.BytesIO()
    >>> Image.new("RGB", (8, 4)).save(file, "png")
    >>> folder = tempfile.TemporaryDirectory()
    >>> with tarfile.open(f"{folder.name}/0.tar", "w") as tar:
    ...     member = tarfile.TarInfo("sample.png")
    ...     member.size = len(file.getvalue())
    ...     tar.addfile(member, io.BytesIO(file.getvalue()))
    >>> _ = fastpack.prepare(folder.name, split_ratio=(1, 0, 0))
    >>> with fastpack.torch.WebDataset(folder.name) as dataset:
    ...     dataset[0]["png"].shape
    torch.Size([3, 4, 8])
    >>> folder.cleanup()
    """

    _decoder_type = _TensorDecoder


@dataclass
class DatasetBatch(_DatasetBatch):
    """`fastpack.DatasetBatch` of tensors, with the methods that Modalities' training loop calls.

    Examples
    --------
    >>> import torch, fastpack.torch
    >>> batch = fastpack.torch.DatasetBatch({"input_ids": torch.zeros(2, 4)}, {"target_ids": torch.ones(2, 4)})
    >>> batch.device
    device(type='cpu')
    """

    @property
    def device(self) -> Any:
        """The device of the samples."""
        return next(iter(self.samples.values())).device

    def to(self, device: Any) -> None:
        """Move samples and targets to `device`, in place.

        Parameters
        ----------
        device
            A device, as torch names it.
        """
        self.samples = {name: tensor.to(device) for name, tensor in self.samples.items()}
        self.targets = {name: tensor.to(device) for name, tensor in self.targets.items()}

    def detach(self) -> None:
        """Detach samples and targets from the graph, in place."""
        self.samples = {name: tensor.detach() for name, tensor in self.samples.items()}
        self.targets = {name: tensor.detach() for name, tensor in self.targets.items()}

    def pin_memory(self) -> DatasetBatch:
        """Return a copy in page-locked memory; a DataLoader with pin_memory=True calls this.

        Returns
        -------
        DatasetBatch
            The copy.
        """
        samples = {name: tensor.pin_memory() for name, tensor in self.samples.items()}
        targets = {name: tensor.pin_memory() for name, tensor in self.targets.items()}
        return type(self)(samples, targets, self.batch_dim)


class GPT2LLMCollateFn(_GPT2LLMCollateFn):
    """`fastpack.GPT2LLMCollateFn` that returns tensors; samples may be arrays or tensors.

    Examples
    --------
    >>> import torch, fastpack.torch
    >>> collate = fastpack.torch.GPT2LLMCollateFn("input_ids", "target_ids")
    >>> batch = collate([{"input_ids": torch.arange(4)}])
    >>> batch.samples["input_ids"], batch.targets["target_ids"]
    (tensor([[0, 1, 2]]), tensor([[1, 2, 3]]))
    """

    def __call__(self, batch: Sequence[Mapping[str, Any]]) -> DatasetBatch:
        """Collate the samples."""
        return _batch_of_tensors(super().__call__(batch))


class LossMaskingCollateFnWrapper(_LossMaskingCollateFnWrapper):
    """`fastpack.LossMaskingCollateFnWrapper` that returns tensors; the wrapped collator may return either.

    Examples
    --------
    >>> import torch, fastpack.torch
    >>> class Tokenizer:
    ...     def get_token_id(self, token):
    ...         return {"<b>": 8, "<e>": 9}[token]
    >>> tokens = {"b_include_to_loss_token": "<b>", "e_include_to_loss_token": "<e>"}
    >>> collate = fastpack.torch.GPT2LLMCollateFn("input_ids", "targets")
    >>> masked = fastpack.torch.LossMaskingCollateFnWrapper(collate, ["targets"], -100, tokens, Tokenizer())
    >>> masked([{"input_ids": torch.tensor([1, 2, 8, 3, 4, 9, 5])}]).targets["targets"]
    tensor([[-100, -100,    3,    4, -100, -100]])
    """

    def __call__(self, batch: Any) -> Any:
        """Collate the samples and mask the targets."""
        collated = super().__call__(batch)
        if type(collated) is _DatasetBatch:
            return _batch_of_tensors(collated)
        collated.targets.update((name, from_arrays(collated.targets[name])) for name in self.target_keys_to_mask)
        return collated


def _batch_of_tensors(batch: _DatasetBatch) -> DatasetBatch:
    return DatasetBatch(from_arrays(batch.samples), from_arrays(batch.targets), batch.batch_dim)


class StatefulDataLoader(_StatefulDataLoader[BatchT]):
    """`fastpack.StatefulDataLoader` that returns tensors, in the memory of the leased arrays.

    Samples of a dataset without `batch` are collated by torch's default_collate.

    Parameters
    ----------
    pin_memory
        Whether batches lie in page-locked memory; by default as `config.pin_memory`. Without a CUDA device nothing is
        pinned; True then warns. Pinned memory is reused two batches later, so `tensor.to(device, non_blocking=True)` is
        safe as long as the device is at most two batches behind.

    Notes
    -----
    All other parameters are those of `fastpack.StatefulDataLoader`.

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
        *,
        pin_memory: bool | None = None,
        **options: Unpack[LoaderOptions],
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
        pin_memory: bool | None = None,
        **options: Unpack[LoaderOptions],
    ) -> None: ...
    @overload
    def __init__(
        self: StatefulDataLoader[Any],
        dataset: MapDataset[Any],
        batch_size: int,
        sampler: Iterable[Any] | None = None,
        config: object = None,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        *,
        pin_memory: bool | None = None,
        **options: Unpack[LoaderOptions],
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
        pin_memory: bool | None = None,
    ) -> None:
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
        if self.collate_fn is None and as_batch_dataset(self.dataset).batch is not None:
            return _ConvertedFetch(super()._make_fetch(), from_arrays)
        collate_fn = self.collate_fn or torch.utils.data.default_collate
        fetch = make_fetch(self.dataset, self._options()._replace(collate_fn=collate_fn), self._pool)
        return _ConvertedFetch(fetch, _pinned) if self.pin_memory else fetch


class _ConvertedFetch(Fetch):
    """Converts the batches of another fetch."""

    def __init__(self, fetch: Fetch, convert: Callable[[Any], Any]) -> None:
        self._fetch, self._convert = fetch, convert

    def __call__(self, indices: Any) -> Any:
        return self._convert(self._fetch(indices))

    def session(self) -> AbstractContextManager[None]:
        return self._fetch.session()


def pinned_memory(n_bytes: int) -> Memory:
    """Allocate page-locked memory, from which copies to a device are asynchronous."""
    memory: Memory = torch.empty(n_bytes, dtype=torch.uint8, pin_memory=True).numpy()
    return memory


def _pinned(batch: Any) -> Any:
    """Copy the tensors in nested dicts, lists and tuples to pinned memory."""
    if isinstance(batch, (torch.Tensor, DatasetBatch)):
        return batch.pin_memory()
    if isinstance(batch, Mapping):
        return {name: _pinned(one) for name, one in batch.items()}
    return type(batch)(map(_pinned, batch)) if type(batch) in (list, tuple) else batch


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
