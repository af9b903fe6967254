"""Megatron's samplers, compared with their rules, alone and under the loader."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastpack
from fastpack.datasets.permutations import TorchGenerator


class Numbers:
    """A dataset whose samples are their numbers."""

    def __init__(self, n: int) -> None:
        self._n = n

    def __len__(self) -> int:
        return self._n

    def __getitem__(self, index: int) -> int:
        return index


def sequential(total: int, consumed: int, size: int, rank: int, ranks: int, drop_last: bool) -> list[int]:
    """Return the samples of a rank as Megatron describes them: its share of every global batch."""
    every: list[int] = []
    for start in range(consumed, total, size * ranks):
        batch = list(range(start, min(start + size * ranks, total)))
        if len(batch) == size * ranks or not drop_last:
            every += batch[rank * size : (rank + 1) * size]
    return every


def shuffled(total: int, consumed: int, size: int, rank: int, ranks: int, sharding: bool) -> list[int]:
    """Return the samples of a rank until the end of the epoch, as Megatron describes them."""
    per_epoch = total - total % (size * ranks)
    epoch, within = divmod(consumed, per_epoch)
    n_own = (per_epoch - within) // ranks
    if sharding:
        bucket = per_epoch // ranks
        order = TorchGenerator(epoch).permutation(bucket) + rank * bucket
        return order[within // ranks :].tolist()
    order = TorchGenerator(epoch).permutation(total // size * size)
    return order[within:][rank::ranks][:n_own].tolist()


@given(
    total=st.integers(1, 120),
    size=st.integers(1, 5),
    ranks=st.integers(1, 4),
    drop_last=st.booleans(),
    consumed=st.integers(0, 119),
)
def test_ranks_take_micro_batches_in_turn(total: int, size: int, ranks: int, drop_last: bool, consumed: int) -> None:
    consumed = min(consumed, total - 1)
    for rank in range(ranks):
        sampler = fastpack.MegatronPretrainingSampler(total, consumed, size, rank, ranks, drop_last)
        assert list(sampler) == sequential(total, consumed, size, rank, ranks, drop_last)
        assert len(sampler) == len(sequential(total, 0, size, rank, ranks, drop_last))


@given(
    total=st.integers(20, 120),
    size=st.integers(1, 4),
    ranks=st.integers(1, 4),
    sharding=st.booleans(),
    steps=st.integers(0, 90),
)
def test_the_epoch_seeds_a_permutation(total: int, size: int, ranks: int, sharding: bool, steps: int) -> None:
    consumed = steps * size * ranks
    for rank in range(ranks):
        sampler = fastpack.MegatronPretrainingRandomSampler(None, total, consumed, size, rank, ranks, sharding)
        assert list(sampler) == shuffled(total, consumed, size, rank, ranks, sharding)
        assert len(sampler) == total // (size * ranks) * size


def make_sampler(kind: str, consumed: int, size: int, rank: int, ranks: int) -> Any:
    if kind == "sequential":
        return fastpack.MegatronPretrainingSampler(103, consumed, size, rank, ranks)
    return fastpack.MegatronPretrainingRandomSampler(None, 103, consumed, size, rank, ranks, kind == "sharded")


def loader_of(kind: str, consumed: int, size: int, rank: int, ranks: int) -> Any:
    sampler = make_sampler(kind, consumed, size, rank, ranks)
    return fastpack.StatefulDataLoader(Numbers(103), size, sampler, collate_fn=list)


KINDS = ("sequential", "sharded", "strided")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("consumed", [0, 24, 96])
def test_a_run_of_megatron_continues_and_goes_back(kind: str, consumed: int) -> None:
    for rank in range(2):
        loader = loader_of(kind, consumed, 4, rank, 2)
        sampler = make_sampler(kind, consumed, 4, rank, 2)
        expected = [list(sampler)[k : k + 4] for k in range(0, len(list(sampler)) - 3, 4)]
        assert list(loader) == expected
    if kind != "sequential":  # the next epoch is another permutation
        assert loader.state_dict()["epoch"] == consumed // 96 + 1
    for taken in range(min(3, len(expected) + 1)):
        batches = iter(loader := loader_of(kind, consumed, 4, 0, 2))
        for _ in range(taken):
            next(batches)
        at = loader.sampler.consumed_at(loader.state_dict())
        assert at == consumed + 8 * taken
        back = make_sampler(kind, at, 4, 0, 2)
        assert list(back) == [number for batch in expected_from(kind, consumed, taken) for number in batch]


def expected_from(kind: str, consumed: int, taken: int) -> list[list[int]]:
    numbers = list(make_sampler(kind, consumed, 4, 0, 2))[4 * taken :]
    return [numbers[k : k + 4] for k in range(0, len(numbers), 4)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("size", "ranks"), [(4, 2), (4, 3), (4, 1), (2, 3)])
def test_elastic_resume_neither_loses_nor_repeats_samples(kind: str, size: int, ranks: int) -> None:
    if kind != "sequential" and size != 4:
        return  # the micro-batch size determines the permutation
    seen: list[int] = []
    for rank in range(2):
        loader = loader_of(kind, 16, 4, rank, 2)
        batches = iter(loader)
        for _ in range(3):
            seen += next(batches)
        state = loader.state_dict()
    assert len(set(seen)) == 24
    rest: list[int] = []
    for rank in range(ranks):
        resumed = loader_of(kind, 0, size, rank, ranks)
        resumed.load_state_dict(state)
        n_batches = list(resumed)
        rest += [number for batch in n_batches for number in batch]
        if kind == "sequential":
            assert n_batches[0][0] == 40 + rank * size
    assert not set(seen) & set(rest)
    assert len(set(rest)) == len(rest)
    before = set(range(16)) if kind == "sequential" else None
    every = np.unique([*seen, *rest])
    assert len(every) >= 103 - 16 - size * ranks - 7
    if before is not None:
        assert not before & set(every.tolist())


def test_another_permutation_is_refused_in_the_middle_of_an_epoch() -> None:
    loader = loader_of("sharded", 0, 4, 0, 2)
    next(iter(loader))
    other = loader_of("strided", 0, 4, 0, 2)
    other.load_state_dict(loader.state_dict())
    with pytest.raises(ValueError, match="data_sharding was True, is False"):
        iter(other)


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="none are left"):
        fastpack.MegatronPretrainingSampler(10, 10, 1, 0, 1)
    with pytest.raises(ValueError, match="total_samples is 0"):
        fastpack.MegatronPretrainingSampler(0, 0, 1, 0, 1)
    with pytest.raises(ValueError, match="no multiple of 2 samples on 2 ranks"):
        fastpack.MegatronPretrainingRandomSampler(None, 9, 3, 2, 0, 2, True)
    with pytest.raises(ValueError, match="do not fill"):
        fastpack.MegatronPretrainingRandomSampler(None, 3, 0, 2, 0, 2, True)
    with pytest.raises(ValueError, match="rank 2 of 2"):
        fastpack.MegatronPretrainingSampler(10, 0, 1, 2, 2)
