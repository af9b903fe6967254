"""LargeFileLinesReader: Modalities' items and errors."""

from __future__ import annotations

import multiprocessing
import operator
import pickle
from pathlib import Path

import numpy as np
import pytest

from fastpack import FormatError, LargeFileLinesReader, create_raw_index, write_raw_index

TEXT = '{"t":"é"}\n"\u2028 \u0085"\r\nnull\n"😀"'
LINES = ['{"t":"é"}', '"\u2028 \u0085"\r', "null", '"😀"']


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    path = tmp_path / "x.jsonl"
    path.write_bytes(TEXT.encode())
    create_raw_index(path)
    return path


def test_items(backend: str, raw: Path) -> None:
    reader = LargeFileLinesReader(raw)
    assert len(reader) == 4
    assert [reader[i] for i in range(4)] == LINES
    assert [reader[i] for i in range(-4, 0)] == LINES
    assert list(reader) == LINES
    assert reader[np.int64(2)] == "null"
    for i in (4, -5):
        with pytest.raises(IndexError):
            reader[i]
    with pytest.raises(TypeError):
        reader[0:2]  # type: ignore[index]


def test_golden(golden: Path) -> None:
    raw = golden / "modalities/jsonl/docs.jsonl"
    with LargeFileLinesReader(raw, golden / "modalities/idx/docs.idx") as reader:
        assert list(reader) == raw.read_text("utf-8").split("\n")[:-1]


def test_bytes_and_other_encodings(raw: Path) -> None:
    assert list(LargeFileLinesReader(raw, encoding=None)) == [line.encode() for line in LINES]
    assert LargeFileLinesReader(raw, encoding="latin-1")[0] == '{"t":"Ã©"}'
    with pytest.raises(UnicodeDecodeError):
        LargeFileLinesReader(raw, encoding="ascii")[0]


def test_surrogates_pass_the_index_and_fail_the_strict_decoder(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(b'"\xed\xa0\x80"\n')
    create_raw_index(path)
    with pytest.raises(UnicodeDecodeError):
        LargeFileLinesReader(path)[0]
    assert LargeFileLinesReader(path, encoding=None)[0] == b'"\xed\xa0\x80"'


def test_a_byte_order_mark_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(b"\xef\xbb\xbf{}\n{}\n")
    create_raw_index(path)
    assert list(LargeFileLinesReader(path)) == ["\ufeff{}", "{}"]


def test_lines_up_to_the_next_offset(tmp_path: Path) -> None:
    """The newline and dropped lines in between belong to the preceding line."""
    path = tmp_path / "x.jsonl"
    path.write_bytes(b"{}\noops\n[]\n1\n")
    with pytest.warns(UserWarning, match="faulty line"):
        create_raw_index(path, drop_faulty_entries=True)
    reader = LargeFileLinesReader(path, use_sample_length_from_index=False)
    assert list(reader) == ["{}\noops\n", "[]\n", "1\n"]
    assert reader[-1] == "1\n"


def test_legacy_index(golden: Path) -> None:
    """Lengths in characters cause a warning only if they are used."""
    raw, index = golden / "modalities/jsonl/docs_crlf.jsonl", golden / "modalities/legacy/v0.2.0/docs_crlf.v0.2.0.idx"
    lines = raw.read_bytes().decode().split("\n")
    with pytest.warns(UserWarning, match="repair-legacy"):
        LargeFileLinesReader(raw, index)
    reader = LargeFileLinesReader(raw, index, use_sample_length_from_index=False)
    assert [line.removesuffix("\n") for line in reader] == lines[:15]


def test_missing_files(raw: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="Raw data file does not exist"):
        LargeFileLinesReader(tmp_path / "none.jsonl")
    with pytest.raises(
        FileNotFoundError,
        match=r"Index file does not exist\. Use `modalities data create_raw_index` to create one\.",
    ):
        LargeFileLinesReader(raw, tmp_path / "none.idx")


def test_damaged_files(raw: Path, tmp_path: Path) -> None:
    write_raw_index(tmp_path / "long.idx", [[0, 1000]])
    (tmp_path / "no.idx").write_bytes(b"no pickle")
    for name in ("long.idx", "no.idx"):
        with pytest.raises(FormatError) as caught:
            LargeFileLinesReader(raw, tmp_path / name)
        assert caught.value.path == str(tmp_path / name)
    (tmp_path / "empty.jsonl").touch()
    write_raw_index(tmp_path / "empty.idx", [])
    with pytest.raises(ValueError, match="empty file"):
        LargeFileLinesReader(tmp_path / "empty.jsonl")


def test_pickled_as_paths_and_closed(raw: Path) -> None:
    reader = LargeFileLinesReader(raw)
    pickled = pickle.dumps(reader)
    assert len(pickled) < 1000
    copy = pickle.loads(pickled)
    assert list(copy) == LINES
    with copy:
        pass
    assert copy[0] == LINES[0]  # opened again


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_in_other_processes(raw: Path, method: str) -> None:
    reader = LargeFileLinesReader(raw)
    with multiprocessing.get_context(method).Pool(1) as pool:
        assert pool.apply(operator.getitem, (reader, 1)) == LINES[1]
