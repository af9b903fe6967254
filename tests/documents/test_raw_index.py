"""Raw indexes: reading, writing, repair, and access to lines."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastpack import FormatError, read_raw_index, repair_raw_index, write_raw_index
from fastpack.documents.lines_reader import LargeFileLinesReader
from fastpack.documents.raw_index import open_raw_index_writer
from fastpack.documents.raw_index_check import default_index_path

GOLDEN_INDICES = ("docs", "docs_crlf", "edge_padded", "edge_scalars", "edge_u2028", "many", "one")

DOCUMENTS = [
    {"text": "plain"},
    {"text": "é€😀 mixed"},
    {"text": ""},
    {"text": "ünïcödé " * 300},
    {"text": "line\nbreak escaped, \u2028 not"},
]


def as_lines(documents: list[dict[str, str]], newline: bytes, last_newline: bool) -> bytes:
    raw = newline.join(json.dumps(document, ensure_ascii=False).encode() for document in documents)
    return raw + newline if last_newline else raw


def legacy_index(raw: bytes, count_last_newline: bool) -> list[tuple[int, int]]:
    """The index of Modalities before v0.4.0: offsets in bytes, lengths in characters, "\\r\\n" read as "\\n"."""
    rows, offset = [], 0
    lines = raw.splitlines(keepends=True) if b"\x0b" not in raw else raw.split(b"\n")
    for number, line in enumerate(lines):
        text = line.decode().replace("\r\n", "\n")
        last = number == len(lines) - 1
        rows.append((offset, len(text if last and count_last_newline else text.removesuffix("\n"))))
        offset += len(line)
    return rows


def true_index(raw: bytes) -> list[list[int]]:
    rows, offset = [], 0
    for line in raw.removesuffix(b"\n").split(b"\n"):
        rows.append([offset, len(line)])
        offset += len(line) + 1
    return rows


@pytest.mark.parametrize("name", GOLDEN_INDICES)
def test_golden_index_read_and_written(backend: str, golden: Path, tmp_path: Path, name: str) -> None:
    path = golden / "modalities/idx" / f"{name}.idx"
    index = read_raw_index(path)
    assert index.dtype == np.int64
    assert index.tolist() == [list(row) for row in pickle.loads(path.read_bytes())]
    write_raw_index(tmp_path / "new.idx", index)
    assert (tmp_path / "new.idx").read_bytes() == path.read_bytes()


@given(rows=st.lists(st.tuples(st.integers(0, 2**62), st.integers(0, 2**62)), max_size=30), protocol=st.integers(2, 5))
def test_any_list_and_protocol(tmp_path: Path, rows: list[tuple[int, int]], protocol: int) -> None:
    path = tmp_path / "x.idx"
    path.write_bytes(pickle.dumps(rows, protocol=protocol))
    assert read_raw_index(path).tolist() == [list(row) for row in rows]
    write_raw_index(path, rows)
    assert path.read_bytes() == pickle.dumps(rows, protocol=4)


def test_write_in_blocks(tmp_path: Path) -> None:
    rows = np.stack((np.arange(50_000) * 7, np.arange(50_000) % 300), axis=1)
    write_raw_index(tmp_path / "x.idx", rows.astype(np.uint32))
    assert (tmp_path / "x.idx").read_bytes() == pickle.dumps([tuple(row) for row in rows.tolist()], protocol=4)


@pytest.mark.parametrize("index", [[[1, 2, 3]], [1, 2], [[0.5, 1.0]], [["a", "b"]]])
def test_write_rejects_invalid_indexes(tmp_path: Path, index: list[object]) -> None:
    with pytest.raises(ValueError, match="expected integers of shape"):
        write_raw_index(tmp_path / "x.idx", index)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_read_never_unpickles(tmp_path: Path) -> None:
    class Boom:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return exec, ("raise SystemExit('unpickled')",)

    path = tmp_path / "x.idx"
    path.write_bytes(pickle.dumps([Boom()]))
    with pytest.raises(FormatError) as caught:
        read_raw_index(path)
    assert caught.value.path == str(path)
    path.write_bytes(b"")
    with pytest.raises(FormatError):
        read_raw_index(path)
    with pytest.raises(FileNotFoundError):
        read_raw_index(tmp_path / "none.idx")


def test_writer_leaves_nothing_after_an_error(tmp_path: Path) -> None:
    path = tmp_path / "x.idx"
    path.write_bytes(b"old")
    with pytest.raises(RuntimeError), open_raw_index_writer(path) as writer:
        writer.append(np.array([[0, 1]]))
        raise RuntimeError
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_an_index_that_ends_after_its_file(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_bytes(b"{}\n[]\n")
    write_raw_index(tmp_path / "x.idx", [[0, 2], [3, 4]])
    with pytest.raises(FormatError, match="entry 1"):
        LargeFileLinesReader(tmp_path / "x.jsonl")
    write_raw_index(tmp_path / "x.idx", [[3, 3], [0, 2]])  # each largest number alone would reach beyond
    assert LargeFileLinesReader(tmp_path / "x.jsonl")[0] == "[]\n"


@pytest.mark.parametrize(
    ("path", "expected"), [("a/x.jsonl", "a/x.idx"), ("x", "x.idx"), ("x.tar.jsonl", "x.tar.idx"), ("/x.", "/x.idx")]
)
def test_default_index_path(path: str, expected: str) -> None:
    assert str(default_index_path(path)) == str(Path(path).parent / f"{Path(path).stem}.idx")
    if not path.endswith("."):
        assert default_index_path(path) == Path(expected)


def test_repair_of_a_legacy_index_of_modalities(golden: Path, tmp_path: Path) -> None:
    """Modalities v0.2.0 indexed this file in characters; the current index equals the repaired one."""
    raw, old = golden / "modalities/jsonl/docs_crlf.jsonl", golden / "modalities/legacy/v0.2.0/docs_crlf.v0.2.0.idx"
    with pytest.warns(UserWarning, match="in characters"):
        assert not LargeFileLinesReader(raw, old)[3].endswith("}")
    assert repair_raw_index(raw, old, out_path=tmp_path / "new.idx") == 15
    assert (tmp_path / "new.idx").read_bytes() == (golden / "modalities/idx/docs_crlf.idx").read_bytes()


@pytest.mark.parametrize("name", ["docs_nonl", "docs_escaped"])
def test_repair_of_legacy_indexes_of_sections_of_docs(golden: Path, tmp_path: Path, name: str) -> None:
    """v0.2.0 indexed lines 20 to 34 without the last newline, and the first 20 in ASCII, the last of them wrong."""
    lines = (golden / "modalities/jsonl/docs.jsonl").read_bytes().split(b"\n")
    if name == "docs_nonl":
        raw = b"\n".join(lines[20:35])
    else:
        raw = b"".join(json.dumps(json.loads(line), separators=(",", ":")).encode() + b"\n" for line in lines[:20])
    (tmp_path / "x.jsonl").write_bytes(raw)
    old = golden / f"modalities/legacy/v0.2.0/{name}.v0.2.0.idx"
    changed = repair_raw_index(tmp_path / "x.jsonl", old, out_path=tmp_path / "x.idx")
    assert changed == (14 if name == "docs_nonl" else 1)
    assert read_raw_index(tmp_path / "x.idx").tolist() == true_index(raw)


def test_repair_does_not_change_a_correct_index(golden: Path, tmp_path: Path) -> None:
    raw, index = golden / "modalities/jsonl/docs.jsonl", tmp_path / "docs.idx"
    index.write_bytes((golden / "modalities/idx/docs.idx").read_bytes())
    before = index.stat()
    assert repair_raw_index(raw, index) == 0
    assert index.stat().st_ino == before.st_ino


@pytest.mark.parametrize("newline", [b"\n", b"\r\n"])
@pytest.mark.parametrize("last_newline", [True, False])
@pytest.mark.parametrize("count_last", [True, False])
def test_repair(backend: str, tmp_path: Path, newline: bytes, last_newline: bool, count_last: bool) -> None:
    raw = as_lines(DOCUMENTS, newline, last_newline)
    path = tmp_path / "x.jsonl"
    path.write_bytes(raw)
    old = legacy_index(raw, count_last)
    write_raw_index(tmp_path / "x.idx", old)
    changed = repair_raw_index(path)
    assert read_raw_index(tmp_path / "x.idx").tolist() == true_index(raw)
    assert changed == sum(list(row) != true for row, true in zip(old, true_index(raw), strict=True))
    assert LargeFileLinesReader(path)[3].rstrip().endswith("}")


def test_repair_does_not_add_dropped_lines(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes('"é"\n{oops\n"üü"\n'.encode())
    write_raw_index(tmp_path / "x.idx", [[0, 3], [11, 4]])
    assert repair_raw_index(path) == 2
    assert read_raw_index(tmp_path / "x.idx").tolist() == [[0, 4], [11, 6]]


@pytest.mark.parametrize("rows", [[[1, 2]], [[0, 2]], [[5, 1]], [[0, 5]], [[5, 0]]])
def test_repair_rejects_an_index_of_another_file(tmp_path: Path, rows: list[list[int]]) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes('"é"\n'.encode())
    write_raw_index(tmp_path / "x.idx", rows)
    before = (tmp_path / "x.idx").read_bytes()
    with pytest.raises(FormatError):
        repair_raw_index(path)
    assert (tmp_path / "x.idx").read_bytes() == before
