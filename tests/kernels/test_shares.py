"""The schedule of a mixture's sources on every backend: equal to the specification, and safe for damaged trees."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastpack import kernels
from fastpack.kernels import shares_np

NODE = 1 << 63


def tree_of(shares: list[float], key: int, kernel: object = None) -> np.ndarray:
    tree, sums = np.empty((len(shares), 4), np.uint64), np.zeros(2 * len(shares) - 1)
    sums[: len(shares)] = shares
    (kernel or kernels.share_tree)(np.arange(len(shares)), sums, np.uint64(key), tree)  # type: ignore[operator]
    return tree


@given(
    shares=st.lists(st.sampled_from([0.25, 0.5, 1.0, 1e-30]) | st.floats(1e-9, 1), min_size=1, max_size=9),
    key=st.integers(0, 2**64 - 1),
    mixed=st.booleans(),
    first=st.integers(0, 2**62),
)
def test_backends_equal_the_specification(backend: str, shares: list[float], key: int, mixed: bool, first: int) -> None:
    tree = tree_of(shares, key)
    assert tree.tolist() == tree_of(shares, key, shares_np.share_tree).tolist()
    positions = np.arange(first, first + 30)
    found, expected = np.empty((2, 30), np.int64), np.empty((2, 30), np.int64)
    kernels.share_sources(tree, mixed, positions, *found)
    shares_np.share_sources(tree, mixed, positions, *expected)
    assert found.tolist() == expected.tolist()
    counts, later = table = np.zeros((2, len(shares)), np.int64)
    kernels.share_counts(tree, mixed, np.array([first, first + 30]), np.empty(len(tree), np.uint64), table)
    assert counts.sum() == first
    assert (later - counts).tolist() == np.bincount(found[0], minlength=len(shares)).tolist()


def test_the_sequence_is_that_of_saved_runs(backend: str) -> None:
    """Resuming a run needs the same sequence in every version."""
    tree = tree_of([0.5, 0.25, 0.15, 0.1], 0x9E3779B97F4A7C15)
    sources, draws = np.empty((2, 16), np.int64)
    kernels.share_sources(tree, True, np.arange(10**12, 10**12 + 16), sources, draws)
    assert sources.tolist() == [1, 0, 2, 0, 3, 0, 0, 1, 1, 0, 2, 0, 1, 0, 3, 0]
    before = {0: 500_000_000_000, 1: 250_000_000_000, 2: 150_000_000_000, 3: 100_000_000_000}
    assert draws.tolist() == [before[source] + sources[:k].tolist().count(source) for k, source in enumerate(sources)]


@pytest.mark.parametrize("cell", [(2, 2, 5), (2, 2, NODE + 2), (1, 3, NODE + 1), (0, 0, 1), (0, 3, 3)])
def test_a_damaged_tree_is_an_error(backend: str, cell: tuple[int, int, int]) -> None:
    tree = tree_of([0.2, 0.3, 0.5], 1)
    tree[cell[0], cell[1]] = cell[2]
    with pytest.raises(ValueError, match="the tree has"):
        kernels.share_counts(tree, True, np.array([100]), np.empty(3, np.uint64), np.zeros((1, 3), np.int64))
    if cell[2] == 1 or cell[2] >= NODE:
        with pytest.raises(ValueError, match="the tree has"):
            kernels.share_sources(tree, True, np.arange(100), *np.empty((2, 100), np.int64))


def test_arrays_that_do_not_fit_are_an_error(backend: str) -> None:
    tree, numbers = tree_of([0.5, 0.5], 1), np.zeros(2, np.int64)
    with pytest.raises(ValueError, match="2 k - 1 sums"):
        kernels.share_tree(numbers, np.ones(2), np.uint64(0), tree)
    with pytest.raises(ValueError, match="above 0 and finite"):
        kernels.share_tree(numbers, np.array([0.5, 0.0, 0.0]), np.uint64(0), tree)
    with pytest.raises(ValueError, match="room for k numbers"):
        kernels.share_counts(tree, True, numbers, np.empty(1, np.uint64), np.zeros((2, 2), np.int64))
    with pytest.raises(ValueError, match="arrays of one length"):
        kernels.share_sources(tree, True, numbers, numbers.copy(), np.empty(3, np.int64))
