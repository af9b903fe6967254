"""The parts of documents that samples consist of, on every backend."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastpack import kernels


def order_of(lengths: list[int], seed: int, repeats: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return a shuffled document order, and starts and ends of documents that lie in another order, with gaps."""
    rng = np.random.default_rng(seed)
    placed = rng.permutation(len(lengths))
    starts = np.empty(len(lengths), np.int64)
    starts[placed] = np.cumsum([0, *(lengths[d] + 3 for d in placed)])[:-1]
    documents = rng.permutation(np.tile(np.arange(len(lengths)), repeats)).astype(np.int32)
    return documents, starts, starts + np.array(lengths, np.int64)


@given(
    lengths=st.lists(st.integers(0, 12), min_size=1, max_size=12),
    repeats=st.integers(1, 3),
    length=st.integers(1, 9),
    extra=st.integers(0, 1),
    block=st.integers(1, 5),
    seed=st.integers(0, 1000),
    room=st.integers(0, 30),
)
def test_parts_hold_the_tokens_of_the_samples(
    backend: str, lengths: list[int], repeats: int, length: int, extra: int, block: int, seed: int, room: int
) -> None:
    documents, starts, ends = order_of(lengths, seed, repeats)
    every = np.concatenate([np.arange(starts[d], ends[d]) for d in documents])
    positions = np.arange(0, max(len(every) - extra, 1), length, dtype=np.int64)
    block_ends = np.full(-(-len(documents) // block), -1, np.int64)
    kernels.part_blocks(documents, starts, ends, block, block_ends)
    before = np.cumsum([lengths[d] for d in documents])
    assert block_ends.tolist() == [before[min(k + block, len(documents)) - 1] for k in range(0, len(documents), block)]

    parts, sizes = np.full((4, room), -1, np.int64), np.full(len(positions), -1, np.int64)
    order = (documents, starts, ends, block, block_ends)
    needed = kernels.sample_parts(positions, length + extra, extra, *order, sizes, parts)
    whole = np.empty((4, needed), np.int64)
    assert kernels.sample_parts(positions, length + extra, extra, *order, sizes, whole) == needed
    assert np.array_equal(whole[:, :room], parts[:, :needed])
    for k, position in enumerate(positions.tolist()):
        of_sample = whole[1:, whole[0] == k].T.tolist()
        found = [token for _, start, n in of_sample for token in range(start, start + n)]
        assert found == every[position : position + length + extra].tolist()
        assert sizes[k] == len(found)
        assert [column for column, _, _ in of_sample] == np.cumsum([0, *(n for _, _, n in of_sample)])[:-1].tolist()


def test_empty_documents_within_a_sample_are_parts_of_it(backend: str) -> None:
    bounds = np.array([0, 0, 4, 4, 10])
    documents, block_ends = np.arange(4, dtype=np.int32), np.empty(2, np.int64)
    kernels.part_blocks(documents, bounds[:-1], bounds[1:], 2, block_ends)
    sizes, parts = np.empty(2, np.int64), np.empty((4, 9), np.int64)
    order = (documents, bounds[:-1], bounds[1:], 2, block_ends)
    n_parts = kernels.sample_parts(np.array([0, 4]), 5, 1, *order, sizes, parts)
    assert parts[2:, :n_parts].T.tolist() == [[0, 0], [0, 4], [4, 0], [4, 1], [4, 5]]
    assert parts[:2, :n_parts].T.tolist() == [[0, 0], [0, 0], [0, 4], [0, 4], [1, 0]]
    assert sizes.tolist() == [5, 5]
    # Without the extra token, a sample that begins at the end of a document begins with an empty part of it.
    n_parts = kernels.sample_parts(np.array([4]), 4, 0, *order, sizes[:1], parts)
    assert parts[2:, :n_parts].T.tolist() == [[4, 0], [4, 0], [4, 4]]


@pytest.mark.parametrize("document", [-1, 2, 2**31 - 1])
def test_documents_that_do_not_exist_are_refused(backend: str, document: int) -> None:
    bounds, documents = np.array([0, 5, 9]), np.array([0, document], np.int32)
    with pytest.raises(ValueError, match="a document outside"):
        kernels.part_blocks(documents, bounds[:-1], bounds[1:], 1, np.empty(2, np.int64))
    sizes, parts = np.empty(1, np.int64), np.empty((4, 9), np.int64)
    with pytest.raises(ValueError, match="a document outside"):
        ends = np.array([5, 9])
        kernels.sample_parts(np.array([3]), 5, 1, documents, bounds[:-1], bounds[1:], 1, ends, sizes, parts)


def test_arrays_that_do_not_fit_are_refused(backend: str) -> None:
    bounds, documents = np.array([0, 5, 9]), np.array([0, 1], np.int32)
    with pytest.raises(ValueError, match="every block of documents an end"):
        kernels.part_blocks(documents, bounds[:-1], bounds[1:], 1, np.empty(1, np.int64))
    sizes, parts = np.empty(2, np.int64), np.empty((4, 9), np.int64)
    with pytest.raises(ValueError, match="as long as positions"):
        ends = np.array([5, 9])
        kernels.sample_parts(np.array([3]), 5, 1, documents, bounds[:-1], bounds[1:], 1, ends, sizes, parts)
