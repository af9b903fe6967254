# mypy: disable-error-code="misc, override"
# pyright: reportIncompatibleMethodOverride=false
# (Both: the classes below narrow the arrays of their parents' batches to tensors.)
"""The datasets, with samples and batches of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastpack.datasets.base import Indices
from fastpack.datasets.flat_windows import MemoryMappedDataset as _MemoryMappedDataset
from fastpack.datasets.gpt.gpt_dataset import GPTDataset as _GPTDataset
from fastpack.datasets.mixture import CombinedDataset as _CombinedDataset
from fastpack.datasets.mixture import MixtureDataset as _MixtureDataset
from fastpack.datasets.outputs import Batch, OutputDtype
from fastpack.datasets.packed_blocks import PackedMemMapDatasetContinuous as _PackedMemMapDatasetContinuous
from fastpack.datasets.packed_documents import PackedMemMapDatasetBase as _PackedMemMapDatasetBase
from fastpack.datasets.packed_megatron import PackedMemMapDatasetMegatron as _PackedMemMapDatasetMegatron
from fastpack.datasets.planned import PlannedDataset as _PlannedDataset
from fastpack.torch.tensors import Tensor, from_arrays, torch  # pyright: ignore[reportAttributeAccessIssue]


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
    >>> folder = tempfile.mkdtemp()
    >>> np.save(f"{folder}/a.npy", np.arange(40, dtype=np.uint16))
    >>> with fastpack.torch.MemoryMappedDataset(folder, seq_len=4) as dataset:
    ...     dataset[1]["labels"]
    tensor([5, 6, 7])
    """


class PackedMemMapDatasetContinuous(_TensorBatches, _PackedMemMapDatasetContinuous):
    """`fastpack.PackedMemMapDatasetContinuous` that returns tensors.

    Examples
    --------
    >>> import tempfile, fastpack.torch
    >>> with fastpack.PackedWriter(tempfile.mkdtemp() + "/a.pbin", 2) as writer:
    ...     writer.append_many([1, 2, 3, 4, 5, 6, 7, 8], lengths=[4, 4])
    >>> with fastpack.torch.PackedMemMapDatasetContinuous(writer.path, "input_ids", 4, False) as dataset:
    ...     dataset[1]["input_ids"]
    tensor([5, 6, 7, 8], dtype=torch.int32)
    """


class PackedMemMapDatasetMegatron(_TensorBatches, _PackedMemMapDatasetMegatron):
    """`fastpack.PackedMemMapDatasetMegatron` that returns tensors.

    Examples
    --------
    >>> import tempfile, fastpack.torch
    >>> with fastpack.PackedWriter(tempfile.mkdtemp() + "/a.pbin", 2) as writer:
    ...     writer.append_many([1, 2, 3, 4, 5, 6, 7, 8], lengths=[4, 4])
    >>> with fastpack.torch.PackedMemMapDatasetMegatron(writer.path, "input_ids", block_size=4) as dataset:
    ...     dataset[1]["input_ids"]
    tensor([5, 6, 7, 8], dtype=torch.int32)
    """


class PlannedDataset(_TensorBatches, _PlannedDataset):
    """`fastpack.PlannedDataset` that returns tensors.

    Examples
    --------
    >>> import tempfile, fastpack.torch
    >>> with fastpack.PackedWriter(tempfile.mkdtemp() + "/a.pbin", 2) as writer:
    ...     writer.append_many([1, 2, 3, 4, 5], lengths=[3, 2])
    >>> _ = fastpack.plan(writer.path, f"{writer.path}.plan", seq_length=4)
    >>> with fastpack.torch.PlannedDataset(f"{writer.path}.plan") as dataset:
    ...     dataset[0]["labels"]
    tensor([   2,    3, -100, -100])
    """


class GPTDataset(_TensorBatches, _GPTDataset):
    """`fastpack.GPTDataset` that returns tensors.

    Examples
    --------
    >>> import tempfile, fastpack.torch
    >>> with fastpack.PackedWriter(tempfile.mkdtemp() + "/a.pbin", 2) as writer:
    ...     writer.append_many([1, 2, 3, 4, 5, 6, 7, 8, 9], lengths=[4, 5])
    >>> train, _, _ = fastpack.torch.GPTDataset.build(writer.path, 4, 1234, (2, 0, 0), "1,0,0")
    >>> train[0]["labels"]
    tensor([2, 3, 4, 5])
    """


class PackedMemMapDatasetBase(_TensorSamples, _PackedMemMapDatasetBase):
    """`fastpack.PackedMemMapDatasetBase` that returns tensors.

    Examples
    --------
    >>> import tempfile, fastpack.torch
    >>> with fastpack.PackedWriter(tempfile.mkdtemp() + "/a.pbin", 2) as writer:
    ...     writer.append_many([1, 2, 3, 4, 5, 6, 7, 8], lengths=[4, 4])
    >>> with fastpack.torch.PackedMemMapDatasetBase(writer.path, "input_ids") as dataset:
    ...     dataset[1]["input_ids"]
    tensor([5, 6, 7, 8], dtype=torch.int32)
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
    >>> folder = tempfile.mkdtemp()
    >>> np.save(f"{folder}/a.npy", np.arange(40, dtype=np.uint16))
    >>> dataset = fastpack.torch.MemoryMappedDataset(folder, seq_len=4)
    >>> with fastpack.torch.MixtureDataset([dataset, dataset], ["web", "books"]) as mixture:
    ...     mixture.batch([1, 11])["dataset_idx"]
    tensor([0, 1])
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
