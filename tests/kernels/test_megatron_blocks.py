"""Start offsets of blocks that begin with documents, on every backend, compared with sums over the documents."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastpack import kernels


def rows_of(lengths: list[int]) -> np.ndarray:
    sizes = np.array(lengths, np.int64)
    return np.stack([np.cumsum(sizes) - sizes, sizes], axis=1)


def starts_of(lengths: list[int], block: int, first: int = 0) -> list[int]:
    rows = rows_of(lengths)
    rows.flags.writeable = False  # like the index of a packed file
    starts = np.full(len(rows) + 1, -7)
    n_blocks = kernels.block_starts(rows, block, first, starts[: len(rows)])
    assert (starts[n_blocks + 1 :] == -7).all()
    return starts[:n_blocks].tolist()


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        ([], []),
        ([9], []),
        ([10], [0]),
        ([4, 6, 10], [0, 10]),
        ([4, 7, 3], [0, 4]),  # 7 does not fit: it opens the next block, and 3 fills it
        ([4, 10], [0]),  # a last document that would fill a block only opens it
        ([4, 10, 1], [0, 4]),
        ([25], [0]),
        ([25, 4, 6], [0, 10]),  # the rest of 25 is in the second block, but does not count towards it
        ([25, 25, 4, 7, 9], [0, 10, 20, 54]),
    ],
)
def test_expected_starts(backend: str, lengths: list[int], expected: list[int]) -> None:
    assert starts_of(lengths, 10) == expected
    assert starts_of(lengths, 10, 12)[:1] == [12][: len(expected)]


@given(lengths=st.lists(st.integers(0, 30), max_size=60), block=st.integers(1, 40))
def test_blocks_are_inside_the_data_and_consecutive(backend: str, lengths: list[int], block: int) -> None:
    starts = starts_of(lengths, block)
    assert all(one + block <= sum(lengths) for one in starts)
    if max(lengths, default=0) <= block:  # every block begins with a document
        opens = set(rows_of(lengths)[:, 0].tolist())
        assert set(starts) <= opens | {0}
        assert starts == expected_starts(lengths, block)


def expected_starts(lengths: list[int], block: int) -> list[int]:
    """Fill blocks greedily, if no document is longer than a block; return the start of each full block."""
    starts, run, offset = [], 0, 0
    for number, length in enumerate(lengths):
        offset = sum(lengths[:number])
        if run + length >= block:
            starts.append(offset - run)
        run = 0 if run + length == block else length if run + length > block else run + length
    return starts


def test_offsets_beyond_32_bits(backend: str) -> None:
    lengths = [2**33, 2**32, 2**33, 5]
    assert starts_of(lengths, 2**33) == [0, 2**33, 2**33 + 2**32]
