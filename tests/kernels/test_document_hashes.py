"""Hashes of documents: independent of dtype, blocks and backend; different for different documents."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastpack import kernels
from fastpack.kernels.document_hashes_np import FIRST, SECOND, STEP

MASK = 2**64 - 1


def hash_of(tokens: list[int]) -> int:
    """Return the sum that a document adds, in Python integers."""
    total = 0
    for position, token in enumerate(tokens):
        value = (token + (position + 1) * STEP) & MASK
        value = (value ^ (value >> 30)) * FIRST & MASK
        value = (value ^ (value >> 27)) * SECOND & MASK
        total += value ^ (value >> 31)
    return total & MASK


def sums_of(tokens: np.ndarray, lengths: list[int], cuts: list[int]) -> list[int]:
    """Hash the documents of a stream that is divided at `cuts`."""
    sums = np.zeros(len(lengths), np.uint64)
    starts = np.cumsum([0, *lengths])[:-1]
    borders = [0, *sorted(min(cut, len(tokens)) for cut in cuts), len(tokens)]
    for start, end in pairwise(borders):
        rows = np.stack([starts - start, np.array(lengths, np.int64)], axis=1).astype(np.int64)
        kernels.add_hashes(tokens[start:end], rows, sums)
    return sums.tolist()


@given(
    documents=st.lists(st.lists(st.integers(0, 127), max_size=9), min_size=1, max_size=6),
    cuts=st.lists(st.integers(0, 40), max_size=3),
    dtype=st.sampled_from(["uint8", "uint16", "uint32", "int8", "int16", "int32", "int64"]),
)
def test_any_dtype_and_division_gives_the_same_hash(
    backend: str, documents: list[list[int]], cuts: list[int], dtype: str
) -> None:
    tokens = np.array([token for one in documents for token in one], dtype)
    assert sums_of(tokens, list(map(len, documents)), cuts) == [hash_of(one) for one in documents]


def test_negative_tokens_and_rows_outside_the_block(backend: str) -> None:
    tokens = np.array([-1, -2], np.int16)
    sums = np.zeros(4, np.uint64)
    kernels.add_hashes(tokens, np.array([[0, 2], [5, 3], [-9, 4], [-1, 9]]), sums)
    assert sums.tolist() == [hash_of([-1, -2]), 0, 0, (hash_of([0, -1, -2]) - hash_of([0])) & MASK]


def test_no_two_of_a_million_similar_documents_collide(backend: str) -> None:
    if backend == "numpy":
        pytest.skip("a Python loop over a million documents")
    tokens = np.stack(np.meshgrid(*[np.arange(100, dtype=np.uint16)] * 3), axis=-1).reshape(-1)
    rows = np.stack([np.arange(0, len(tokens), 3), np.full(len(tokens) // 3, 3)], axis=1)
    sums = np.zeros(len(rows), np.uint64)
    kernels.add_hashes(tokens, rows, sums)
    assert len(np.unique(sums)) == len(sums)
    assert 0.49 < np.unpackbits(sums.view(np.uint8)).mean() < 0.51


def test_the_number_of_sums_is_checked(backend: str) -> None:
    with pytest.raises(ValueError, match="a sum for each document"):
        kernels.add_hashes(np.zeros(3, np.uint16), np.zeros((2, 2), np.int64), np.zeros(1, np.uint64))
