"""ResumableDistributedSampler compared with a Python implementation of Modalities' list arithmetic."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastpack import ResumableDistributedSampler
from fastpack.datasets.permutations import TorchGenerator


def peers_list(order: list[int], skip: int, ranks: int, rank: int, drop_last: bool) -> list[int] | None:
    """Return Modalities' list, or None if it raises ValueError."""
    left = len(order) - skip
    uneven = drop_last and left % ranks != 0
    per_rank = math.ceil((left - ranks) / ranks) if uneven else math.ceil(left / ranks)
    total = per_rank * ranks
    taken = order[skip:]
    if drop_last:
        taken = taken[:total]
    else:
        padding = total - len(taken)
        enough = order if padding <= len(order) else order * math.ceil(padding / len(order))
        taken = taken + enough[:padding]
    return taken[rank:total:ranks] if len(taken) == total else None


@given(
    n=st.integers(1, 60), skip=st.integers(0, 64), ranks=st.integers(1, 20), drop_last=st.booleans(),
    shuffle=st.booleans(), data=st.data(),
)  # fmt: skip
def test_lists_match_the_original(
    n: int, skip: int, ranks: int, drop_last: bool, shuffle: bool, data: st.DataObject
) -> None:
    rank, epoch = data.draw(st.integers(0, ranks - 1)), data.draw(st.integers(0, 3))
    sampler = ResumableDistributedSampler(range(n), rank, ranks, epoch, shuffle, 7, drop_last, skip)
    order = TorchGenerator(7 + epoch).permutation(n).tolist() if shuffle else list(range(n))
    expected = peers_list(order, skip, ranks, rank, drop_last)
    if expected is None:
        with pytest.raises(ValueError, match=r"global_num_samples_effective \(-\d+\) does not match the actual"):
            iter(sampler)
        return
    assert list(sampler) == expected
    assert sampler.indices().tolist() == expected
    assert len(sampler) == len(expected) == sampler.local_num_samples
    sampler.set_epoch(epoch + 1)
    if shuffle:
        order = TorchGenerator(8 + epoch).permutation(n).tolist()
    own_skip = data.draw(st.integers(0, 5))
    sampler.set_skip(own_skip)
    assert list(sampler) == (peers_list(order, skip, ranks, rank, drop_last) or [])[own_skip:]


def test_resuming_on_other_ranks_matches_modalities() -> None:
    """Skipping and resuming are equal if both numbers of ranks divide the length."""
    for rank in range(6):
        skipped = ResumableDistributedSampler(range(2400), rank, 6, 2, True, 5, True, 8 * 30)
        resumed = ResumableDistributedSampler(range(2400), rank, 6, 2, True, 5, True)
        resumed.resume_at(8 * 30, 8)
        assert np.array_equal(resumed.indices(), skipped.indices())


@given(
    n=st.integers(1, 300), skip=st.integers(0, 40), drop_last=st.booleans(),
    changes=st.lists(st.tuples(st.integers(1, 16), st.integers(0, 8)), min_size=1, max_size=5),
)  # fmt: skip
def test_changes_of_the_world_size_lose_and_repeat_no_sample(
    n: int, skip: int, drop_last: bool, changes: list[tuple[int, int]]
) -> None:
    skip = min(skip, n)
    base, consumed, whole, taken = changes[0][0], 0, [], []
    for k, (ranks, steps) in enumerate([*changes, (changes[-1][0], 10**6)]):
        lists = []
        for rank in range(ranks):
            sampler = ResumableDistributedSampler(range(n), rank, ranks, 1, True, 0, drop_last, skip)
            if k:
                sampler.resume_at(consumed, base)
            lists.append(sampler.indices().tolist())
        if not k:
            whole = [number for row in zip(*lists, strict=True) for number in row]
            assert len(whole) == sampler.global_order_length(base)
        done = min(steps, len(lists[0]))
        taken += [one[step] for step in range(done) for one in lists]
        consumed += done * ranks
    length = len(whole)
    assert taken[:length] == whole[: len(taken)]
    if drop_last:
        assert len(taken) > length - 16
    elif whole:
        assert taken[length:] == (whole * 200)[: len(taken) - length]


def test_arguments() -> None:
    with pytest.raises(ValueError, match="must be >= 0, got -1"):
        ResumableDistributedSampler(range(9), 0, skip_num_global_samples=-1)
    assert list(ResumableDistributedSampler(range(3), 0)) == [0, 1, 2]
    sampler = ResumableDistributedSampler(range(9), 1, 2, epoch=4, seed=3)
    assert sampler.state_dict() == {"epoch": 4, "seed": 3, "num_replicas": 2, "rank": 1}
    assert sampler.fingerprint()["skipped"] == 0
