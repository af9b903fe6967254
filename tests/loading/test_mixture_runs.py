"""Whole runs of a mixture: weights, datasets, ranks and skips change at random, and nothing is lost or repeated."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numbered import Numbers

from fastpack import MixtureSampler, PhaseSchedule, StatefulDataLoader, TrainingPhase

NAMES = ["web", "code", "books", "wiki", "news", "mail"]


class TrainingJob:
    """The loaders of all ranks; the sampler begins with the first `n_first` sources."""

    def __init__(self, sizes: list[int], n_first: int, ranks: int, batch_size: int, **options: Any) -> None:
        first = [0, *np.cumsum(sizes[:n_first]).tolist()]
        self.ranks, self.batch_size, self.sizes = ranks, batch_size, sizes
        self.samplers = [
            MixtureSampler(first, [1] * n_first, ranks, rank, seed=3, no_repeat=True, names=NAMES[:n_first], **options)
            for rank in range(ranks)
        ]
        dataset = Numbers(sum(sizes))
        self.loaders = [StatefulDataLoader(dataset, batch_size, one, prefetch=0) for one in self.samplers]

    def start(self) -> None:
        for loader in self.loaders:
            iter(loader)

    def step(self) -> list[int] | None:
        """Return the samples of the next step in the global order; None if an epoch has no step."""
        for _ in range(60):  # epochs may be skipped as a whole
            batches = [next(loader, None) for loader in self.loaders]
            if batches[0] is not None:
                return [int(number) for numbers in zip(*batches, strict=True) for number in numbers]
            assert all(batch is None for batch in batches)
            self.start()
        return None

    def state(self) -> dict[str, Any]:
        states = [json.dumps(loader.state_dict()) for loader in self.loaders]
        assert len(states[0]) < 4096 + 1000
        loaded: dict[str, Any] = json.loads(states[-1])
        return loaded


@dataclass
class Model:
    """What the run must have delivered."""

    sizes: list[int]
    active: list[int]
    weights: list[float]
    sources: list[int] = field(default_factory=list)  # of each sample that was drawn
    samples: list[int] = field(default_factory=list)
    steps: list[tuple[int, int]] = field(default_factory=list)  # number of samples, whether delivered
    since: int = 0  # samples at the last change

    def copy(self) -> Model:
        return Model(
            self.sizes,
            [*self.active],
            [*self.weights],
            [*self.sources],
            [*self.samples],
            [*self.steps],
            self.since,
        )

    def add(self, samples: list[int], delivered: bool) -> None:
        bounds = np.cumsum(self.sizes)
        self.sources += np.searchsorted(bounds, samples, side="right").tolist()
        self.samples += samples
        self.steps.append((len(samples), int(delivered)))
        drawn = np.bincount(self.sources[self.since :], minlength=len(self.sizes))
        shares = np.zeros(len(self.sizes))
        shares[self.active] = np.array(self.weights) / sum(self.weights)
        off = np.abs(drawn - shares * drawn.sum()).max()
        assert off <= (1.01 if len(self.active) <= 2 else 4), "a source is off its share"
        assert off <= max(len(samples), 4)

    def check(self, counts: dict[str, Any]) -> None:
        sources, samples = np.array(self.sources, int), np.array(self.samples, int)
        delivered = np.repeat([one for _, one in self.steps], [n for n, _ in self.steps]).astype(bool)
        for source, size in enumerate(self.sizes):
            own = samples[sources == source]
            for start in range(0, len(own), size):
                one_pass = own[start : start + size]
                assert len(np.unique(one_pass)) == len(one_pass), f"a pass of source {source} repeats a sample"
            if NAMES[source] in counts:
                n = int((sources[delivered[: len(sources)]] == source).sum()) if len(sources) else 0
                assert counts[NAMES[source]] == {"samples": n, "tokens": 0, "epochs": n / size}


events = st.one_of(
    st.tuples(st.just("steps"), st.integers(1, 25)),
    st.tuples(st.just("weights"), st.lists(st.integers(1, 9), min_size=6, max_size=6)),
    st.tuples(st.just("add"), st.integers(1, 9)),
    st.tuples(st.just("remove"), st.integers(0, 5)),
    st.tuples(st.just("break"), st.none()),
    st.tuples(st.just("resume"), st.tuples(st.integers(1, 4), st.integers(1, 6))),
    st.tuples(st.just("kill"), st.tuples(st.integers(1, 4), st.integers(1, 6))),
    st.tuples(st.just("checkpoint"), st.none()),
    st.tuples(st.just("skip"), st.tuples(st.integers(0, 8), st.integers(0, 5))),
    st.tuples(st.just("peek"), st.none()),
)


class Run:
    """A run, a shadow of it that skips nothing, and the model."""

    def __init__(self, sizes: list[int], n_first: int, ranks: int, batch_size: int, shuffle: bool) -> None:
        self.arguments, self.shuffle = (sizes, n_first), shuffle
        self.skipped: set[int] = set()
        self.make(ranks, batch_size)
        self.model = Model(sizes, list(range(n_first)), [1.0] * n_first)
        self.checkpoint()

    def make(self, ranks: int, batch_size: int) -> None:
        self.jobs = [TrainingJob(*self.arguments, ranks, batch_size, shuffle=self.shuffle) for _ in range(2)]

    def checkpoint(self) -> None:
        self.saved = [job.state() for job in self.jobs], self.model.copy(), set(self.skipped)

    def restart(self, shape: tuple[int, int], states: list[Any]) -> None:
        self.make(*shape)
        for job, state in zip(self.jobs, states, strict=True):
            for loader in job.loaders:
                loader.load_state_dict(state)
            job.start()

    def step(self) -> bool:
        """Take one delivered step of the run, and that step and the skipped ones before it of the shadow."""
        delivered = self.jobs[0].step()
        while True:
            shadow, number = self.jobs[1].step(), len(self.model.steps)
            if shadow is None:
                assert delivered is None
                return False
            is_delivered = number not in self.skipped
            self.model.add(shadow, is_delivered)
            if is_delivered:
                assert delivered == shadow
                assert [loader.step for loader in self.jobs[0].loaders] == [number + 1] * self.jobs[0].ranks
                return True

    def change(self, name: str, value: Any) -> None:
        """Apply a change to every rank, and to the model."""
        model = self.model
        if name == "weights":
            weights = [float(weight) for weight in value[: len(model.active)]]
            for job in self.jobs:
                for sampler in job.samplers:
                    sampler.update_weights(weights)
        elif name == "add":
            new = next((k for k in range(len(model.sizes)) if k not in model.active), None)
            if new is None:
                return
            active = sorted([*model.active, new])
            weights = [*model.weights]
            weights.insert(active.index(new), float(value))
            model.active = active
            for job in self.jobs:
                for sampler in job.samplers:
                    sampler.add_dataset(NAMES[new], model.sizes[new], float(value))
        else:
            if len(model.active) < 2:
                return
            place = value % len(model.active)
            weights = [weight for k, weight in enumerate(model.weights) if k != place]
            removed = model.active.pop(place)
            for job in self.jobs:
                for sampler in job.samplers:
                    sampler.remove_dataset(NAMES[removed])
        changed = np.array(weights) / sum(weights)
        same = len(weights) == len(model.weights) and np.array_equal(
            changed.astype(np.float32), (np.array(model.weights) / sum(model.weights)).astype(np.float32)
        )
        model.weights = weights
        if name != "weights" or not same:
            model.since = len(model.samples)


def check_history(
    sizes: list[int], n_first: int, history: list[Any], ranks: int, batch_size: int, shuffle: bool
) -> None:
    run = Run(sizes, min(n_first, len(sizes)), ranks, batch_size, shuffle)
    for job in run.jobs:
        job.start()
    for name, value in [*history, ("steps", 20)]:
        if name == "steps":
            for _ in range(value):
                if not run.step():
                    break
        elif name in ("weights", "add", "remove"):
            run.change(name, value)
        elif name == "break":
            for job in run.jobs:
                job.start()
        elif name == "peek":
            for job in run.jobs:
                for sampler in job.samplers:
                    sampler.set_epoch(sampler.epoch + 1)  # as Lightning, which counts epochs itself
        elif name == "checkpoint":
            run.checkpoint()
        elif name == "resume":
            run.restart(value, [job.state() for job in run.jobs])
        elif name == "kill":
            states, model, skipped = run.saved
            run.restart(value, states)
            run.model, run.skipped = model.copy(), set(skipped)
        else:
            first = len(run.model.steps) + value[0]
            run.skipped |= set(range(first, first + value[1] + 1))
            for loader in run.jobs[0].loaders:
                loader.skip(steps=(first, first + value[1]))
    run.model.check(run.jobs[0].loaders[-1].counts())


histories = given(
    sizes=st.lists(st.integers(4, 120), min_size=1, max_size=6), n_first=st.integers(1, 6),
    history=st.lists(events, max_size=20), ranks=st.integers(1, 4), batch_size=st.integers(1, 6),
    shuffle=st.booleans(),
)  # fmt: skip


@settings(max_examples=25, deadline=None)
@histories
def test_random_histories(**history: Any) -> None:
    check_history(**history)


@pytest.mark.slow
@settings(max_examples=1000, deadline=None)
@histories
def test_a_thousand_random_histories(**history: Any) -> None:
    check_history(**history)


def test_weights_by_tokens_give_shares_of_tokens() -> None:
    sizes, tokens = [0, 1000, 3000], [100_000, 20_000]
    sampler = MixtureSampler(sizes, [1, 1], 1, 0, no_repeat=True, weight_by="tokens", tokens=tokens, names=["a", "b"])
    drawn = sampler.indices()
    long = int((drawn < 1000).sum())
    assert long * 100 == pytest.approx((len(drawn) - long) * 10, abs=200)
    sampler.add_dataset("c", 500, 2.0, tokens=500)
    assert sampler.probs == pytest.approx(np.array([1 / 100, 1 / 10, 2]) / 2.11)
    for arguments, message in (
        ({"weight_by": "tokens"}, "need each other"),
        ({"weight_by": "bytes"}, "choose one of samples, tokens"),
        ({"weight_by": "tokens", "tokens": [1]}, "tokens has 1 entries for 2 datasets"),
        ({"weight_by": "tokens", "tokens": [1, 0]}, "needs tokens above 0"),
        ({"names": ["a"]}, "names has 1 entries for 2 datasets"),
        ({"names": ["a", "a"]}, "names must be unique"),
    ):
        with pytest.raises(ValueError, match=message):
            MixtureSampler(sizes, [1, 1], 1, 0, **arguments)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="needs tokens="):
        sampler.add_dataset("d", 10, 1.0)


def test_changes_by_name() -> None:
    sampler = MixtureSampler([0, 10, 20, 30], [1, 1, 2], 1, 0, no_repeat=True, names=["a", "b", "c"])
    sampler.update_weights({"c": 3})
    assert (sampler.weights, sampler.names) == ([1, 1, 3], ["a", "b", "c"])
    sampler.remove_dataset("b")
    assert (sampler.probs, sampler.names, len(sampler)) == ([0.25, 0.75], ["a", "c"], 30)
    sampler.add_dataset("b", 10, 4)
    assert (sampler.weights, sampler.names) == ([1, 4, 3], ["a", "b", "c"])
    for method, arguments, message in (
        ("remove_dataset", ("d",), "unknown dataset 'd': the datasets are a, b, c"),
        ("add_dataset", ("a", 10, 1.0), "'a' is in use"),
        ("add_dataset", ("d", -1, 1.0), "size -1"),
        ("add_dataset", ("d", 1, -1.0), "must be non-negative"),
        ("update_weights", ({"d": 1.0},), "unknown dataset 'd'"),
        ("update_weights", ([1.0],), "Expected 3 weights, got 1"),
    ):
        with pytest.raises(ValueError, match=message):
            getattr(sampler, method)(*arguments)
    sampler.remove_dataset("a")
    with pytest.raises(ValueError, match="was removed with 10 samples, now it has 11"):
        sampler.add_dataset("a", 11, 1.0)
    sampler.remove_dataset("b")
    with pytest.raises(ValueError, match="without it"):
        sampler.remove_dataset("c")
    assert sampler.names == ["c"]
    with pytest.raises(ValueError, match="no_repeat=True, names="):
        MixtureSampler([0, 10], [1], 1, 0).add_dataset("b", 1, 1.0)


def test_a_hundred_changes_fit_into_4_kb() -> None:
    """Regression guard: the state of 100 arbitrary changes of five sources, and of 3,000 of eight."""
    random = np.random.default_rng(2)
    names = [*NAMES, "talk", "law"]
    for n_changes, n_sources in ((100, 5), (600, 8)):
        bounds = (np.arange(n_sources + 1) * 10**9).tolist()

        def sampler_of(ranks: int, rank: int, bounds: list[int] = bounds) -> MixtureSampler:
            n = len(bounds) - 1
            return MixtureSampler(bounds, [1] * n, ranks, rank, no_repeat=True, names=names[:n])

        sampler = sampler_of(64, 0)
        for change in range(n_changes):
            sampler.update_weights(random.random(n_sources).tolist(), temperature=1.3)
            sampler.set_skip(10_000 * change + int(random.integers(1000)))
            sampler.blocks(1)
        text = json.dumps(sampler.state_dict())
        assert len(text) <= 4096
        resumed, consumed = sampler_of(8, 5), 10_000 * n_changes * 64
        resumed.load_state_dict(json.loads(text))
        resumed.resume_at(consumed, 64)
        assert next(resumed.blocks(10))[3] == sampler.at(consumed + 5 + 3 * 8)


def test_weights_set_at_every_step_apply_at_once() -> None:
    """Online mixing: no call of iter() is needed, and batches that were produced ahead are not delivered."""
    sampler = MixtureSampler([0, 5000, 10_000], [1, 1], 1, 0, no_repeat=True, names=["a", "b"])
    loader = StatefulDataLoader(Numbers(10_000), 10, sampler)
    batches = iter(loader)
    for step in range(50):
        sampler.update_weights({"a": float(step % 2), "b": float(1 - step % 2)})
        assert ((next(batches) < 5000) == bool(step % 2)).all()
    assert {name: one["samples"] for name, one in loader.counts().items()} == {"a": 250, "b": 250}
    loader.close()


def test_weights_set_at_every_step_produce_no_batch_in_vain() -> None:
    class Counted(Numbers):
        produced = 0

        def __getitems__(self, indices: Any) -> Any:
            self.produced += 1
            return [self[index] for index in indices]

    sampler, dataset = (
        MixtureSampler([0, 5000, 10_000], [1, 1], 1, 0, no_repeat=True, names=["a", "b"]),
        Counted(10_000),
    )
    loader = StatefulDataLoader(dataset, 10, sampler, prefetch=3)
    batches = iter(loader)
    for step in range(1, 20):
        sampler.update_weights({"a": float(step)})
        next(batches)
        assert dataset.produced == step
    for _ in range(5):  # without changes, batches are produced ahead again
        next(batches)
    loader.close()
    assert dataset.produced > 24


def test_counts_between_a_change_and_its_first_batch() -> None:
    """Counts of coming steps are computed ahead: a change, a skip and a loaded state make them void."""
    sampler = MixtureSampler([0, 5000, 10_000], [1, 1], 1, 0, no_repeat=True, names=["a", "b"])
    loader, seen = StatefulDataLoader(Numbers(10_000), 10, sampler), {"a": 0, "b": 0}
    batches = iter(loader)

    def take() -> None:
        batch = next(batches)
        seen["a"] += int((batch < 5000).sum())
        seen["b"] += int((batch >= 5000).sum())

    def check() -> None:
        assert {name: one["samples"] for name, one in loader.counts().items()} == seen

    for step in range(60):
        take()
        check()
        if step % 7 == 3:
            sampler.update_weights({"a": 1.0 + step})
            check()
        if step % 20 == 11:
            loader.skip(steps=(loader.step + 1, loader.step + 3))
            check()
        if step == 30:
            state, saved = loader.state_dict(), dict(seen)
    loader.load_state_dict(state)
    batches = iter(loader)
    seen.update(saved)
    for _ in range(10):
        check()
        take()
    loader.close()


def test_phases_change_the_weights_of_a_running_loop() -> None:
    sampler = MixtureSampler([0, 100, 200], [1, 1], 1, 0, no_repeat=True, names=["a", "b"])
    loader = StatefulDataLoader(Numbers(200), 10, sampler)
    schedule = PhaseSchedule([TrainingPhase(5, {"a": 0.0})], sampler, ["a", "b"], [1, 1])
    for step, batch in zip(range(8), loader, strict=False):
        assert (batch >= 100).all() == (step >= 5)
        schedule.advance(step + 1)
    loader.close()


def test_counts_of_a_dataset_and_of_a_mixture_without_names() -> None:
    loader = StatefulDataLoader(Numbers(40), 4, range(40), prefetch=0)
    for _, _batch in zip(range(13), [*loader, *loader], strict=False):
        pass
    assert loader.counts() == {"dataset": {"samples": 80, "tokens": 0, "epochs": 2.0}}
    for options, message in (({"no_repeat": True}, "needs the names"), ({}, "no_repeat=True")):
        sampler = MixtureSampler([0, 20, 40], [1, 1], 1, 0, **options)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match=message):
            StatefulDataLoader(Numbers(40), 4, sampler).counts()


@pytest.mark.parametrize("steps", [(3, 2), (-1, 4)])
def test_a_range_of_no_steps_cannot_be_skipped(steps: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="not a first and a last step"):
        StatefulDataLoader(Numbers(40), 4, range(40)).skip(steps=steps)


def test_steps_are_skipped_on_resume() -> None:
    """Skips may be set before or after the state is loaded, and are part of the next state."""
    loader = StatefulDataLoader(Numbers(40), 4, range(40), prefetch=0)
    whole = [batch.tolist() for batch in loader]
    iter(loader)
    state = {**loader.state_dict()}
    for order in (0, 1):
        resumed = StatefulDataLoader(Numbers(40), 4, range(40), prefetch=0)
        if order:
            resumed.skip(steps=(12, 13))
        resumed.load_state_dict(json.loads(json.dumps(state)))
        if not order:
            resumed.skip(steps=(12, 13))
        first = [next(resumed).tolist() for _ in [iter(resumed)]]
        again = StatefulDataLoader(Numbers(40), 4, range(40), prefetch=0)
        again.load_state_dict(json.loads(json.dumps(resumed.state_dict())))
        rest = [batch.tolist() for batch in again]
        assert first + rest == [*whole[:2], *whole[4:]]
        assert again.step == 20
        assert again.counts()["dataset"]["samples"] == 72
        assert len(again.state_dict()["elastic"]["run"]["legs"]) == 1
