"""Sample index to shard, on every backend, compared with a linear search."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fastpack import kernels

sizes = st.lists(st.integers(0, 9), min_size=1, max_size=40).filter(any)


def linear_search(sizes: list[int], index: int) -> tuple[int, int]:
    for shard, size in enumerate(sizes):
        if index < size:
            return shard, index
        index -= size
    raise AssertionError("index beyond the last shard")


@given(sizes=sizes)
def test_every_sample_is_found_also_after_empty_shards(backend: str, sizes: list[int]) -> None:
    cumulative = np.concatenate([[0], np.cumsum(sizes)])
    indices = np.arange(cumulative[-1])
    shards, local = np.empty_like(indices), np.empty_like(indices)
    assert kernels.locate_many(cumulative, indices, shards, local) == len(indices)
    expected = [linear_search(sizes, index) for index in indices.tolist()]
    assert list(zip(shards.tolist(), local.tolist(), strict=True)) == expected
    assert [kernels.locate(cumulative, index) for index in indices.tolist()] == [shard for shard, _ in expected]


@given(sizes=sizes, good=st.integers(0, 5), bad=st.sampled_from([-1, -(2**63), 10**6, 2**63 - 1]))
def test_first_index_out_of_range_is_reported(backend: str, sizes: list[int], good: int, bad: int) -> None:
    cumulative = np.concatenate([[0], np.cumsum(sizes)])
    indices = np.array([0] * good + [bad, 0])
    shards, local = np.full_like(indices, 7), np.full_like(indices, 7)
    assert kernels.locate_many(cumulative, indices, shards, local) == good
    assert shards[good:].tolist() == [7, 7]


def test_offsets_beyond_32_bits(backend: str) -> None:
    cumulative = np.array([0, 2**33, 2**33, 2**40], np.int64)
    indices = np.array([2**33 - 1, 2**33, 2**40 - 1])
    shards, local = np.empty_like(indices), np.empty_like(indices)
    assert kernels.locate_many(cumulative, indices, shards, local) == 3
    assert shards.tolist() == [0, 2, 2]
    assert local.tolist() == [2**33 - 1, 0, 2**40 - 1 - 2**33]


@given(sizes=sizes, closed=st.integers(0, 39), step=st.sampled_from([2, 4098, 2**33]))
def test_window_addresses(backend: str, sizes: list[int], closed: int, step: int) -> None:
    cumulative = np.concatenate([[0], np.cumsum(sizes)])
    bases = np.arange(1, len(sizes) + 1, dtype=np.uint64) << np.uint64(47)
    if closed < len(sizes):
        bases[closed] = 0
    indices = np.concatenate([np.arange(cumulative[-1]), [cumulative[-1]]])
    addresses = np.full(len(indices), 7, np.uint64)
    places = [linear_search(sizes, index) for index in indices[:-1].tolist()]
    expected = [int(bases[shard]) + local * step if bases[shard] else None for shard, local in places] + [None]
    n_good = expected.index(None)
    assert kernels.locate_windows(cumulative, indices, bases, step, addresses) == n_good
    assert addresses.tolist() == expected[:n_good] + [7] * (len(indices) - n_good)
    assert kernels.locate_windows(cumulative, np.array([-1]), bases, step, addresses) == 0
