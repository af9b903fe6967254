"""DistributedSampler: KempnerForge's exact lists, at any size and after any change of the world size."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import pickle
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastpack import DistributedSampler
from fastpack.datasets.permutations import FeistelOrder, TorchGenerator
from fastpack.loading.order import HeldOrder, Steps, StraightOrder

PEER = json.loads((Path(__file__).parents[1] / "golden" / "kempnerforge" / "distributed_sampler.json").read_text())


def checksum(values: Any) -> str:
    return hashlib.sha256(np.asarray(values, "<i8").tobytes()).hexdigest()


def sampler_of(case: dict[str, Any], **options: Any) -> DistributedSampler:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # golden cases have empty epochs
        dataset, names = range(case["n"]), ("shuffle", "seed", "drop_last")
        return DistributedSampler(dataset, case["ws"], case["rank"], **{k: case[k] for k in names}, **options)


@pytest.mark.parametrize("how", [list, DistributedSampler.indices], ids=["iteration", "indices"])
def test_lists_match_the_original(how: Any) -> None:
    assert len(PEER["cases"]) == 150
    for case in PEER["cases"]:
        sampler = sampler_of(case)
        assert len(sampler) == case["len"]
        sampler.set_epoch(case["epoch"])
        sampler.set_skip(case["skip"])
        if "error" in case:
            with pytest.raises(AssertionError, match="expected 1"):
                how(sampler)
            continue
        found = how(sampler)
        assert len(found) == case["out"]["n"]
        if "full" in case["out"]:
            assert list(found) == case["out"]["full"]
        else:
            assert list(found[:16]) == case["out"]["head"]
            assert checksum(found) == case["out"]["sha256"]
        assert sampler.state_dict() == case["state"]
        assert checksum(how(sampler)) == case["second_iter_sha"]  # the skip is consumed


def peers_list(order: list[int], ranks: int, rank: int, drop_last: bool) -> list[int]:
    """Return the list by KempnerForge's list arithmetic."""
    per_rank = len(order) // ranks if drop_last else -(-len(order) // ranks)
    total = per_rank * ranks
    order = order[:total] if drop_last else order + order[: total - len(order)]
    return order[rank:total:ranks]


@given(
    n=st.integers(1, 300), ranks=st.integers(1, 17), drop_last=st.booleans(), shuffle=st.booleans(), data=st.data(),
    order=st.sampled_from(["torch", "feistel"]), block=st.integers(1, 50),
)  # fmt: skip
def test_every_rank_any_block_any_skip(
    n: int, ranks: int, drop_last: bool, shuffle: bool, data: st.DataObject, order: str, block: int
) -> None:
    rank, epoch = data.draw(st.integers(0, ranks - 1)), data.draw(st.integers(0, 5))
    case = {"n": n, "ws": ranks, "rank": rank, "shuffle": shuffle, "seed": -3, "drop_last": drop_last}
    sampler = sampler_of(case, order=order)
    sampler.set_epoch(epoch)
    whole = list(range(n))
    if shuffle and order == "torch":
        whole = TorchGenerator(epoch - 3).permutation(n).tolist()
    elif shuffle:
        whole = FeistelOrder(n, -3, epoch).take(0, 1, n).tolist()
    expected = peers_list(whole, ranks, rank, drop_last)
    if len(expected) < len(sampler):
        with pytest.raises(AssertionError):
            iter(sampler)
        return
    assert list(sampler) == expected
    skip = data.draw(st.integers(0, n + 2))
    sampler.set_skip(skip)
    assert list(itertools.chain.from_iterable(block.tolist() for block in sampler.blocks(block))) == expected[skip:]
    if order == "feistel" or not shuffle:
        assert [sampler.at(rank + ranks * k) for k in range(len(sampler))] == expected
        sampler.set_epoch(epoch + 1)
        following = sampler.indices().tolist()
        sampler.set_epoch(0)
        assert [sampler.at(rank + ranks * k, epoch + 1) for k in range(len(sampler))] == following


def test_python_ints_are_created_lazily() -> None:
    sampler = DistributedSampler(range(10**12), 1024, 5, order="feistel")
    first = list(itertools.islice(sampler, 3))
    assert all(type(number) is int for number in first)
    assert first == [sampler.at(5 + 1024 * k) for k in range(3)]
    assert len(sampler) == 10**12 // 1024
    assert sampler.at(10**12 // 1024 * 1024 - 1) < 10**12
    straight = DistributedSampler(range(10**12), 8, 5, shuffle=False)
    straight.set_skip(10**9)
    assert next(iter(straight)) == 10**9 * 8 + 5


def test_dtypes_are_as_narrow_as_possible() -> None:
    assert DistributedSampler(range(1000), 3, 1).indices().dtype == np.int32
    for n, dtype in ((2**31 - 1, np.int32), (2**31, np.int64), (2**40, np.int64)):
        sampler = DistributedSampler(range(n), 2**20, 2**20 - 1, shuffle=False)
        assert sampler.indices().dtype == dtype
        assert sampler.indices()[-1] == len(sampler) * 2**20 - 1
        assert DistributedSampler(range(n), 2**20, 7, order="feistel").indices().dtype == dtype


def test_iteration_stores_only_this_ranks_share() -> None:
    sampler = DistributedSampler(range(100_000), 10, 3)
    steps = sampler._steps().settled()
    assert isinstance(steps.order, HeldOrder)
    assert steps.order.indices.nbytes == 40_000
    assert steps.order.indices.base is None
    assert sampler.indices().base is None


def test_a_running_iteration_keeps_its_epoch() -> None:
    sampler = DistributedSampler(range(50_000))
    expected = sampler.indices().tolist()
    running = iter(sampler)
    found = [next(running)]
    sampler.set_epoch(4)
    sampler.set_skip(1)
    assert [*found, *running] == expected
    assert len(list(sampler)) == 49_999


def test_a_dataset_that_grows_or_shrinks() -> None:
    dataset = list(range(100))
    sampler = DistributedSampler(dataset, 3, 1, shuffle=False)
    dataset.extend(range(100, 120))
    assert list(sampler) == list(range(1, 99, 3))
    del dataset[50:]
    with pytest.raises(AssertionError, match="the dataset has 50 samples and 99 positions"):
        iter(sampler)


def test_an_empty_epoch_raises_a_warning() -> None:
    with pytest.warns(UserWarning, match="3 samples for 8 ranks with drop_last: every epoch is empty"):
        assert list(DistributedSampler(range(3), 8, 0)) == []
    assert list(DistributedSampler([], 8, 0)) == []


@pytest.mark.parametrize(("ranks", "rank"), [(2, 2), (2, -1), (0, 0)])
def test_invalid_ranks_are_refused(ranks: int, rank: int) -> None:
    with pytest.raises(ValueError, match="ranks are counted from 0"):
        DistributedSampler(range(10), ranks, rank)


def test_positions_out_of_range_and_unknown_orders() -> None:
    with pytest.raises(ValueError, match="order='feistel'"):
        DistributedSampler(range(10)).at(0)
    with pytest.raises(ValueError, match="'torchh'"):
        DistributedSampler(range(10), order="torchh")
    for place in (-1, 9, 10):
        with pytest.raises(IndexError, match=r"out of range \[0, 9\)"):
            DistributedSampler(range(10), 3, 0, order="feistel").at(place)


def test_states() -> None:
    sampler = DistributedSampler(range(10), 2, 1, seed=5)
    sampler.load_state_dict({"epoch": 3, "seed": 9, "num_replicas": 7, "rank": 0})
    assert sampler.state_dict() == {"epoch": 3, "seed": 5, "num_replicas": 2, "rank": 1}
    sampler.load_state_dict({})
    assert sampler.epoch == 0
    sampler.epoch = 2
    assert list(pickle.loads(pickle.dumps(sampler))) == list(sampler)


def test_ranks_of_a_running_torch_distributed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Distributed:
        is_available = is_initialized = staticmethod(lambda: True)
        get_world_size, get_rank = staticmethod(lambda: 4), staticmethod(lambda: 2)

    monkeypatch.setitem(sys.modules, "torch.distributed", Distributed)
    sampler = DistributedSampler(range(16), shuffle=False)
    assert list(sampler) == [2, 6, 10, 14]
    assert DistributedSampler(range(16), rank=1).num_replicas == 4
    monkeypatch.setattr(Distributed, "is_initialized", lambda: False)
    assert DistributedSampler(range(16)).num_replicas == 1


def test_torch_is_never_imported() -> None:
    code = (
        "import sys, fastpack\n"
        "list(fastpack.DistributedSampler(range(9))), list(fastpack.MixtureSampler([0, 9], [1]))\n"
        "list(fastpack.ResumableDistributedSampler(range(9), 0))\n"
        "assert 'torch' not in sys.modules and 'numba' not in sys.modules"
    )
    environment = {key: value for key, value in os.environ.items() if key != "FASTPACK_KERNELS"}
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, env=environment)


@st.composite
def journeys(draw: st.DrawFn) -> tuple[int, list[tuple[int, int]]]:
    """Generate a dataset length and successive worlds: (ranks, samples per rank before the next change)."""
    changes = draw(st.lists(st.tuples(st.integers(1, 16), st.integers(0, 12)), min_size=1, max_size=6))
    return draw(st.integers(1, 400)), changes


def travelled(make: Any, changes: list[tuple[int, int]]) -> tuple[list[int], int]:
    """Return the samples of all ranks in all worlds, and the global length."""
    base = changes[0][0]
    consumed, taken = 0, []
    for k, (ranks, steps) in enumerate([*changes, (changes[-1][0], 10**6)]):
        lists = []
        for rank in range(ranks):
            sampler = make(ranks, rank)
            if k:
                sampler.resume_at(consumed, base)
            lists.append(sampler.indices().tolist())
        assert len({len(one) for one in lists}) == 1
        done = min(steps, len(lists[0]))
        taken += [one[step] for step in range(done) for one in lists]
        consumed += done * ranks
    return taken, make(base, 0).global_order_length(base)


@given(journey=journeys(), shuffle=st.booleans(), order=st.sampled_from(["torch", "feistel"]))
def test_changes_of_the_world_size_lose_and_repeat_no_sample(
    journey: tuple[int, list[tuple[int, int]]], shuffle: bool, order: str
) -> None:
    n, changes = journey

    def make(ranks: int, rank: int) -> DistributedSampler:
        case = {"n": n, "ws": ranks, "rank": rank, "shuffle": shuffle, "seed": 1, "drop_last": True}
        return sampler_of(case, order=order)

    taken, length = travelled(make, changes)
    whole = make(1, 0).indices().tolist()
    assert length == n // changes[0][0] * changes[0][0]
    assert taken == whole[: len(taken)]  # the global order itself
    assert len(taken) > length - max(ranks for ranks, _ in changes)
    assert len(taken) <= length


@given(journey=journeys(), shuffle=st.booleans())
def test_without_drop_last_the_order_is_extended_by_its_start(
    journey: tuple[int, list[tuple[int, int]]], shuffle: bool
) -> None:
    n, changes = journey
    n += 16  # KempnerForge needs at least as many samples as positions

    def make(ranks: int, rank: int) -> DistributedSampler:
        return DistributedSampler(range(n), ranks, rank, shuffle, 1, False)

    taken, length = travelled(make, changes)
    whole = make(1, 0).indices().tolist()
    laid_out = whole + whole[: length - n]
    assert len(taken) >= length
    assert taken[:length] == laid_out
    assert taken[length:] == laid_out[: len(taken) - length]
    assert len(taken) - length < 16 * len(changes) + 16


def test_resuming_on_the_same_ranks_equals_skipping() -> None:
    resumed, skipped = (DistributedSampler(range(1003), 8, 3, seed=2) for _ in range(2))
    resumed.resume_at(40 * 8, 8)
    skipped.set_skip(40)
    expected = list(skipped)
    assert list(resumed) == expected
    assert list(resumed) == expected  # holds for every iteration of this epoch
    resumed.set_skip(5)
    assert list(resumed) == expected[5:]
    resumed.set_epoch(0)
    assert list(resumed) == expected
    resumed.set_epoch(1)
    skipped.set_epoch(1)
    assert list(resumed) == list(skipped)


def test_resuming_at_the_end_and_at_invalid_positions() -> None:
    sampler = DistributedSampler(range(100), 4, 0)
    for consumed in (100, 98, 105):
        sampler.resume_at(consumed, 4)
        assert list(sampler) == []
    for consumed, base in ((-1, 4), (0, 0)):
        with pytest.raises(ValueError, match="cannot resume"):
            sampler.resume_at(consumed, base)


def test_steps_match_their_definition() -> None:
    rng = np.random.default_rng(0)
    for _ in range(300):
        n, step, count = (int(number) for number in rng.integers(1, 30, 3))
        length, first = int(rng.integers(1, 80)), int(rng.integers(0, 90))
        expected = [(first + k * step) % length % n for k in range(count)]
        steps = Steps(StraightOrder(n), length, first, step, count)
        assert steps.take(0, count).tolist() == expected
        start, part = (int(number) for number in rng.integers(0, 30, 2))
        assert steps.take(start, part).tolist() == expected[start : start + part]
        settled = Steps(HeldOrder(np.arange(n)), length, first, step, count).settled()
        assert settled.take(start, part).tolist() == expected[start : start + part]


def test_fingerprints() -> None:
    one = DistributedSampler(range(10), 2, 1, seed=5)
    assert one.fingerprint() == {"order": "torch", "seed": 5, "shuffle": True, "drop_last": True, "sizes": [10]}
    assert one.fingerprint() == DistributedSampler(range(10), 3, 0, seed=5).fingerprint()
    assert one.fingerprint() != DistributedSampler(range(10), 2, 1, seed=5, order="feistel").fingerprint()


def test_backends_give_the_same_lists(backend: str) -> None:
    def lists() -> Iterator[list[int]]:
        for order in ("torch", "feistel"):
            yield DistributedSampler(range(2000), 3, 2, seed=8, order=order).indices().tolist()

    assert [checksum(one) for one in lists()] == SEED_8


SEED_8 = [
    "fb871de51a07ba86c61189778f2e1a33f8e56ec464a1117373c2863251c407b2",
    "79fe34df8fbd9946bbe3c575ee3fe7b989c1916865b811204b741fca97b7000a",
]
