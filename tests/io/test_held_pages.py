"""The table of mapped pages finds exactly the reads whose pages were entered."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastpack.io import page_table
from fastpack.io.held_pages import HeldPages

PAGE = 16


class Checked:
    """A block of which some pages were checked."""

    def __init__(self, address: int, is_checked: list[bool]) -> None:
        self._address, self._is_checked = address, is_checked

    def page_addresses(self, page_bytes: int) -> Any:
        pages = np.arange(len(self._is_checked), dtype=np.uint64) * np.uint64(page_bytes)
        return (np.uint64(self._address) + pages) * np.array(self._is_checked, np.uint64)


@given(st.lists(st.lists(st.booleans(), min_size=4, max_size=4), min_size=1, max_size=4), st.data(), st.integers(1, 40))
def test_reads_are_found_where_all_their_pages_were_checked(checked: Any, data: Any, n_bytes: int) -> None:
    table = HeldPages(PAGE)
    table.reserve(data.draw(st.integers(0, 50)))
    start = data.draw(st.integers(0, 30))  # the object's bytes [start, end) are in the table
    end = data.draw(st.integers(start + n_bytes, 4 * PAGE * len(checked) + n_bytes))
    first = table.reserve(start % PAGE + end - start) + start % PAGE
    known = np.zeros(end + PAGE, np.int64)
    for number, pages in enumerate(checked):
        block, at = Checked(1000 * (number + 1), pages), 4 * PAGE * number
        size = 4 * PAGE
        table.note(block, first - start + at, max(0, start - at), min(size, end - at), 9)  # type: ignore[arg-type]
        for k, is_checked in enumerate(pages):
            if is_checked:
                where = np.arange(at + PAGE * k, min(at + PAGE * (k + 1), len(known)))
                known[where] = 1000 * (number + 1) + where - at
    reads = np.arange(start, end - n_bytes + 1)
    found, _ = table.find(first + reads - start, n_bytes)
    for read, address in zip(reads.tolist(), found.tolist(), strict=True):
        expected = known[read : read + n_bytes]
        is_mapped = len(expected) == n_bytes and expected.all() and (np.diff(expected) == 1).all()
        assert address == (expected[0] if is_mapped else 0)


def test_addresses_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    table = page_table()
    first = table.reserve(5)
    positions = np.array([first])
    block: Any = Checked(1000, [True])
    table.note(block, first, 0, 5, 1)
    found, owner = table.find(positions, 5)
    assert found.tolist() == [1000]
    assert block in owner.blocks  # type: ignore[attr-defined]
    table.note(Checked(2000, [True]), table.reserve(5), 0, 5, 1)  # type: ignore[arg-type]
    assert table.find(positions, 5)[0].tolist() == [0]  # one block is kept
    table.note(block, first, 0, 5, 9)
    monkeypatch.setattr("fastpack.io.held_pages.LOOK_SECONDS", -1.0)
    assert table.find(positions, 5)[0].tolist() == [0]
