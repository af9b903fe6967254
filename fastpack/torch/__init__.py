"""The datasets and the loader with torch tensors in the same memory; the only package that imports torch.

The datasets are map-style, pickle as paths and produce whole batches (`__getitems__`), so torch's DataLoader and
torchdata's StatefulDataLoader take them as well.
"""

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
    WebDataset,
)
from fastpack.torch.loader import StatefulDataLoader, sample_by_sample
from fastpack.torch.tensors import from_arrays

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
