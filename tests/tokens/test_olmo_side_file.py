"""The side file of OLMo's tokens: read in blocks of any size, with and without quoted texts, and damaged."""

from __future__ import annotations

import csv
import gzip
import io
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastpack
from fastpack import FormatError
from fastpack.tokens import olmo


def write(folder: Path, text: bytes, n_tokens: int) -> Path:
    np.zeros(n_tokens, np.uint8).tofile(folder / "a.npy")
    (folder / "a.csv.gz").write_bytes(gzip.compress(text))
    return folder / "a.npy"


def ends_of(path: Path) -> list[int]:
    with fastpack.open_tokens(path, format="olmo", dtype="uint8") as tokens:
        return list(tokens.document_ends().tolist())


@pytest.mark.parametrize("block_bytes", [1, 7, 64, 1 << 18])
@given(
    lengths=st.lists(st.integers(0, 3) | st.integers(0, 2000), max_size=30),
    texts=st.lists(st.text(max_size=9), max_size=3),
    newline=st.sampled_from(["\n", "\r\n"]),
    ended=st.booleans(),
)
def test_any_documents(
    tmp_path: Path, block_bytes: int, lengths: list[int], texts: list[str], newline: str, ended: bool
) -> None:
    ends = np.cumsum(lengths, dtype=np.int64).tolist()
    rows = [[start, end, *texts] for start, end in pairwise([0, *ends])]
    file = io.StringIO()
    csv.writer(file, lineterminator=newline).writerows(rows)
    text = file.getvalue().encode()
    path = write(tmp_path, text if ended else text.removesuffix(newline.encode()), sum(lengths))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(olmo, "_BLOCK_BYTES", block_bytes)
        assert ends_of(path) == ends


@pytest.mark.parametrize("block_bytes", [1, 7, 1 << 18])
@pytest.mark.parametrize("texts", ["", ",a,b", ',"a,b"'])
@pytest.mark.parametrize("wrong", ["", "x", "3", "3,", ",3", "3,+4", "3,4 ", "3,-4", "3,4.0", f"3,{'9' * 19}", "3,٤"])
def test_the_line_of_a_wrong_number_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: str, texts: str, block_bytes: int
) -> None:
    monkeypatch.setattr(olmo, "_BLOCK_BYTES", block_bytes)
    lines = [f"0,1{texts}", f"1,3{texts}", wrong + texts * bool(wrong.rpartition(",")[2]), f"4,5{texts}"]
    path = write(tmp_path, "\n".join(lines).encode(), 5)
    with pytest.raises(FormatError, match=r"in line 3, expected start,end in tokens"):
        ends_of(path)


def test_other_damage(tmp_path: Path) -> None:
    for text, match in (
        (b"0,1,\xff\n", "invalid start byte after line 0"),
        (b"0,1," + b"x" * (1 << 21), "a line of more than 1048576 bytes after line 0"),
        (b'0,1,"' + b"x" * (1 << 21), "field larger than field limit"),
        (b'0,1\n1,1,\xff,"a"\n', "invalid start byte"),
    ):
        with pytest.raises(FormatError, match=match):
            ends_of(write(tmp_path, text, 1))


def test_eighteen_digits_are_read(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=f"a last document end of {'9' * 18}"):
        ends_of(write(tmp_path, b"0," + b"9" * 18 + b"\n", 1))
