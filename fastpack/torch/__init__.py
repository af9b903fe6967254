"""The datasets and the loader with torch tensors in the same memory; the only package that imports torch.

The datasets are map-style, pickle as paths and produce whole batches (`__getitems__`), so torch's DataLoader and
torchdata's StatefulDataLoader take them as well.
"""

from typing import TYPE_CHECKING, Any

from fastpack.torch.collators import DatasetBatch, GPT2LLMCollateFn, LossMaskingCollateFnWrapper
from fastpack.torch.datasets import (
    CombinedDataset,
    GPTDataset,
    MemoryMappedDataset,
    MixtureDataset,
    PackedMemMapDatasetBase,
    PackedMemMapDatasetContinuous,
    PackedMemMapDatasetMegatron,
    PlannedDataset,
)
from fastpack.torch.loader import StatefulDataLoader, sample_by_sample
from fastpack.torch.tensors import from_arrays

if TYPE_CHECKING:
    from fastpack.torch.tensor_webdataset import WebDataset

__all__ = [
    "CombinedDataset",
    "DatasetBatch",
    "GPT2LLMCollateFn",
    "GPTDataset",
    "LossMaskingCollateFnWrapper",
    "MemoryMappedDataset",
    "MixtureDataset",
    "PackedMemMapDatasetBase",
    "PackedMemMapDatasetContinuous",
    "PackedMemMapDatasetMegatron",
    "PlannedDataset",
    "StatefulDataLoader",
    "WebDataset",
    "from_arrays",
    "sample_by_sample",
]


def __getattr__(name: str) -> Any:
    if name == "WebDataset":  # a quarter of the time of importing all of this, and text needs nothing of it
        from fastpack.torch.tensor_webdataset import WebDataset

        return WebDataset
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
