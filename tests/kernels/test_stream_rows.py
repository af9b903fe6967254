"""Rows of concatenated documents: every backend compared with NumPy, also for arrays that contradict each other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from count_columns import encode_counts
from hypothesis import given
from hypothesis import strategies as st

from fastpack import kernels
from fastpack.kernels import stream_rows_np

SEQ = 8
ODD = [-1, 0, 1, 63, 64, 255, 2**40, 2**56, 2**62, 2**63 - 1, -(2**63)]


def column(counts: list[int]) -> list[np.ndarray]:
    sections = encode_counts(np.array(counts, np.int64), "<u4")
    return [sections["c"], sections["c_sums"], np.ascontiguousarray(sections["c_wide"]).reshape(-1)]


def damage(arrays: list[np.ndarray], data: Any) -> None:
    """Replace some values by others."""
    for _ in range(data.draw(st.integers(0, 2))):
        array = arrays[data.draw(st.integers(0, len(arrays) - 1))]
        if len(array):
            value = data.draw(st.sampled_from(ODD))
            array[data.draw(st.integers(0, len(array) - 1))] = np.array(value).astype(array.dtype)


def compared(name: str, arguments: list[Any], room: int) -> int:
    """Call a kernel and its specification; return the result of both."""
    expected, found = np.full((2, 4, room), -7)
    n = getattr(stream_rows_np, name)(*arguments, *expected)
    assert getattr(kernels, name)(*arguments, *found) == n
    if n >= 0:
        np.testing.assert_array_equal(found, expected)
    return n


@given(data=st.data(), room=st.integers(0, 40))
def test_streams(backend: str, data: Any, room: int) -> None:
    used = data.draw(st.lists(st.sampled_from([0, 1, 2, 5, 30, 2**32 - 1, 2**33]), min_size=1, max_size=150))
    columns = column(used)
    damage(columns, data)
    n_rows = max(1, -(-sum(used) // SEQ))
    first = np.array(data.draw(st.lists(st.integers(0, n_rows - 1), max_size=6)), np.int64) * SEQ
    stop = np.minimum(first + SEQ, sum(used))
    if len(first) and data.draw(st.booleans()):
        stop[0] = data.draw(st.sampled_from(ODD))
    compared("stream_segments", [first, stop, SEQ, *columns], room)


def test_numpy_returns_expected_values() -> None:
    out = np.zeros((4, 9), np.int64)
    first = np.array([0, 8])
    assert stream_rows_np.stream_segments(first, first + SEQ, SEQ, *column([3, 0, 9, 4]), *out) == 4
    assert out[:, :4].T.tolist() == [[0, 0, 0, 3], [0, 2, 0, 5], [1, 2, 5, 9], [1, 3, 0, 4]]


def test_rows_of_different_lengths_are_rejected(backend: str) -> None:
    out = np.zeros((4, 9), np.int64)
    with pytest.raises(ValueError, match="one length"):
        kernels.stream_segments(np.array([0, 8]), np.array([8]), SEQ, *column([30]), *out)
