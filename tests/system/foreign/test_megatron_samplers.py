"""NVIDIA's own samplers, of megatron-bridge, yield the micro-batches of ours, from any number of consumed samples."""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import fastpack

pytest.importorskip("torch")
TOTAL, SIZE, RANKS = 103, 4, 2
KINDS = ("sequential", "sharded", "strided")


@pytest.fixture(scope="module")
def theirs() -> ModuleType:
    """Load the module of the samplers alone: the package needs a GPU's libraries."""
    bridge = importlib.util.find_spec("megatron.bridge")
    if bridge is None or bridge.submodule_search_locations is None:
        pytest.skip("megatron-bridge is not installed")
    path = Path(next(iter(bridge.submodule_search_locations)), "data", "samplers.py")
    spec = importlib.util.spec_from_file_location("megatron_bridge_samplers", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def make(module: Any, kind: str, consumed: int, rank: int, total: int = TOTAL, size: int = SIZE, n: int = RANKS) -> Any:
    """Make a sampler of fastpack or of the module of theirs; the arguments are the same."""
    if kind == "sequential":
        return module.MegatronPretrainingSampler(total, consumed, size, rank, n)
    return module.MegatronPretrainingRandomSampler(None, total, consumed, size, rank, n, kind == "sharded")


def micro_batches(sampler: Any, size: int) -> list[list[int]]:
    numbers = list(sampler)
    return [numbers[k : k + size] for k in range(0, len(numbers), size)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(40))
def test_micro_batches_are_theirs(theirs: ModuleType, kind: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    size, n_ranks = int(rng.integers(1, 6)), int(rng.integers(1, 5))
    total = size * n_ranks * int(rng.integers(1, 12))
    if kind != "strided":  # there, some ranks get one micro-batch more in Megatron
        total += int(rng.integers(0, size * n_ranks))
    steps = int(rng.integers(0, total // (size * n_ranks) * (1 if kind == "sequential" else 3)))
    for rank in range(n_ranks):
        expected = list(make(theirs, kind, steps * size * n_ranks, rank, total, size, n_ranks))
        ours = make(fastpack, kind, steps * size * n_ranks, rank, total, size, n_ranks)
        assert micro_batches(ours, size) == expected


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("consumed", [0, 5, 90, 102])
def test_the_last_samples_are_theirs(theirs: ModuleType, drop_last: bool, consumed: int) -> None:
    for rank in range(RANKS):
        arguments = TOTAL, consumed, SIZE, rank, RANKS, drop_last
        expected = [number for batch in theirs.MegatronPretrainingSampler(*arguments) for number in batch]
        assert list(fastpack.MegatronPretrainingSampler(*arguments)) == expected


class Numbers:
    """A dataset whose samples are their numbers."""

    def __len__(self) -> int:
        return TOTAL

    def __getitem__(self, index: int) -> int:
        return index


def epochs(theirs: ModuleType, kind: str, consumed: int, rank: int) -> Iterator[list[int]]:
    """Yield the micro-batches of Megatron's training loop, epoch after epoch."""
    while True:
        sampler = make(theirs, kind, consumed, rank)
        yield from itertools.islice(sampler, TOTAL // (SIZE * RANKS) - consumed % 96 // 8)
        consumed = (consumed // 96 + 1) * 96


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_moves_over_in_the_middle_and_back(theirs: ModuleType, kind: str) -> None:
    """5 steps of Megatron, 4 of fastpack, 3 of Megatron, in the second epoch where there are epochs."""
    first = 0 if kind == "sequential" else 96
    for rank in range(RANKS):
        whole = list(itertools.islice(epochs(theirs, kind, first, rank), 12))
        run = list(itertools.islice(epochs(theirs, kind, first, rank), 5))
        sampler = make(fastpack, kind, first + 5 * SIZE * RANKS, rank)
        loader = fastpack.StatefulDataLoader(Numbers(), SIZE, sampler, collate_fn=list)
        run += itertools.islice(iter(loader), 4)
        consumed = sampler.consumed_at(loader.state_dict())
        assert consumed == first + 9 * SIZE * RANKS
        run += itertools.islice(epochs(theirs, kind, consumed, rank), 3)
        assert run == whole
        loader.close()
