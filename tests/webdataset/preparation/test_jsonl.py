"""The index of a JSONL dataset: byte for byte as Energon's; errors for invalid lines."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastpack.documents import json_lines
from fastpack.documents.offset_index import read_jsonl_offsets
from fastpack.errors import FormatError
from fastpack.webdataset.preparation.crude_jsonl_index import index_webdataset_jsonl

GOLDEN = Path(__file__).parents[2] / "golden/energon/jsonl"
CASES = json.loads((GOLDEN / "expected.json").read_text())


@pytest.mark.parametrize("name", sorted(CASES))
def test_the_index_matches_energon(name: str, backend: str, tmp_path: Path) -> None:
    source, index = tmp_path / f"{name}.jsonl", tmp_path / f"{name}.jsonl.idx"
    source.write_bytes((GOLDEN / f"{name}.jsonl").read_bytes())
    if CASES[name]["rc"]:
        with pytest.raises(FormatError):
            index_webdataset_jsonl(source)
        assert not index.exists()
        return
    result = index_webdataset_jsonl(source)
    assert index.read_bytes() == (GOLDEN / f"{name}.jsonl.idx").read_bytes()
    assert (result.path, result.samples, result.bytes) == (index, len(CASES[name]["idx"]) - 1, CASES[name]["size"])
    assert read_jsonl_offsets(source).tolist() == CASES[name]["idx"]


def naive(data: bytes) -> list[int] | None:
    """Return the offsets according to the specification; None if a line is invalid."""
    offsets: list[int] = []
    position = 0
    for line in data.splitlines(keepends=True) if b"\r" not in data else lines(data):
        text = line.strip()
        if text:
            if not (text.startswith(b"{") and text.endswith(b"}")):
                return None
            offsets.append(position if offsets else 0)
        position += len(line)
    return [*offsets, position] if offsets else None


def lines(data: bytes) -> list[bytes]:
    pieces = data.split(b"\n")
    return [piece + b"\n" for piece in pieces[:-1]] + [pieces[-1]]


PIECES = st.sampled_from([b"{}", b'{"a": 1}', b"\n", b"\n", b"\r\n", b" ", b"\t", b"{", b"}", b"\x0b", b"\x00", b"[1]"])


@given(data=st.lists(PIECES, max_size=30).map(b"".join), rows=st.integers(1, 4))
def test_the_index_matches_the_specification(tmp_path: Path, data: bytes, rows: int) -> None:
    source = tmp_path / "x.jsonl"
    source.write_bytes(data)
    expected = naive(data.replace(b"\x0b", b" "))
    with mock.patch.object(json_lines, "_CHUNK", rows), mock.patch.object(json_lines, "_WINDOW", 7):
        if expected is None:
            with pytest.raises(FormatError):
                index_webdataset_jsonl(source)
        else:
            index_webdataset_jsonl(source)
            assert source.with_suffix(".jsonl.idx").read_bytes() == struct.pack(f"<{len(expected)}Q", *expected)


def test_errors_report_the_byte_offset(tmp_path: Path) -> None:
    source = tmp_path / "x.jsonl"
    source.write_bytes(b'{"a": 1}\n\n[1]' + b" " * 100 + b"2\n")
    with pytest.raises(FormatError, match=r"at byte 10: found the line b'\[1\] ") as caught:
        index_webdataset_jsonl(source)
    assert caught.value.offset == 10
    assert "..." in str(caught.value)


def test_pages_of_a_large_file_are_released(tmp_path: Path) -> None:
    source, reports = tmp_path / "x.jsonl", []
    line = b'{"text": "' + b"x" * 987 + b'"}\n'
    source.write_bytes(line * 3000)
    with mock.patch.object(json_lines, "_DROP_BYTES", 100_000), mock.patch.object(json_lines, "_WINDOW", 50_000):
        index_webdataset_jsonl(source, progress=lambda done, total: reports.append((done, total)))
    assert read_jsonl_offsets(source).tolist() == list(range(0, 3_000_001, 1000))
    assert reports[-1] == (3_000_000, 3_000_000)
    assert reports == sorted(reports)
