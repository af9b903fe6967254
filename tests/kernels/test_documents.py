"""doc_ids, labels and document bounds on every backend, compared with their definitions."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastpack import kernels

DTYPES = ("u1", "u2", "u4", "i1", "i2", "i4", "i8")


def run(kernel_name: str, tokens: np.ndarray, eos: int) -> list[int]:
    n = len(tokens) if kernel_name == "doc_ids" else len(tokens) - 1
    out = np.full(n, 77, np.int64)
    getattr(kernels, kernel_name)(tokens, eos, out)
    return out.tolist()


@given(
    dtype=st.sampled_from(DTYPES),
    n_tokens=st.one_of(st.integers(1, 20), st.sampled_from([127, 128, 129, 255, 256, 257, 1000])),
    eos=st.sampled_from([0, 1, 3, 127, -1, 255, 256, 65536, -100, 2**31, 2**40]),
    rate=st.sampled_from([0.0, 0.01, 0.5, 1.0]),
    seed=st.integers(0, 2**32 - 1),
    read_only=st.booleans(),
)
def test_every_backend_matches_the_definition(
    backend: str, dtype: str, n_tokens: int, eos: int, rate: float, seed: int, read_only: bool
) -> None:
    rng = np.random.default_rng(seed)
    tokens = rng.integers(0, 127, n_tokens).astype(dtype)
    info = np.iinfo(dtype)
    if info.min <= eos <= info.max:
        tokens[rng.random(n_tokens) < rate] = eos
    tokens.flags.writeable = not read_only
    values = tokens.tolist()
    documents, document = [], 0
    for value in values:
        documents.append(document)
        document += value == eos
    assert run("doc_ids", tokens, eos) == documents
    labels = [-100 if value == eos else following for value, following in pairwise(values)]
    assert run("mask_labels", tokens, eos) == labels


@given(
    dtype=st.sampled_from(["i8", "i4"]),
    n_rows=st.integers(0, 4),
    length=st.one_of(st.integers(0, 9), st.sampled_from([128, 500])),
    rate=st.sampled_from([0.0, 0.01, 0.3, 1.0]),
    room=st.sampled_from([-1, 0, 3]),
    seed=st.integers(0, 2**32 - 1),
)
def test_cu_seqlens_are_the_document_ends(
    backend: str, dtype: str, n_rows: int, length: int, rate: float, room: int, seed: int
) -> None:
    opens = np.random.default_rng(seed).random((n_rows, length)) < rate
    opens[:, :1] = True
    position_ids = np.zeros((n_rows, length), dtype)
    for row, column in zip(*np.nonzero(~opens), strict=True):
        position_ids[row, column] = position_ids[row, column - 1] + 1
    expected = [*np.flatnonzero(opens).tolist(), opens.size] if opens.size else [0]
    longest = max((end - start for start, end in pairwise(expected)), default=0)
    out = np.full(len(expected) + room, -7, np.int32)
    assert kernels.cu_seqlens(position_ids, out) == (len(expected), longest)
    assert out.tolist() == ([-7] * len(out) if room < 0 else expected + [expected[-1]] * room)


def test_empty_arrays(backend: str) -> None:
    assert run("doc_ids", np.empty(0, np.uint16), 0) == []
    assert run("mask_labels", np.zeros(1, np.uint16), 0) == []


def test_cython_checks_lengths_and_dtypes() -> None:
    from fastpack.kernels import documents_cy

    with pytest.raises(ValueError, match="3 are needed"):
        documents_cy.doc_ids(np.zeros(3, np.uint16), 0, np.zeros(2, np.int64))
    for dtype in ("f4", "u8", ">u2"):
        with pytest.raises(TypeError, match="no kernel for tokens of dtype"):
            documents_cy.doc_ids(np.zeros(3, dtype), 0, np.zeros(3, np.int64))
