"""Datasets and samplers of other libraries: the adapters of the loader."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numbered import Numbers

import fastpack
from fastpack.loading.adapters import SamplerAdapter, as_batch_dataset, as_resumable_sampler
from fastpack.loading.protocols import BatchDataset, ResumableSampler


class Filled(Numbers):
    """A dataset with `batch` and `fill`, without `new_outputs`."""

    def __init__(self, length: int) -> None:
        super().__init__(length)
        self.addresses: set[int] = set()

    def batch(self, indices: Any) -> dict[str, np.ndarray]:
        return {"index": np.asarray(indices, np.int32), "twice": np.stack([indices, indices], axis=1)}

    def fill(self, indices: Any, out: dict[str, np.ndarray]) -> None:
        self.addresses.add(out["index"].__array_interface__["data"][0])
        for name, array in self.batch(indices).items():
            out[name][:] = array


class Skipping:
    """A sampler with the methods of KempnerForge's."""

    num_replicas = 1

    def __init__(self) -> None:
        self.epoch = self.skip = 0

    def __len__(self) -> int:
        return 12

    def __iter__(self) -> Iterator[int]:
        skip, self.skip = self.skip, 0
        return iter([(number + self.epoch) % 12 for number in range(12)][skip:])

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def set_skip(self, skip: int) -> None:
        self.skip = skip

    def state_dict(self) -> dict[str, int]:
        return {"epoch": self.epoch}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.epoch = state["epoch"]


def test_datasets_and_samplers_of_fastpack_need_no_adapter(shards: Path) -> None:
    dataset = fastpack.MemoryMappedDataset(shards, 9)
    mixture = fastpack.MixtureDataset([dataset, Numbers(3)], ["a", "b"])
    samplers = [
        fastpack.DistributedSampler(dataset),
        fastpack.ResumableDistributedSampler(dataset, 0),
        fastpack.MixtureSampler(mixture.cumulative_sizes, [1, 1]),
    ]
    assert all(isinstance(one, BatchDataset) and as_batch_dataset(one) is one for one in (dataset, mixture))
    assert all(isinstance(one, ResumableSampler) and as_resumable_sampler(one) is one for one in samplers)


def test_a_dataset_with_fill_receives_leased_arrays() -> None:
    dataset = Filled(400)
    batches = [
        {name: array.copy() for name, array in batch.items()} for batch in fastpack.StatefulDataLoader(dataset, 4)
    ]
    expected = list(fastpack.DistributedSampler(dataset))
    assert np.concatenate([batch["index"] for batch in batches]).tolist() == expected
    assert batches[0]["twice"].tolist() == [[number, number] for number in expected[:4]]
    assert batches[0]["index"].dtype == np.int32
    assert len(dataset.addresses) < 40


@pytest.mark.parametrize("taken", [0, 1, 2])
def test_samplers_with_kempnerforges_methods_resume(taken: int) -> None:
    loader = fastpack.StatefulDataLoader(Numbers(12), 4, Skipping())
    whole = [[batch.tolist() for batch in loader] for _ in range(2)][1]
    first = fastpack.StatefulDataLoader(Numbers(12), 4, Skipping())
    first.set_epoch(1)
    batches = iter(first)
    assert [next(batches).tolist() for _ in range(taken)] == whole[:taken]
    resumed = fastpack.StatefulDataLoader(Numbers(12), 4, Skipping())
    resumed.load_state_dict(first.state_dict())
    assert [batch.tolist() for batch in resumed] == whole[taken:]
    first.close()


def test_an_adapted_sampler_skips_once() -> None:
    sampler = SamplerAdapter(range(7))
    sampler.set_skip(2)
    assert list(sampler.blocks(3)) == [[2, 3, 4], [5, 6]]
    assert next(sampler.blocks(3)) == [0, 1, 2]
    assert (len(sampler), sampler.num_replicas, sampler.state_dict(), sampler.fingerprint()) == (7, 1, {}, {})
    with pytest.raises(ValueError, match="a range cannot share out the rest of an epoch that 3 ranks began"):
        sampler.resume_at(4, 3)
