"""MixtureSampler(no_repeat=True): complete passes and exact shares after any history of an epoch."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numbered import Numbers

import fastpack
from fastpack import MixtureSampler, StatefulDataLoader
from fastpack.loading.mixture_history import MixtureHistory
from fastpack.loading.mixture_schedule import ShareSchedule


def cumulative(sizes: list[int]) -> list[int]:
    return [0, *np.cumsum(sizes).tolist()]


class TrainingJob:
    """The loaders of all ranks; `step` returns their samples in the global order."""

    def __init__(self, sizes: list[int], weights: list[float], ranks: int, batch_size: int, **options: Any) -> None:
        self.sizes, self.ranks, self.batch_size = sizes, ranks, batch_size
        self.samplers = [
            MixtureSampler(cumulative(sizes), weights, ranks, rank, seed=3, no_repeat=True, **options)
            for rank in range(ranks)
        ]
        dataset = Numbers(sum(sizes))
        self.loaders = [StatefulDataLoader(dataset, batch_size, one, prefetch=0) for one in self.samplers]

    def step(self) -> list[int] | None:
        batches = [next(loader, None) for loader in self.loaders]
        if any(batch is None for batch in batches):
            assert all(batch is None for batch in batches)
            return None
        return [int(number) for numbers in zip(*batches, strict=True) for number in numbers]

    def start(self) -> None:
        for loader in self.loaders:
            iter(loader)

    def set_weights(self, weights: list[float]) -> None:
        for sampler in self.samplers:
            sampler.update_weights(weights)

    def load(self, state: dict[str, Any]) -> None:
        for loader in self.loaders:
            loader.load_state_dict(json.loads(json.dumps(state)))


def check_passes(delivered: list[int], sizes: list[int]) -> None:
    """No sample is repeated before all samples of its source were drawn equally often."""
    bounds = cumulative(sizes)
    sources = np.searchsorted(bounds, delivered, side="right") - 1
    for source, size in enumerate(sizes):
        own = np.array(delivered)[sources == source]
        for start in range(0, len(own), max(1, size)):
            one_pass = own[start : start + size]
            assert len(np.unique(one_pass)) == len(one_pass), f"source {source}, pass {start // size}"


def test_a_loop_restarts_after_an_elastic_resume() -> None:
    """Regression: 2 ranks, new weights, 1 rank, break, restart; 424 of 2,000 samples were never drawn."""
    sizes = [1000, 600, 400]
    job = TrainingJob(sizes, [5, 3, 2], ranks=2, batch_size=4)
    job.start()
    delivered = [number for _ in range(60) for number in job.step() or ()]
    job.set_weights([5.0, 3.1, 2.1])
    job.start()
    delivered += [number for _ in range(20) for number in job.step() or ()]
    state = job.loaders[0].state_dict()
    one = TrainingJob(sizes, [5.0, 3.1, 2.1], ranks=1, batch_size=4)
    one.load(state)
    for n_batches in (70, 50, 10**6):
        one.start()
        for _ in range(n_batches):
            samples = one.step()
            if samples is None:
                break
            delivered += samples
    assert len(delivered) == 2000
    assert sum(count == 2 for count in Counter(delivered).values()) < 20  # shares are not quite the sizes
    check_passes(delivered, sizes)


def test_a_second_pass_starts_when_the_first_is_complete() -> None:
    """Regression: sizes 100 and 900, weights .1/.9 then .9/.1; 18 samples were repeated before 54 were drawn."""
    job = TrainingJob([100, 900], [0.1, 0.9], ranks=1, batch_size=10)
    job.start()
    delivered = [number for _ in range(40) for number in job.step() or ()]
    job.set_weights([0.9, 0.1])
    job.start()
    for _ in range(60):
        delivered += job.step() or []
        check_passes(delivered, [100, 900])
    counts = Counter(number for number in delivered if number < 100)
    assert min(counts.values()) == 5
    assert max(counts.values()) == 6
    assert sum(counts.values()) == pytest.approx(40 + 540, abs=2)


def test_epochs_and_passes_differ() -> None:
    sampler = MixtureSampler([0, 50, 100], [9, 1], 1, 0, seed=1, no_repeat=True)
    first = sampler.indices().tolist()
    own = [number for number in first if number < 50]
    assert own[:40] != own[50:90]
    sampler.set_epoch(1)
    assert sampler.indices().tolist() != first
    assert MixtureSampler([0, 50, 100], [9, 1], 1, 0, seed=1, no_repeat=True).indices().tolist() == first
    assert MixtureSampler([0, 50, 100], [9, 1], 1, 0, seed=2, no_repeat=True).indices().tolist() != first


def test_ranks_share_every_source() -> None:
    """With equal weights, two alternating ranks must not receive one source each."""
    ranks = [MixtureSampler([0, 5000, 10_000], [1, 1], 2, rank, seed=1, no_repeat=True) for rank in (0, 1)]
    for sampler in ranks:
        assert abs(sum(sampler.indices() < 5000) / 5000 - 0.5) < 0.05


def test_orders_are_stable_across_versions() -> None:
    sampler = MixtureSampler([0, 7, 20, 21], [3, 2, 1], 1, 0, seed=5, no_repeat=True)
    assert sampler.indices().tolist() == [14, 18, 0, 2, 20, 6, 13, 5, 11, 12, 4, 20, 1, 17, 3, 15, 6, 1, 20, 9, 2]
    sampler.set_skip(9)
    sampler.update_weights([1, 5, 0])
    assert sampler.indices().tolist() == [12, 17, 15, 9, 16, 4, 7, 19, 1, 10, 8, 16]


def test_any_position_is_computed() -> None:
    sampler = MixtureSampler([0, 60, 90, 100], [6, 3, 1], 3, 1, no_repeat=True)
    whole = [sampler.at(place) for place in range(sampler.global_order_length(3))]
    assert sampler.indices().tolist() == whole[1::3]
    sampler.set_skip(10)
    sampler.update_weights([1, 1, 8])
    rest = sampler.indices().tolist()
    assert [sampler.at(place) for place in range(31, 99, 3)] == rest
    assert [sampler.at(place) for place in range(30)] == whole[:30]
    huge = MixtureSampler([0, 10**12, 2 * 10**12], [1, 3], 64, 63, no_repeat=True)
    assert [number for number, _ in zip(huge, range(50), strict=False)] == [huge.at(63 + 64 * k) for k in range(50)]


def test_sources_without_samples_and_without_weight() -> None:
    sampler = MixtureSampler([0, 0, 30, 50], [5, 1, 0], 1, 0, no_repeat=True)
    assert sorted(sampler) == sorted([*range(30), *list(sampler)[30:]])
    assert len(list(sampler)) == 50
    assert max(sampler) < 30
    assert list(MixtureSampler([0, 0], [1], 1, 0, no_repeat=True)) == []
    with pytest.raises(ValueError, match="every dataset with a weight above 0 is empty"):
        MixtureSampler([0, 0, 30], [1, 0], 1, 0, no_repeat=True)
    with pytest.raises(ValueError, match="every dataset with a weight above 0 is empty"):
        sampler.update_weights([1, 0, 0])
    assert sampler.weights == [5, 1, 0]


def test_states_of_other_orders_are_refused() -> None:
    """The states of KempnerForge and of samplers without no_repeat belong to other orders."""
    sizes, dataset = [30, 70], Numbers(100)
    theirs = StatefulDataLoader(dataset, 4, MixtureSampler(cumulative(sizes), [1, 1], 1, 0), prefetch=0)
    next(iter(theirs))
    state = theirs.state_dict()
    for saved in (state, {name: value for name, value in state.items() if name != "elastic"}):
        ours = TrainingJob(sizes, [1, 1], 1, 4).loaders[0]
        with pytest.raises(ValueError, match="order was torch, is passes-2"):
            ours.load_state_dict(saved)
            iter(ours)
    feistel = fastpack.DistributedSampler(dataset, 1, 0, order="feistel")
    with pytest.raises(ValueError, match="order was torch, is feistel"):
        StatefulDataLoader(dataset, 4, feistel).load_state_dict({"epoch": 0, "batches_yielded": 3, "sampler": {}})


@settings(max_examples=100)
@given(
    weights=st.lists(st.floats(0, 1, width=16), min_size=1, max_size=9).filter(any),
    key=st.one_of(st.none(), st.integers(0, 2**64 - 1)), start=st.integers(0, 10**12),
)  # fmt: skip
def test_a_schedule_keeps_shares_and_counts(weights: list[float], key: int | None, start: int) -> None:
    schedule = ShareSchedule(weights, key)
    shares, n = np.array(weights) / sum(weights), 400
    sources, numbers = schedule.assign(np.arange(start, start + n))
    before = schedule.counts(start)
    assert before.sum() == start
    for source, share in enumerate(shares):
        own = sources == source
        assert numbers[own].tolist() == list(range(before[source], before[source] + own.sum()))
        counts = before[source] + own.cumsum()
        assert np.abs(counts - share * np.arange(start + 1, start + n + 1)).max() < (1.01 if len(weights) <= 2 else 4)
        assert share > 0 or not own.any()
    assert schedule.counts(start + n).tolist() == (before + np.bincount(sources, minlength=len(weights))).tolist()


def test_a_history_counts_draws_and_survives_encoding() -> None:
    history = MixtureHistory((0.5, 0.5), 1, True)
    history.change(30, (0.125, 0.875))
    sources, draws = history.draws(np.arange(100))
    assert [draws[sources == source].tolist() for source in (0, 1)] == [[*range(sum(sources == k))] for k in (0, 1)]
    for place in (0, 1, 29, 30, 31, 77, 100):
        first = int((sources[:place] == 0).sum())
        assert history.counts(place).tolist() == [first, place - first]
    decoded = MixtureHistory.decoded(history.encoded(), 1, True)
    assert [decoded.counts(k).tolist() for k in range(100)] == [history.counts(k).tolist() for k in range(100)]
    with pytest.raises(ValueError, match="history in the state is damaged"):
        MixtureHistory.decoded("no history", 1, True)
