"""Packing into bins, on every backend, compared with the definitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastpack import kernels

pieces = st.tuples(st.sampled_from([2, 3, 9, 64, 65, 200, 5000]), st.integers(0, 300), st.integers(0, 2**32))
limits = st.sampled_from([1, 2, 3, 1 << 40])


def random_lengths(capacity: int, n: int, seed: int, lowest: int = 0) -> np.ndarray:
    """Mostly short lengths, so that several fit into a bin."""
    rng = np.random.default_rng(seed)
    share = rng.choice([0.05, 0.3, 1.0], n)
    return np.clip((rng.random(n) * capacity * share).astype(np.uint32), lowest, capacity - 1)


def sort(lengths: np.ndarray, capacity: int) -> tuple[np.ndarray, np.ndarray]:
    counts, order = np.full(capacity, 7, np.int64), np.empty(len(lengths), np.uint32)
    n_pieces = kernels.sort_lengths(lengths, counts, order)
    return counts, order[:n_pieces]


def best_fit(counts: np.ndarray, most: int, n_sizes: int) -> tuple[list[int], list[int]]:
    capacity, n_pieces = len(counts), int(counts.sum())
    queues, links = np.full(2 * capacity, 5, np.uint32), np.full(n_sizes, 5, np.uint32)
    words = np.full(capacity // 64 + capacity // 4096 + 2, 5, np.uint64)
    bins, sizes = np.empty(n_pieces, np.uint32), np.empty(n_sizes, np.uint32)
    n_bins = kernels.best_fit(counts, most, queues, links, words, bins, sizes)
    return bins.tolist(), sizes[:n_bins].tolist()


def fit_by_definition(lengths: list[int], capacity: int, most: int, best: bool) -> list[int]:
    """Try every bin; among equal spaces, best fit takes the bin that has had it for the longest time."""
    spaces: list[int] = []
    since: list[int] = []
    sizes: list[int] = []
    chosen = []
    for now, length in enumerate(lengths):
        fitting = [b for b, space in enumerate(spaces) if space >= length and sizes[b] < most]
        if not fitting:
            fitting = [len(spaces)]
            spaces.append(capacity)
            since.append(now)
            sizes.append(0)
        taken = min(fitting, key=lambda b: (spaces[b], since[b])) if best else fitting[0]
        spaces[taken] -= length
        since[taken] = now
        sizes[taken] += 1
        chosen.append(taken)
    return chosen


@given(given=pieces)
def test_sorting_is_stable_and_descending(backend: str, given: tuple[int, int, int]) -> None:
    lengths = random_lengths(*given)
    counts, order = sort(lengths, given[0])
    expected = sorted(np.flatnonzero(lengths).tolist(), key=lambda i: -int(lengths[i]))
    assert order.tolist() == expected
    assert counts.tolist() == [0, *(int((lengths == length).sum()) for length in range(1, given[0]))]


@given(given=pieces, most=limits)
def test_best_fit_takes_the_smallest_space(backend: str, given: tuple[int, int, int], most: int) -> None:
    lengths = random_lengths(*given)
    counts, order = sort(lengths, given[0])
    expected = fit_by_definition(lengths[order].tolist(), given[0], most, best=True)
    bins, sizes = best_fit(counts, most, len(order))
    assert bins == expected
    assert sizes == [expected.count(b) for b in range(len(sizes))]


@given(given=pieces, most=limits)
def test_first_fit_takes_the_first_bin(backend: str, given: tuple[int, int, int], most: int) -> None:
    lengths = random_lengths(*given)
    order = np.flatnonzero(lengths).astype(np.uint32)
    expected = fit_by_definition(lengths[order].tolist(), given[0], most, best=False)
    bins, sizes = np.empty(len(order), np.uint32), np.empty(len(order), np.uint32)
    tree = np.empty(2 << max(len(order) - 1, 0).bit_length(), np.uint32)
    n_bins = kernels.first_fit(lengths, order, given[0], most, tree, bins, sizes)
    assert bins.tolist() == expected
    assert sizes[:n_bins].tolist() == [expected.count(b) for b in range(n_bins)]


@given(bins=st.lists(st.integers(0, 9), max_size=50))
def test_pieces_are_grouped_in_order(backend: str, bins: list[int]) -> None:
    numbers = np.array(bins, np.uint32)
    order = np.arange(len(bins), dtype=np.uint32) * 3
    sizes = np.bincount(numbers, minlength=10)
    ends, out = np.cumsum(sizes) - sizes, np.empty(len(bins), np.uint32)
    kernels.group_by_bin(order, numbers, ends, out)
    assert out.tolist() == [3 * i for i in sorted(range(len(bins)), key=lambda i: bins[i])]
    assert ends.tolist() == np.cumsum(sizes).tolist()


def test_arrays_that_are_too_short_are_errors(backend: str) -> None:
    lengths, one = np.array([3, 3, 5], np.uint32), np.zeros(1, np.uint32)
    counts, order = sort(lengths, 8)
    with pytest.raises(ValueError, match="as long as lengths"):
        kernels.sort_lengths(lengths, np.zeros(8, np.int64), one)
    with pytest.raises(ValueError, match="below the capacity"):
        kernels.sort_lengths(lengths, np.zeros(5, np.int64), order)
    with pytest.raises(ValueError, match="more bins than sizes"):
        best_fit(counts, 1, 2)
    with pytest.raises(ValueError, match="too little working space"):
        kernels.best_fit(counts, 1, order, order, np.zeros(2, np.uint64), order, order)
    queues, words = np.zeros(16, np.uint32), np.zeros(2, np.uint64)
    with pytest.raises(ValueError, match="as long as there are pieces"):
        kernels.best_fit(counts, 1, queues, order, words, one, order)
    four = np.zeros(4, np.uint32)
    with pytest.raises(ValueError, match="more bins than sizes"):
        kernels.first_fit(lengths, np.arange(3, dtype=np.uint32), 8, 1, four, order, np.zeros(2, np.uint32))
    for wrong in (np.array([7], np.uint32), np.array([0], np.uint32)):
        with pytest.raises(ValueError, match="length outside"):
            kernels.first_fit(np.array([9], np.uint32), wrong, 8, 1, four, one, one.copy())
    with pytest.raises(ValueError, match="wrong length"):
        kernels.first_fit(lengths, one, 8, 1, np.zeros(6, np.uint32), order, one.copy())
    ends = np.zeros(1, np.int64)
    with pytest.raises(ValueError, match="beyond ends"):
        kernels.group_by_bin(one, np.ones(1, np.uint32), ends, one.copy())
    with pytest.raises(ValueError, match="outside out"):
        kernels.group_by_bin(one, one, ends, np.zeros(0, np.uint32))
    with pytest.raises(ValueError, match="as long as order"):
        kernels.group_by_bin(lengths, one, ends, order)


@given(given=pieces, most=limits)
def test_a_stream_is_cut_after_full_rows_and_documents(backend: str, given: tuple[int, int, int], most: int) -> None:
    lengths = random_lengths(*given) * np.uint32(3)
    expected, row = [], []
    for document in np.repeat(np.arange(len(lengths)), lengths)[:20000].tolist():
        if len(row) == given[0] or (len({*row, document}) > most):
            expected.append(len(row))
            row = []
        row.append(document)
    rows = np.empty(int(lengths.sum()), np.uint32)
    n_rows = kernels.cut_stream(lengths, given[0], most, rows)
    assert rows[: len(expected)].tolist() == expected
    assert rows[:n_rows].sum() == lengths.sum()
    if n_rows:
        with pytest.raises(ValueError, match="more rows"):
            kernels.cut_stream(lengths, given[0], most, rows[: n_rows - 1])
