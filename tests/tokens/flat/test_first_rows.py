"""The first rows of an index are decoded without the others."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastpack import kernels
from fastpack.errors import FormatError
from fastpack.io import pickled_index
from fastpack.tokens.pbin.packed_file import PackedFile
from fastpack.tokens.pbin.packed_writer import PackedWriter


@given(st.lists(st.tuples(st.integers(0, 2**40), st.integers(0, 2**40))), st.integers(0, 30), st.integers(0, 5))
def test_first_rows_are_those_of_the_whole_index(rows: list[tuple[int, int]], n_rows: int, protocol: int) -> None:
    data = np.frombuffer(pickle.dumps(rows, protocol), np.uint8)
    first = pickled_index.decode_first(data, "x.idx", 0, n_rows)
    assert first.tolist() == [list(row) for row in rows[:n_rows]]
    assert (first.dtype, first.shape[1]) == (np.int64, 2)


@pytest.mark.parametrize("protocol", [2, 4])
def test_only_the_requested_rows_are_decoded(protocol: int) -> None:
    rows = [(12 * number, 12) for number in range(15_000)]
    data = np.frombuffer(pickle.dumps(rows, protocol)[:-50_000] + bytes(50_000), np.uint8)  # broken at its end
    assert pickled_index.decode_first(data, "x.idx", 0, 9_000).tolist() == [list(row) for row in rows[:9_000]]
    with pytest.raises(FormatError, match=r"x\.idx: at byte \d+: found"):
        pickled_index.decode_first(data, "x.idx", 7, 15_000)


@pytest.mark.parametrize("cut", [0, 1, 5, 20])
def test_damage_is_named_with_its_offset(cut: int) -> None:
    data = np.frombuffer(pickle.dumps([(0, 3), (3, 9)])[:cut], np.uint8)
    with pytest.raises(FormatError) as refused:
        pickled_index.decode_first(data, "x.idx", 100, 5)
    assert refused.value.offset >= 100
    negative = np.frombuffer(pickle.dumps([(0, -3)]), np.uint8)
    with pytest.raises(FormatError, match="index entry 0"):
        pickled_index.decode_first(negative, "x.idx", 100, 5)


def test_packed_files_of_every_generation(golden: Path) -> None:
    paths = sorted(golden.rglob("*.pbin"))
    assert len(paths) > 30
    for path in paths:
        for n_rows in (1, 3):
            with PackedFile(path) as whole, PackedFile(path) as fresh:
                assert fresh.first(n_rows).tolist() == whole.index[:n_rows].tolist(), path


def test_first_rows_outside_the_data_are_rejected(tmp_path: Path) -> None:
    path = tmp_path / "a.pbin"
    with PackedWriter(path, 2) as writer:
        writer.append([1, 2, 3])
    data = path.read_bytes()
    n_bytes = int.from_bytes(data[:8], "little")
    path.write_bytes(data[: 12 + n_bytes] + pickle.dumps([(0, 2 * n_bytes)]))
    with PackedFile(path) as file, pytest.raises(FormatError):
        file.first(1)


def test_a_large_packed_file_is_not_decoded_for_its_first_documents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.pbin"
    with PackedWriter(path, 2) as writer:
        writer.append_many(np.arange(40_000) % 7, np.full(20_000, 2))
    with PackedFile(path) as file:
        assert len(file.first(17_000)) == 17_000
    with PackedFile(path, generation=5) as file:
        monkeypatch.setattr(kernels, "decode_index", None)
        assert file.first(2).tolist() == [[0, 4], [4, 4]]
    with pytest.raises(ValueError, match="is closed"):
        file.first(2)
