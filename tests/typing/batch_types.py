"""The types of samples and batches; mypy and pyright check this file (see pyproject.toml)."""

from __future__ import annotations

from typing import Any, assert_type

import torch  # pyright: ignore[reportMissingImports]

import fastpack
import fastpack.torch
from fastpack.datasets.outputs import Batch, IntArray
from fastpack.loading.protocols import BatchDataset, ResumableSampler


def numpy_batches(dataset: fastpack.MemoryMappedDataset, packed: fastpack.PackedMemMapDatasetContinuous) -> None:
    assert_type(dataset.batch([0])["input_ids"], IntArray)
    assert_type(packed.batch([0])["text"], IntArray)
    loader = fastpack.StatefulDataLoader(dataset, 4, prefetch=1, outputs=("input_ids", "max_seqlen"))
    assert_type(loader, fastpack.StatefulDataLoader[Batch[IntArray]])
    for batch in loader:
        assert_type(batch["input_ids"], IntArray)
        assert_type(batch["max_seqlen"], Any)
    mixture = fastpack.MixtureDataset([dataset, packed], ["a", "b"])
    assert_type(next(fastpack.StatefulDataLoader(mixture, 4))["dataset_idx"], IntArray)


def planned_batches(dataset: fastpack.PlannedDataset, tensors: fastpack.torch.PlannedDataset) -> None:
    assert_type(dataset.batch([0])["loss_mask"], IntArray)
    assert_type(tensors.batch([0])["input_ids"], torch.Tensor)
    _dataset: BatchDataset[Batch[IntArray]] = dataset


def torch_batches(dataset: fastpack.torch.MemoryMappedDataset, arrays: fastpack.MemoryMappedDataset) -> None:
    assert_type(dataset.batch([0])["labels"], torch.Tensor)
    for batch in fastpack.torch.StatefulDataLoader(dataset, 4, pin_memory=False):
        assert_type(batch["input_ids"], torch.Tensor)
    assert_type(next(fastpack.torch.StatefulDataLoader(arrays, 4))["input_ids"], torch.Tensor)


def other_datasets(samples: list[str]) -> None:
    def collate(batch: list[str]) -> int:
        return len(batch)

    assert_type(next(fastpack.StatefulDataLoader(samples, 4, collate_fn=collate)), int)
    assert_type(next(fastpack.StatefulDataLoader(samples, 4, sampler=range(9))), Any)


def protocols(dataset: fastpack.MixtureDataset, sampler: fastpack.MixtureSampler) -> None:
    _dataset: BatchDataset[Batch[IntArray]] = dataset
    _sampler: ResumableSampler = sampler
