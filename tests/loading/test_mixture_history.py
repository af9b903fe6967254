"""The history of a mixture in a state and in a description: compact, exact, and clear about what it left out."""

from __future__ import annotations

import json
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numbered import Numbers

from fastpack import MixtureSampler, StatefulDataLoader
from fastpack.inspection.trace import TracedRun
from fastpack.loading.mixture_encoding import Changes, decode_changes, encode_changes

NAMES = ["web", "code", "books", "wiki", "news", "mail", "talk", "law"]
SIZES = [5000, 300, 70, 900, 40, 2000, 11, 600]

rows = st.integers(1, 9).flatmap(
    lambda width: st.lists(
        st.lists(st.floats(0, 1, width=32), min_size=width, max_size=width).filter(any), min_size=1, max_size=12
    )
)


@given(
    shares=rows,
    normalized=st.booleans(),
    steps=st.lists(st.integers(1, 2**40), min_size=12, max_size=12),
    batch=st.sampled_from([1, 96, 4096]),
    drawn=st.lists(st.integers(0, 2**50), min_size=9, max_size=9),
)
def test_changes_survive_encoding(
    shares: list[list[float]], normalized: bool, steps: list[int], batch: int, drawn: list[int]
) -> None:
    found = np.array(shares, np.float64)
    if normalized:
        found /= found.sum(axis=1, keepdims=True)
    positions = np.cumsum(np.array([0, *steps]) * batch)[: len(found)]
    changes = Changes(positions, np.array(drawn[: found.shape[1]]), found.astype(np.float32))
    for one, other in zip(decode_changes(encode_changes(changes)), changes, strict=True):
        assert one.dtype == other.dtype
        assert np.array_equal(one, other)


def test_damaged_text_is_refused() -> None:
    text = encode_changes(Changes(np.arange(3), np.zeros(2, np.int64), np.full((3, 2), 0.5, np.float32)))
    for damaged in (text[:-8], "2:", "no history", text.replace("2:", "3:")):
        with pytest.raises(ValueError, match="history in the state is damaged"):
            decode_changes(damaged)


def loader_of(ranks: int, rank: int, n_sources: int = 8, batch_size: int = 2, **options: Any) -> Any:
    bounds = [0, *np.cumsum(SIZES[:n_sources]).tolist()]
    sampler = MixtureSampler(
        bounds, [1] * n_sources, ranks, rank, seed=4, no_repeat=True, names=NAMES[:n_sources], **options
    )
    return StatefulDataLoader(Numbers(bounds[-1]), batch_size, sampler, prefetch=0)


def test_a_hundred_changes_of_eight_sources_are_all_kept() -> None:
    """A state of 100 changes by arbitrary weights has at most 4 KB, and every step since the start is traced."""
    random, expected, state = np.random.default_rng(2), {}, None
    for leg in range(4):
        loaders = [loader_of(3 + leg % 2, rank) for rank in range(3 + leg % 2)]
        steps, weights = random.integers(1, 12, 25), random.random((25, 8)) * 10
        for rank, loader in enumerate(loaders):
            if state is not None:
                loader.load_state_dict(state)
            iter(loader)
            for n_steps, given_weights in zip(steps.tolist(), weights.tolist(), strict=True):
                loader.sampler.update_weights(given_weights, temperature=1.7)
                for _ in range(n_steps):
                    if (batch := next(loader, None)) is None:
                        batch = next(iter(loader))
                    expected[loader.step - 1, rank] = batch.tolist()
        text = json.dumps(loader.state_dict()["sampler"])
        assert len(text) <= 4096
        state = json.loads(json.dumps(loader.state_dict()))
    resumed = loader_of(1, 0)
    resumed.load_state_dict(state)
    assert resumed.sampler._history.start == 0
    assert len(resumed.sampler._history) == 100
    traced = traced_run(resumed)
    for (step, rank), samples in expected.items():
        assert traced.order.samples(step, rank)[1].tolist() == samples


def traced_run(loader: Any) -> TracedRun:
    return TracedRun(json.loads(json.dumps(loader.describe())), loader.dataset)


def test_steps_before_the_oldest_change_that_is_kept(tmp_path: Any) -> None:
    """A state keeps the newest changes; the description of the process that made them has all."""
    loader, random, samples = loader_of(1, 0), np.random.default_rng(3), []
    iter(loader)
    for _ in range(700):
        loader.sampler.update_weights(random.random(8).tolist())
        samples.append(next(loader).tolist())
    assert len(json.dumps(loader.state_dict()["sampler"])) <= 4096
    whole = traced_run(loader)
    assert [whole.order.samples(step)[1].tolist() for step in range(700)] == samples
    assert whole.order.first_step == 0
    resumed = loader_of(1, 0)
    resumed.load_state_dict(json.loads(json.dumps(loader.state_dict())))
    run = traced_run(resumed)
    first = run.order.first_step
    assert 500 < first <= 600
    assert [run.order.samples(step)[1].tolist() for step in range(first, 700)] == samples[first:]
    message = f"the mixture of step {first - 1} is not in this description, which keeps .* from step {first} on"
    with pytest.raises(IndexError, match=message):
        run.rows(first - 1)
    blocks = np.concatenate([numbers for _, _, _, numbers in run.order.blocks(100)])
    assert blocks.tolist() == [sample for step in samples[first:] for sample in step]


def test_old_weights_of_a_mixture_with_repeats() -> None:
    def make() -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # small sources
            sampler = MixtureSampler([0, *np.cumsum(SIZES).tolist()], [1] * 8, 1, 0, order="feistel")
        return StatefulDataLoader(Numbers(sum(SIZES)), 2, sampler, prefetch=0)

    loader, random, samples = make(), np.random.default_rng(3), []
    iter(loader)
    for _ in range(100):
        loader.sampler.update_weights(random.random(8).tolist())
        samples.append(next(iter(loader)).tolist())
    state = json.loads(json.dumps(loader.state_dict()))
    assert len(json.dumps(state)) <= 4096
    whole = traced_run(loader)
    assert [whole.order.samples(step)[1].tolist() for step in range(100)] == samples
    resumed = make()
    resumed.sampler.update_weights(state["elastic"]["order"]["weights"])
    resumed.load_state_dict(state)
    run = traced_run(resumed)
    first = run.order.first_step
    assert 0 < first < 99
    assert [run.order.samples(step)[1].tolist() for step in range(first, 100)] == samples[first:]
    with pytest.raises(IndexError, match=f"keeps the newest changes, from step {first} on"):
        run.rows(0)


def test_online_mixing() -> None:
    """Weights that change at every step: a bounded state, exact resumes on any ranks, and shares as they were set."""
    n_sources, random, state = 8, np.random.default_rng(5), None
    delivered, wanted, reference = np.zeros(n_sources), np.zeros(n_sources), loader_of(1, 0, batch_size=12)
    iter(reference)
    bounds = [0, *np.cumsum(SIZES).tolist()]
    for ranks, batch_size in ((1, 12), (3, 4), (2, 6), (4, 3)):
        loaders = [loader_of(ranks, rank, batch_size=batch_size) for rank in range(ranks)]
        for loader in loaders:
            if state is not None:
                loader.load_state_dict(state)
            iter(loader)
        for _ in range(60):
            weights = random.random(n_sources)
            for loader in (*loaders, reference):
                loader.sampler.update_weights(weights.tolist())
            samples = np.stack([next(loader) for loader in loaders], axis=1).ravel()
            assert samples.tolist() == next(reference).tolist()
            counts = np.bincount(np.searchsorted(bounds, samples, side="right") - 1, minlength=n_sources)
            assert np.abs(counts - 12 * weights / weights.sum()).max() < 4
            delivered, wanted = delivered + counts, wanted + 12 * weights / weights.sum()
            assert np.abs(delivered - wanted).max() < 2 * np.sqrt(reference.step) + 4  # roundings of steps add up
        text = json.dumps(loaders[-1].state_dict())
        assert len(text) < 4096 + 600
        state = json.loads(text)
    assert {name: one["samples"] for name, one in loaders[0].counts().items()} == dict(
        zip(NAMES, delivered.astype(int).tolist(), strict=True)
    )
