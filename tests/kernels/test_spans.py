"""Copying spans, on every backend, compared with slices."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fastpack import kernels

spans = st.lists(st.tuples(st.integers(0, 900), st.integers(0, 100)), max_size=60)


def integers(values: list[int]) -> np.ndarray:
    return np.array(values, np.int64)


@given(spans=spans, seed=st.integers(0, 2**32), read_only=st.booleans())
def test_spans_are_copied(backend: str, spans: list[tuple[int, int]], seed: int, read_only: bool) -> None:
    """Spans may overlap, targets do not, in any order. The rest of `out` is not modified."""
    rng = np.random.default_rng(seed)
    data = rng.integers(0, 256, 1000, dtype=np.uint8)
    data.flags.writeable = not read_only
    starts, lengths = integers([start for start, _ in spans]), integers([length for _, length in spans])
    targets, end = np.zeros_like(starts), 3
    for i in rng.permutation(len(spans)):
        targets[i] = end
        end += int(lengths[i]) + int(rng.integers(0, 3))
    out = np.full(end + 5, 7, np.uint8)
    expected = out.copy()
    for start, target, length in zip(starts, targets, lengths, strict=True):
        expected[target : target + length] = data[start : start + length]
    kernels.copy_spans(data, starts, targets, lengths, out)
    assert (out == expected).all()


def test_empty_arrays(backend: str) -> None:
    none, nothing = integers([]), np.empty(0, np.uint8)
    kernels.copy_spans(nothing, none, none, none, nothing)
    kernels.copy_spans(nothing, integers([0]), integers([0]), integers([0]), nothing)
    out = np.zeros(2, np.uint8)
    kernels.copy_spans(np.ones(3, np.uint8), none, none, none, out)
    assert out.tolist() == [0, 0]
