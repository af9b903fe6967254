"""MixtureSampler: KempnerForge's exact lists, and no_repeat, changes of the world size, and computed orders."""

from __future__ import annotations

import hashlib
import json
import math
import random
import sys
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastpack import MixtureSampler
from fastpack.datasets.permutations import TorchGenerator
from fastpack.loading import mixing

PEER = json.loads((Path(__file__).parents[1] / "golden" / "kempnerforge" / "mixture_sampler.json").read_text())
MEASURED = {"cumulative_sizes": [0, 60_000, 90_000, 100_000], "weights": [0.6, 0.3, 0.1], "seed": 42}


def cumulative(sizes: list[int]) -> list[int]:
    return [0, *np.cumsum(sizes).tolist()]


def quiet(*args: Any, **options: Any) -> MixtureSampler:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return MixtureSampler(*args, **options)


def same(found: list[int], stored: dict[str, Any]) -> bool:
    if "full" in stored:
        return found == stored["full"]
    sha = hashlib.sha256(np.asarray(found, "<i8").tobytes()).hexdigest()
    return len(found) == stored["n"] and found[:16] == stored["head"] and sha == stored["sha256"]


def replay(sampler: MixtureSampler, step: dict[str, Any], state_of: Any) -> None:
    name, *arguments = step["op"]
    if name == "iter":
        assert same(list(sampler), step["out"])
    elif name == "epoch":
        sampler.set_epoch(*arguments)
    elif name == "skip":
        sampler.set_skip(*arguments)
    elif name == "load":
        sampler.load_state_dict(*arguments)
        assert state_of(sampler) == step["state"]
    elif name == "state":
        assert state_of(sampler) == step["state"]
    elif "error" in step:
        with pytest.raises(ValueError) as caught:  # noqa: PT011 (compared word for word)
            sampler.update_weights(*arguments)
        assert ["ValueError", str(caught.value)] == step["error"]
    else:
        sampler.update_weights(*arguments)
        assert [share.hex() for share in sampler.probs] == step["probs"]
        assert sampler.target_counts == step["target_counts"]
        assert len(sampler) == step["len"]


@pytest.mark.parametrize("case", PEER, ids=str)
def test_lists_match_the_original(case: dict[str, Any]) -> None:
    if "error" in case:
        with pytest.raises(ValueError) as caught:  # noqa: PT011 (compared word for word)
            MixtureSampler(cumulative(case["sizes"]), case["weights"], **case["kw"])
        assert ["ValueError", str(caught.value)] == case["error"]
        return
    sampler = quiet(cumulative(case["sizes"]), case["weights"], **case["kw"])
    assert [share.hex() for share in sampler.probs] == case["probs"]
    assert sampler.target_counts == case["target_counts"]
    assert len(sampler) == case["len"]
    for step in case["steps"]:
        replay(sampler, step, MixtureSampler.state_dict)


def test_sums_are_those_of_python_3_12() -> None:
    assert mixing.compensated_sum([0.1] * 10) == 1.0
    assert mixing.compensated_sum([1e100, 1.0, -1e100]) == 1.0
    assert mixing.compensated_sum([]) == 0
    assert type(mixing.compensated_sum([1, 2, 3])) is int
    assert mixing.compensated_sum([math.inf, 1.0]) == math.inf
    assert math.isnan(mixing.compensated_sum([math.inf, -math.inf]))
    assert mixing.compensated_sum([0.5, 2**60, 0.25, True]) == 2.0**60 + 1
    large = [170473961397751296407, 1.3440596823310091e17, 69448420.86796167, 49, 7357544684654620.0, 53, True]
    assert mixing.compensated_sum(large) == 1.7061572491073847e20  # by CPython 3.12
    ten = MixtureSampler(cumulative([3] * 5 + [2] * 5), [0.1] * 10)
    assert ten.target_counts == [3, 3, 3, 3, 3, 2, 2, 2, 2, 2]


@pytest.mark.skipif(sys.version_info[:2] not in ((3, 12), (3, 13)), reason="the sum() that is meant")
def test_sums_are_those_of_this_python() -> None:
    rng = random.Random(1)
    for _ in range(3000):
        values = [
            rng.choice([rng.random() * 10.0 ** rng.randint(-20, 20), -rng.random(), rng.randint(-5, 2**70), 3, True])
            for _ in range(rng.randint(0, 12))
        ]
        assert repr(mixing.compensated_sum(values)) == repr(sum(values)), values


def test_invalid_weights_are_refused() -> None:
    for weights, text in (
        ([], r"MixtureSampler\(weights=...\): weights list is empty$"),
        ([0.0, 0], "must sum to > 0"),
        ([1, -1], "must be non-negative"),
    ):
        with pytest.raises(ValueError, match=text):
            MixtureSampler([0, 5, 9], weights)
    sampler = MixtureSampler([0, 5, 9], [1, 2])
    before = sampler.fingerprint()
    for weights in ([1], [1, 2, 3], [0, 0], [3, -1]):
        with pytest.raises(ValueError, match="weights"):
            sampler.update_weights(weights)
    assert sampler.fingerprint() == before


def test_a_dataset_smaller_than_the_world_raises_a_warning() -> None:
    with pytest.warns(UserWarning, match=r"rank 0 a sample, so 3 of its 10 samples an epoch are not drawn"):
        sampler = MixtureSampler([0, 2, 32], [1, 2], 3, 0)
    assert len(sampler) == 10
    assert len(list(sampler)) == sampler.global_order_length(3) // 3 < 10
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        feistel = MixtureSampler([0, 2, 32], [1, 2], 3, 0, order="feistel")
        sampler = MixtureSampler([0, 20, 50], [1, 2], 3, 0)
    assert len(list(feistel)) == 10
    with pytest.warns(UserWarning, match="not drawn"):
        MixtureSampler([0, 0, 30], [1, 1], order="feistel")


def world(order: str = "torch", ranks: int = 8, **options: Any) -> list[MixtureSampler]:
    return [quiet(**{**MEASURED, **options}, num_replicas=ranks, rank=rank, order=order) for rank in range(ranks)]


def together(samplers: list[MixtureSampler], count: int | None = None) -> np.ndarray:
    """Return the samples of all ranks in their next iteration: [step, rank]."""
    return np.stack([sampler.indices()[:count] for sampler in samplers], axis=1)


def annealed(no_repeat: bool) -> tuple[np.ndarray, np.ndarray, list[MixtureSampler]]:
    samplers = world(no_repeat=no_repeat)
    seen = together(samplers, 4000)  # 1000 batches of 4
    for sampler in samplers:
        sampler.update_weights([0.2, 0.2, 0.6])
        sampler.set_skip(4000)
    return seen, together(samplers), samplers


def repeats(seen: np.ndarray, rest: np.ndarray) -> list[int]:
    again = np.intersect1d(seen, rest)
    return np.histogram(again, bins=MEASURED["cumulative_sizes"])[0].tolist()


def test_weights_changed_within_an_epoch_repeat_samples_as_in_kempnerforge() -> None:
    seen, rest, _ = annealed(no_repeat=False)
    assert np.histogram(seen, bins=MEASURED["cumulative_sizes"])[0][1] == 9720
    assert repeats(seen, rest)[:2] == [0, 4264]


def test_no_repeat() -> None:
    seen, rest, samplers = annealed(no_repeat=True)
    assert len(seen) + len(rest) == len(samplers[0])
    assert repeats(seen, rest)[:2] == [0, 0]
    counts = np.bincount(np.concatenate([seen.ravel(), rest.ravel()]), minlength=100_000)
    assert counts[:90_000].max() == 1
    drawn = counts[90_000:]  # 0.6 of the rest exceeds this dataset: it is exhausted, then all shares are equal
    assert drawn.max() - drawn.min() <= 1
    assert drawn.min() >= 4
    shares = np.histogram(rest, bins=MEASURED["cumulative_sizes"])[0] / rest.size
    assert np.allclose(shares, [0.2, 0.2, 0.6], atol=1e-4)
    early = np.histogram(rest[:2000], bins=MEASURED["cumulative_sizes"])[0] / 16_000
    assert np.allclose(early, [0.2, 0.2, 0.6], atol=0.02)  # mixed throughout


def test_no_repeat_continues_and_resumes_exactly() -> None:
    _, rest, samplers = annealed(no_repeat=True)
    for sampler in samplers:
        sampler.set_skip(4500)
    assert np.array_equal(together(samplers), rest[500:])
    for sampler in samplers:
        sampler.update_weights([0.5, 0.4, 0.1])
        sampler.set_skip(5000)
    third = together(samplers)
    states = [json.loads(json.dumps(sampler.state_dict())) for sampler in samplers]
    assert states[0]["mixture"]["weights"] == [0.5, 0.4, 0.1]
    for order in (0, 1):  # a restart, phases replayed before or after the state is loaded
        restarted = world(no_repeat=True)
        for sampler, state in zip(restarted, states, strict=True):
            steps = [lambda s=sampler, st=state: s.load_state_dict(st), lambda s=sampler: phases(s)]
            for step in steps if order else reversed(steps):
                step()
            sampler.set_skip(5000)
        assert np.array_equal(together(restarted), third)
    assert {"mixture"} == set(states[0]) - {"epoch", "seed", "num_replicas", "rank"}


def phases(sampler: MixtureSampler) -> None:
    sampler.update_weights([0.2, 0.2, 0.6])
    sampler.update_weights([0.5, 0.4, 0.1])


def test_no_repeat_starts_an_epoch_again_with_the_current_weights() -> None:
    _, _, samplers = annealed(no_repeat=True)
    fresh = world(weights=[0.2, 0.2, 0.6], no_repeat=True)
    assert np.array_equal(together(samplers), together(fresh))  # no skip: nothing of this epoch counts as drawn


def test_no_repeat_continues_passes_in_the_next_epoch() -> None:
    def sampler(weights: list[float]) -> MixtureSampler:
        return MixtureSampler([0, 40, 103], weights, 2, 0, seed=4, no_repeat=True)

    first = sampler([1, 1])
    first.indices()
    first.update_weights([1, 4])
    first.set_skip(9)
    rest = first.indices()
    first.set_epoch(1)
    state = json.loads(json.dumps(first.state_dict()))
    following = first.indices()
    again = sampler([3, 2])
    again.load_state_dict(state)
    assert np.array_equal(again.indices(), following)
    again.load_state_dict(state)
    again.set_epoch(0)
    again.set_skip(9)
    assert np.array_equal(again.indices(), rest)
    whole = MixtureSampler([0, 40, 103], [1, 9], 1, 0, seed=4, no_repeat=True)
    drawn = []
    for epoch in range(4):
        whole.set_epoch(epoch)
        drawn += [number for number in whole.indices().tolist() if number < 40]
    assert len(drawn) > 40
    assert len(set(drawn[:40])) == 40


def test_no_repeat_across_a_change_of_the_world_size() -> None:
    seen, rest, samplers = annealed(no_repeat=True)
    state = samplers[0].state_dict()
    smaller = world(ranks=3, no_repeat=True, weights=[0.2, 0.2, 0.6])
    for sampler in smaller:
        sampler.load_state_dict(state)
        sampler.resume_at(32_000 + 800, 8)
    assert np.array_equal(together(smaller).ravel(), rest.ravel()[800:][: (68_000 - 800) // 3 * 3])
    for sampler in smaller:  # and a change of weights there
        sampler.update_weights([1.0, 0.0, 0.0])
        sampler.set_skip(100)
    last = together(smaller)
    before = np.concatenate([seen.ravel(), rest.ravel()[:1100]])
    assert last.max() < 60_000
    counts = np.bincount(np.concatenate([before, last.ravel()]), minlength=60_000)[:60_000]
    assert counts.max() - counts.min() <= 1 + (len(last) * 3 > 60_000)


@given(
    sizes=st.lists(st.integers(0, 60), min_size=1, max_size=4), data=st.data(), shuffle=st.booleans(),
    ranks=st.integers(1, 5), drop_last=st.booleans(),
)  # fmt: skip
def test_no_repeat_draws_what_was_seen_least(
    sizes: list[int], data: st.DataObject, shuffle: bool, ranks: int, drop_last: bool
) -> None:
    sizes[0] = max(sizes[0], 1)
    weight_lists = st.lists(st.integers(0, 5), min_size=len(sizes), max_size=len(sizes)).filter(lambda w: w[0] > 0)
    first, second = data.draw(weight_lists), data.draw(weight_lists)
    options = {"num_replicas": ranks, "drop_last": drop_last, "shuffle": shuffle, "no_repeat": True}
    samplers = [quiet(cumulative(sizes), first, rank=rank, **options) for rank in range(ranks)]
    lists = [sampler.indices() for sampler in samplers]
    skip = data.draw(st.integers(0, min(len(one) for one in lists)))
    for sampler in samplers:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            sampler.update_weights(second)
        sampler.set_skip(skip)
    seen = Counter(number for one in lists for number in one[:skip].tolist())
    rest = [sampler.indices().tolist() for sampler in samplers]
    drawn = Counter(number for one in rest for number in one)
    if not drop_last:  # ranks are extended by the first samples
        assert len({len(one) for one in rest}) == 1 or not skip
        return
    assert drawn.total() == samplers[0].global_order_length(ranks) - skip * ranks
    if skip and first != second:
        for start, size in zip(cumulative(sizes), sizes, strict=False):
            after = [seen[number] + drawn[number] for number in range(start, start + size)]
            raised = [after[number - start] for number in drawn if start <= number < start + size]
            assert max(raised, default=0) <= min(after, default=0) + 1


@st.composite
def journeys(draw: st.DrawFn) -> tuple[list[int], list[int], list[tuple[int, int]]]:
    """Generate sizes, weights, and successive worlds: (ranks, samples per rank before the next change)."""
    n = draw(st.integers(1, 4))
    sizes = draw(st.lists(st.integers(16, 150), min_size=n, max_size=n))
    weights = draw(st.lists(st.integers(1, 5), min_size=n, max_size=n))
    changes = draw(st.lists(st.tuples(st.integers(1, 16), st.integers(0, 12)), min_size=1, max_size=5))
    return sizes, weights, changes


@given(journey=journeys(), shuffle=st.booleans(), order=st.sampled_from(["torch", "feistel"]))
def test_changes_of_the_world_size_lose_and_repeat_no_draw(
    journey: tuple[list[int], list[int], list[tuple[int, int]]], shuffle: bool, order: str
) -> None:
    sizes, weights, changes = journey
    base, consumed = changes[0][0], 0
    whole: list[int] = []
    taken: list[int] = []
    for k, (ranks, steps) in enumerate([*changes, (changes[-1][0], 10**6)]):
        lists = []
        for rank in range(ranks):
            sampler = MixtureSampler(cumulative(sizes), weights, ranks, rank, shuffle, 3, order=order)
            if k:
                sampler.resume_at(consumed, base)
            lists.append(sampler.indices().tolist())
        if not k:
            whole = [number for row in zip(*lists, strict=True) for number in row]
            assert len(whole) == sampler.global_order_length(base)
        done = min(steps, len(lists[0]))
        taken += [one[step] for step in range(done) for one in lists]
        consumed += done * ranks
    assert taken == whole[: len(taken)]
    assert len(taken) > len(whole) - max(ranks for ranks, _ in changes)


def test_ranks_of_unequal_length_form_one_order() -> None:
    """Without drop_last a source of one sample reaches only some ranks."""
    samplers = [quiet([0, 1, 41], [1, 9], 4, rank, drop_last=False) for rank in range(4)]
    lists = [sampler.indices().tolist() for sampler in samplers]
    assert len({len(one) for one in lists}) == 2
    samplers[0].resume_at(0, 4)
    whole = samplers[0]._layout(4)[0].indices.tolist()
    assert sorted(whole) == sorted(number for one in lists for number in one)
    assert len(whole) == samplers[0].global_order_length(4)
    shortest = min(map(len, lists))
    assert whole[: 4 * shortest] == [lists[r][j] for j in range(shortest) for r in range(4)]


@pytest.mark.parametrize("shuffle", [True, False])
def test_feistel_keeps_shares_and_repeats_only_after_a_full_pass(shuffle: bool) -> None:
    samplers = world("feistel", weights=[0.2, 0.2, 0.6], shuffle=shuffle)
    whole = together(samplers)
    assert len(whole) == len(samplers[0])
    counts = np.bincount(whole.ravel(), minlength=100_000)
    targets = np.array(samplers[0].target_counts) * 8
    bounds = MEASURED["cumulative_sizes"]
    for k in range(3):
        own = counts[bounds[k] : bounds[k + 1]]
        assert own.sum() == targets[k]
        assert own.max() - own.min() <= 1
    if shuffle:
        early = np.histogram(whole[:2000], bins=bounds)[0] / 16_000
        assert np.allclose(early, [0.2, 0.2, 0.6], atol=0.02)
    assert [samplers[0].at(place) for place in range(800)] == whole.ravel()[:800].tolist()
    assert np.array_equal(np.array(list(samplers[3])), whole[:, 3])


def test_feistel_with_a_trillion_samples() -> None:
    sampler = MixtureSampler([0, 10**12, 10**12 + 5, 2 * 10**12], [1, 1, 2], 64, 63, order="feistel")
    first = [number for number, _ in zip(sampler, range(100), strict=False)]
    assert first == [sampler.at(63 + 64 * k) for k in range(100)]
    assert max(first) < 2 * 10**12
    assert sampler.at(3, epoch=1) != sampler.at(3)
    for place in (-1, sampler.global_order_length(64)):
        with pytest.raises(IndexError, match="out of range"):
            sampler.at(place)


def test_methods_that_need_another_order_raise() -> None:
    with pytest.raises(ValueError, match="order='feistel'"):
        MixtureSampler([0, 9], [1]).at(0)
    with pytest.raises(ValueError, match="needs order='torch'"):
        MixtureSampler([0, 9], [1], order="feistel", no_repeat=True)


def test_feistel_without_samples() -> None:
    with pytest.warns(UserWarning, match="not drawn"):
        MixtureSampler([0, 0, 3], [1, 0], order="feistel")
    assert list(MixtureSampler([0, 0], [1], order="feistel")) == []
    assert list(MixtureSampler([0, 0], [1])) == []


def test_temperature_gives_zero_weights_a_share() -> None:
    shares = mixing.probabilities([0.0, 1.0], 2.0)
    assert shares[0] == pytest.approx(1e-6)
    assert mixing.probabilities([0.0, 1.0], 1.0) == [0.0, 1.0]


def test_dtypes_are_as_narrow_as_possible() -> None:
    assert MixtureSampler([0, 100, 200], [1, 1], 2, 0).indices().dtype == np.int32
    far = MixtureSampler([2**31, 2**31 + 50], [1], 2, 0)
    generator = TorchGenerator(0)
    own = generator.permutation(50)[::2]
    assert far.indices().dtype == np.int64
    assert np.array_equal(far.indices(), own[generator.permutation(25)].astype(np.int64) + 2**31)
