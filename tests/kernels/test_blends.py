"""The order of a blend on every backend, compared with the rule as Megatron's helpers state it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastpack import kernels

UNLIMITED = np.iinfo(np.int64).max


def naive_blend(weights: list[float], limits: list[int], n: int) -> list[int]:
    counts, chosen = [0] * len(weights), []
    for s in range(n):
        errors = [(weight * max(float(s), 1.0) - counts[k], -k) for k, weight in enumerate(weights)]
        open_errors = [error for error in errors if counts[-error[1]] < limits[-error[1]]]
        if not open_errors:
            break
        k = -max(open_errors)[1]
        counts[k] += 1
        chosen.append(k)
    return chosen


@given(
    weights=st.lists(st.floats(1e-6, 1.0), min_size=1, max_size=6),
    n=st.integers(0, 60),
    first=st.integers(0, 60),
    limit=st.one_of(st.just(UNLIMITED), st.integers(0, 12)),
)
def test_datasets_are_chosen_by_the_largest_error_in_any_number_of_calls(
    backend: str, weights: list[float], n: int, first: int, limit: int
) -> None:
    limits, counts = np.full(len(weights), limit), np.zeros(len(weights), np.int64)
    out = np.full(n, -1, np.int16)
    cut = min(first, n)
    done = kernels.blend_datasets(np.array(weights), limits, 0, counts, out[:cut])
    if done == cut:
        done += kernels.blend_datasets(np.array(weights), limits, cut, counts, out[cut:])
    expected = naive_blend(weights, [limit] * len(weights), n)
    assert out[:done].tolist() == expected
    assert (out[done:] == -1).all()
    assert counts.tolist() == np.bincount(np.array(expected, int), minlength=len(weights)).tolist()


def test_arrays_of_different_lengths_are_refused(backend: str) -> None:
    with pytest.raises(ValueError, match="one length"):
        kernels.blend_datasets(np.ones(2), np.ones(2, np.int64), 0, np.zeros(1, np.int64), np.empty(3, np.int16))
