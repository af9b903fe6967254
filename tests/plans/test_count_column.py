"""Columns of counts, compared with cumulative sums."""

from __future__ import annotations

import numpy as np
import pytest
from count_columns import encode_counts
from hypothesis import given
from hypothesis import strategies as st

from fastpack.errors import FormatError
from fastpack.plans.count_column import CountColumn


@given(
    counts=st.lists(st.one_of(st.integers(0, 3), st.integers(250, 260), st.integers(0, 1 << 40)), max_size=300),
    dtype=st.sampled_from(["|u1", "<u2", "<u4"]),
    size=st.integers(1, 200),
)
def test_a_column_equals_cumulative_sums(counts: list[int], dtype: str, size: int) -> None:
    values = np.array(counts, np.int64)
    column = CountColumn("a", "c", encode_counts(values, dtype, size))
    items, ends = np.arange(len(values)), np.cumsum(values)
    assert column.n_units == values.sum()
    if len(values):
        assert (column.counts(items) == values).all()
        assert (column.first(items) == ends - values).all()
    units = np.unique(np.concatenate([(ends - values)[values > 0], (ends - 1)[values > 0]]))
    if len(units):
        found, number = column.locate(units)
        assert (found == np.searchsorted(ends, units, "right")).all()
        assert (number == units - (ends - values)[found]).all()


@pytest.mark.parametrize("damage", ["sums", "wide", "short"])
def test_damage_is_an_error(damage: str) -> None:
    columns = encode_counts(np.array([300, 1, 2] * 100), "|u1")
    sums, wide = columns["c_sums"].copy(), columns["c_wide"].copy()
    if damage == "sums":
        sums[2] = 1 << 61
    elif damage == "wide":
        wide[:, 0] += 1
    else:
        sums = sums[:-1]
    with pytest.raises(FormatError, match="in the column c"):
        CountColumn("a", "c", {**columns, "c_sums": sums, "c_wide": wide}).locate(np.arange(0, 30000, 7))
