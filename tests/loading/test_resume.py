"""Resuming on another number of ranks or with another batch size: no sample lost, none repeated."""

from __future__ import annotations

import copy
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numbered import Numbers

import fastpack
from fastpack.loading.resume import EpochPosition


def make_sampler(length: int, ranks: int, rank: int, kind: str, seed: int = 1, **options: Any) -> Any:
    if kind == "mixture":
        bounds = [0, length // 2, length // 2 + length // 3, length]
        weights = options.pop("weights", [3.0, 1.0, 1.0])
        return fastpack.MixtureSampler(bounds, weights, ranks, rank, seed=seed, **options)
    if kind == "modalities":
        return fastpack.ResumableDistributedSampler(Numbers(length), rank, ranks, shuffle=True, seed=seed, **options)
    return fastpack.DistributedSampler(Numbers(length), ranks, rank, seed=seed, shuffle=kind == "shuffled", **options)


def make_loaders(length: int, ranks: int, batch_size: int, kind: str, **options: Any) -> list[Any]:
    """Return a loader per rank, without threads, which are irrelevant here."""
    samplers = [make_sampler(length, ranks, rank, kind, **options) for rank in range(ranks)]
    return [fastpack.StatefulDataLoader(Numbers(length), batch_size, one, prefetch=0) for one in samplers]


def step(loaders: list[Any]) -> list[int] | None:
    """Return one batch of every rank in the global order; None at the end, which all ranks reach together."""
    batches = [next(loader, None) for loader in loaders]
    if any(batch is None for batch in batches):
        assert all(batch is None for batch in batches)
        return None
    return [int(number) for numbers in zip(*batches, strict=True) for number in numbers]


legs = st.lists(st.tuples(st.integers(1, 16), st.integers(1, 9), st.integers(0, 6)), min_size=1, max_size=5)


@pytest.mark.parametrize("kind", ["shuffled", "sequential", "mixture", "modalities"])
@pytest.mark.parametrize("drop_last", [True, False])
@settings(max_examples=150)
@given(length=st.integers(102, 700), legs=legs, epoch=st.integers(0, 3), saver=st.integers(0, 15))
def test_resumes_on_any_ranks_and_batch_sizes(
    kind: str, drop_last: bool, length: int, legs: list[tuple[int, int, int]], epoch: int, saver: int
) -> None:
    """A leg is (ranks, batch size, batches before the next leg); the last one runs to the epoch's end."""
    first_ranks = legs[0][0]
    state: dict[str, Any] = {"epoch": epoch, "batches_yielded": 0, "sampler": {"epoch": epoch}}
    seen: list[int] = []
    whole = whole_order(length, first_ranks, kind, drop_last, epoch)
    for number, (ranks, batch_size, n_batches) in enumerate(legs):
        loaders = make_loaders(length, ranks, batch_size, kind, drop_last=drop_last)
        for loader in loaders:
            loader.load_state_dict(json.loads(json.dumps(state)))
            iter(loader)
        last = number == len(legs) - 1
        while last or n_batches > 0:
            got = step(loaders)
            if got is None:
                break
            seen += got
            n_batches -= 1
        if last or got_to_the_end(loaders):
            break
        states = [loader.state_dict() for loader in loaders]
        for one in states:  # the state of one rank serves every rank
            assert one["elastic"] == states[0]["elastic"]
            assert (one["epoch"], one["batches_yielded"]) == (states[0]["epoch"], states[0]["batches_yielded"])
        state = states[saver % ranks]
        assert state["elastic"]["consumed"] == len(seen)
        if not seen:
            whole = whole_order(length, legs[number + 1][0], kind, drop_last, epoch)
    # without drop_last the order is extended by its first samples
    assert seen[: len(whole)] == whole[: len(seen)]
    assert drop_last or len(seen) - len(whole) < 16
    assert not drop_last or len(seen) <= len(whole)
    ranks, batch_size, _ = legs[number]
    assert len(whole) - len(seen) < ranks * batch_size  # the rest fills no batch on every rank
    assert {loader.state_dict()["epoch"] for loader in loaders} == {epoch + 1}
    following = make_loaders(length, ranks, batch_size, kind, drop_last=drop_last)
    for loader in following:
        loader.set_epoch(epoch + 1)
    assert step([iter(loader) for loader in loaders]) == step([iter(loader) for loader in following])


def got_to_the_end(loaders: list[Any]) -> bool:
    return not loaders[0]._producers


def whole_order(length: int, ranks: int, kind: str, drop_last: bool, epoch: int) -> list[int]:
    """Return the global order of an epoch for `ranks` ranks."""
    samplers = [make_sampler(length, ranks, rank, kind, drop_last=drop_last) for rank in range(ranks)]
    for sampler in samplers:
        sampler.set_epoch(epoch)
    return [number for numbers in zip(*(list(sampler) for sampler in samplers), strict=True) for number in numbers]


def stopped(length: int, ranks: int, batch_size: int, n_batches: int, kind: str = "shuffled") -> dict[str, Any]:
    """Return the state of rank 0 after `n_batches` batches."""
    loader = iter(make_loaders(length, ranks, batch_size, kind)[0])
    for _ in range(n_batches):
        next(loader)
    return loader.state_dict()


def resumed(
    state: dict[str, Any], length: int, ranks: int, batch_size: int, kind: str = "shuffled", **more: Any
) -> Any:
    loader = make_loaders(length, ranks, batch_size, kind, **more)[0]
    loader.load_state_dict(state)
    return iter(loader)


def without_extra(state: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in state.items() if key != "elastic"}


def test_a_state_of_kempnerforge_resumes_an_unchanged_job() -> None:
    state = stopped(100, 4, 3, 5)
    assert set(without_extra(state)) == {"epoch", "batches_yielded", "sampler"}
    ours, theirs = resumed(state, 100, 4, 3), resumed(without_extra(state), 100, 4, 3)
    assert [batch.tolist() for batch in ours] == [batch.tolist() for batch in theirs]


def test_a_state_of_kempnerforge_on_other_ranks_is_refused() -> None:
    state = without_extra(stopped(100, 4, 3, 5))
    with pytest.raises(
        ValueError, match=r"by 4 ranks, these are 2, .*KempnerForge's states do not.*: resume on 4 ranks"
    ):
        resumed(state, 100, 2, 3)
    state["sampler"]["seed"] = 9
    with pytest.raises(ValueError, match=r"another order \(seed was 9, is 1\): set it back"):
        resumed(state, 100, 4, 3)
    state["batches_yielded"] = 0  # between two epochs anything may change
    assert len(next(resumed(state, 100, 2, 3))) == 3


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"length": 101}, "5 batches into an epoch of a dataset of 100 samples, this one has 101"),
        ({"seed": 3}, r"\(seed was 1, is 3\): set it back"),
        ({"kind": "sequential"}, r"\(shuffle was True, is False\)"),
        ({"drop_last": False}, r"\(drop_last was True, is False\)"),
    ],
)
def test_states_of_other_orders_are_refused(change: dict[str, Any], text: str) -> None:
    state = stopped(100, 4, 3, 5)
    with pytest.raises(ValueError, match=text) as refused:
        resumed(state, **({"length": 100, "ranks": 4, "batch_size": 3} | change))
    assert "elastic=False" in str(refused.value)
    state = stopped(100, 4, 3, 0)  # an epoch that has not started may change
    resumed(state, **({"length": 100, "ranks": 4, "batch_size": 3} | change))


def test_weights_are_compared_on_iteration() -> None:
    """A training loop replays its phases, which set weights, between `load_state_dict` and `iter`."""
    loader = iter(make_loaders(100, 2, 3, "mixture")[0])
    next(loader)
    loader.sampler.update_weights([1.0, 1.0, 1.0])
    state = loader.state_dict()
    other = make_loaders(100, 2, 3, "mixture")[0]
    other.load_state_dict(state)
    with pytest.raises(ValueError, match=r"weights was \[1.0, 1.0, 1.0\], is \[3.0, 1.0, 1.0\]"):
        iter(other)
    other.sampler.update_weights([1.0, 1.0, 1.0])
    assert next(iter(other)).tolist() == next(iter(loader)).tolist()
    other.sampler.update_weights([1.0, 2.0, 1.0])  # a phase that begins later
    next(iter(other))


def test_unknown_versions_and_samplers_without_resume_are_refused() -> None:
    state = stopped(100, 4, 3, 5)
    newer = copy.deepcopy(state)
    newer["elastic"]["version"] = 2
    with pytest.raises(ValueError, match="version 2, this fastpack reads 1"):
        resumed(newer, 100, 4, 3)
    loader = fastpack.StatefulDataLoader(Numbers(100), 3, np.arange(100))
    with pytest.raises(ValueError, match="a ndarray cannot share out the rest of an epoch that 4 ranks began"):
        loader.load_state_dict(state)
    state = iter(loader).state_dict()
    next(loader)
    next(loader)
    bigger = fastpack.StatefulDataLoader(Numbers(100), 4, np.arange(100))  # another batch size is possible
    bigger.load_state_dict(loader.state_dict())
    assert next(iter(bigger)).tolist() == [6, 7, 8, 9]
    loader.close()
    bigger.close()


def test_inelastic_loaders_resume_as_kempnerforge() -> None:
    """The batch number is kept, whatever the samples, and the state has no additional key."""
    state = stopped(1000, 8, 4, 10)
    sampler = make_sampler(1000, 2, 1, "shuffled")
    loader = fastpack.StatefulDataLoader(Numbers(1000), 4, sampler, elastic=False, prefetch=0)
    loader.load_state_dict(state)
    expected = list(make_sampler(1000, 2, 1, "shuffled"))[40:44]
    assert next(iter(loader)).tolist() == expected
    assert set(loader.state_dict()) == {"epoch", "batches_yielded", "sampler"}
    assert loader.state_dict()["batches_yielded"] == 11


def test_batches_yielded_is_rounded_down() -> None:
    """KempnerForge reads it: on other ranks it may repeat samples, but never lose any."""
    loader = resumed(stopped(1000, 8, 4, 10), 1000, 6, 5)
    assert loader.state_dict()["batches_yielded"] == 320 // 30
    next(loader)
    assert loader.state_dict()["batches_yielded"] == 350 // 30
    assert loader.state_dict()["elastic"]["consumed"] == 350
    assert loader.state_dict()["elastic"]["base_num_replicas"] == 8
    assert EpochPosition(320, 8).skip(4) is None
    assert EpochPosition(320, 8).skip(8) == 40
    assert EpochPosition(323, 8).skip(8) is None


def test_one_loader_loads_several_states_of_an_epoch() -> None:
    """`resume_at` of one state is undone by the next state."""
    ours, theirs = stopped(1000, 2, 3, 20), stopped(1000, 8, 4, 10)
    loader = resumed(ours, 1000, 2, 3)
    expected = {2: next(loader).tolist(), 8: next(resumed(theirs, 1000, 2, 3)).tolist()}
    for state, ranks in ((theirs, 8), (ours, 2), (theirs, 8), (theirs, 8), (ours, 2)):
        loader.load_state_dict(state)
        assert next(iter(loader)).tolist() == expected[ranks]


def test_a_state_without_a_position_starts_its_epoch() -> None:
    loader = fastpack.StatefulDataLoader(Numbers(40), 4, range(40), elastic=False)
    loader.load_state_dict({"epoch": 2})
    assert next(iter(loader)).tolist() == [0, 1, 2, 3]
    assert loader.state_dict()["epoch"] == 2


def test_states_are_json_with_numpy_attributes() -> None:
    class Sampler(list[int]):
        seed, shuffle = np.int64(3), np.bool_(True)

    state = fastpack.StatefulDataLoader(Numbers(40), 4, Sampler(range(40))).state_dict()
    assert json.loads(json.dumps(state))["elastic"]["order"] == {"seed": 3, "shuffle": True}


@pytest.mark.parametrize(
    ("state", "found"),
    [
        ({}, "an empty mapping"),
        (None, "NoneType"),
        ({"foo": 1}, "the keys foo$"),
        (
            {"model": {}, "loader": {"epoch": 0, "batches_yielded": 3}},
            "the keys model, loader; load the value of 'loader'",
        ),
    ],
)
def test_other_mappings_are_no_states(state: Any, found: str) -> None:
    """A run that begins again in silence repeats its samples."""
    loader = fastpack.StatefulDataLoader(Numbers(40), 4)
    with pytest.raises(ValueError, match=found):
        loader.load_state_dict(state)
