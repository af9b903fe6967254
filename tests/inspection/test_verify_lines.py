"""verify() on JSON lines and their indexes."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastpack
from fastpack.documents import json_lines
from fastpack.documents.raw_index import write_raw_index
from fastpack.inspection.verify import verify

GOLDEN = Path(__file__).parents[1] / "golden"
LINES = [b'{"text": "a"}', b'{"text": "bcd"}', b"[1, 2]", b"3"]


def corpus(folder: Path, lines: list[bytes] = LINES, index: list[tuple[int, int]] | None = None) -> Path:
    path = folder / "a.jsonl"
    path.write_bytes(b"\n".join(lines) + b"\n")
    if index is None:
        with warnings.catch_warnings(action="ignore"):
            fastpack.create_raw_index(path, drop_faulty_entries=True)
    else:
        write_raw_index(folder / "a.idx", np.array(index))
    return path


def found(path: Path, **options: Any) -> list[tuple[str, str]]:
    return [(finding.severity, finding.found) for finding in verify(path, **options).findings]


@pytest.mark.parametrize("name", ["docs", "docs_crlf", "many", "one", "edge_scalars", "edge_u2028", "edge_padded"])
def test_indexes_of_modalities(name: str, tmp_path: Path, backend: str) -> None:
    shutil.copy(GOLDEN / "modalities" / "jsonl" / f"{name}.jsonl", tmp_path)
    shutil.copy(GOLDEN / "modalities" / "idx" / f"{name}.idx", tmp_path)
    report = verify(tmp_path / f"{name}.jsonl", deep=True)
    assert report.findings == []
    assert report.checked["entries"] == report.checked["lines"]
    assert verify(tmp_path / f"{name}.idx").checked == report.checked


@pytest.mark.parametrize("path", sorted((GOLDEN / "modalities" / "idx_dropped").glob("*.idx")), ids=lambda p: p.stem)
def test_indexes_without_faulty_lines(path: Path, tmp_path: Path) -> None:
    shutil.copy(path, tmp_path)
    raw = Path(shutil.copy(path.parents[1] / "jsonl" / f"{path.stem}.jsonl", tmp_path))
    report = verify(raw)
    assert report.is_sound
    assert report.checked["entries"] + report.checked["lines_left_out"] == report.checked["lines"]
    assert not verify(raw, deep=True).is_sound


@pytest.mark.parametrize("path", sorted((GOLDEN / "energon" / "jsonl").glob("*.jsonl.idx")), ids=lambda p: p.stem)
def test_indexes_of_energon(path: Path) -> None:
    assert verify(path.with_suffix("")).findings == []
    assert "samples" in verify(path).checked


def test_without_index(tmp_path: Path) -> None:
    path = corpus(tmp_path)
    (tmp_path / "a.idx").unlink()
    assert found(path) == [("warning", "no file")]
    path.rename(tmp_path / "b.txt")
    write_raw_index(tmp_path / "c.idx", np.array([[0, 1]]))
    assert found(tmp_path / "c.idx") == [("warning", "no c.jsonl next to it")]


@pytest.mark.parametrize(
    ("index", "text"),
    [
        ([(0, 13), (14, 15), (30, 6), (36, 1)], "entry 3 = (36, 1)"),
        ([(0, 13), (14, 14), (30, 6), (37, 1)], "entry 1 = (14, 14)"),
        ([(0, 13), (14, 15), (37, 1)], "no entry for the line at byte 30 of a.jsonl, which is JSON"),
        ([(0, 13), (14, 15), (30, 6)], "no entry for the line at byte 37 of a.jsonl, which is JSON"),
        ([(0, 13), (14, 15), (30, 6), (37, 9)], "index entry 3 = (37, 9)"),
        ([(0, 13), (14, 15), (30, 6), (37, 1), (39, 0)], "entry 4 = (39, 0)"),
    ],
)
def test_index_of_another_file(tmp_path: Path, index: list[tuple[int, int]], text: str, backend: str) -> None:
    errors = [text for severity, text in found(corpus(tmp_path, index=index)) if severity == "error"]
    assert errors[0] == text


def test_unordered_entries_and_lengths_in_characters(tmp_path: Path) -> None:
    path = corpus(tmp_path, index=[(14, 15), (0, 13), (37, 1), (30, 6)])
    assert found(path) == [("warning", "entries that are not in the order of the file")]
    path = corpus(tmp_path, ['{"text": "äöü"}'.encode(), b"1"], index=[(0, 15), (19, 1)])
    assert found(path) == [("error", "lengths of lines in characters")]


def test_deep_parses_every_line(tmp_path: Path) -> None:
    path = corpus(tmp_path, [b"1", b"{", b"2", b"}"])
    assert found(path) == []
    report = verify(path, deep=True)
    assert report.findings[0].offset == 2
    assert report.findings[0].found.startswith("a line that is not JSON (")
    assert report.findings[1].found == "2 lines that are not JSON in all"


def test_zeros_at_the_end(tmp_path: Path) -> None:
    path = corpus(tmp_path)
    size = path.stat().st_size
    path.write_bytes(path.read_bytes() + bytes(5))
    (finding,) = verify(path).findings
    assert (finding.found, finding.offset) == ("5 bytes 0 at the end", size)


def test_offsets_of_energon(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"{}\n{}\n{}\n")
    for offsets, text in [
        ((0, 3, 6, 9), None),
        ((0, 4, 6, 9), "no sample begins with the line at byte 3"),
        ((0, 6, 9), "no sample begins with the line at byte 3"),
        ((0, 3, 6), "its last offset is 6, not 9"),
    ]:
        (tmp_path / "a.jsonl.idx").write_bytes(np.array(offsets, "<u8").tobytes())
        assert found(path) == ([] if text is None else [("error", text)])
    (tmp_path / "a.jsonl.idx").write_bytes(b"short")
    assert found(path)[0][0] == "error"


@given(st.lists(st.sampled_from([b"1", b"[]", b"{", b"", b" ", b'"long enough to be cut"']), max_size=30), st.data())
def test_windows_and_chunks_do_not_change_findings(
    tmp_path_factory: Any, lines: list[bytes], data: st.DataObject
) -> None:
    """Each damaged entry is found, and no other, for all window and chunk sizes."""
    folder = tmp_path_factory.mktemp("lines")
    path = corpus(folder, lines)
    rows = fastpack.read_raw_index(folder / "a.idx")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_lines, "_WINDOW", data.draw(st.integers(1, 50)))
        patch.setattr(json_lines, "_CHUNK", data.draw(st.integers(1, 5)))
        assert found(path) == []
        if len(rows):
            at = data.draw(st.integers(0, len(rows) - 1))
            rows[at, 1] -= 1
            write_raw_index(folder / "a.idx", np.maximum(rows, 0))
            errors = [text for severity, text in found(path) if severity == "error"]
            assert errors[0] == f"entry {at} = ({rows[at, 0]}, {rows[at, 1]})"


def test_a_folder_of_files(tmp_path: Path) -> None:
    corpus(tmp_path)
    with fastpack.PackedWriter(tmp_path / "b.pbin", 1) as writer:
        writer.append([1, 2])
    report = verify(tmp_path, vocab_size=2)
    assert (report.kind, report.checked["files"], report.checked["entries"]) == ("folder", 2, 4)
    assert [finding.found for finding in report.findings] == ["token 2"]


def test_a_folder_of_shards_and_other_files(tmp_path: Path) -> None:
    corpus(tmp_path)
    np.save(tmp_path / "b.npy", np.arange(10, dtype=np.uint16))
    assert verify(tmp_path, write_checksums=True).checked["checksums_written"] == 3
    seen: list[tuple[int, int]] = []
    report = verify(tmp_path, progress=lambda done, total: seen.append((done, total)))
    assert (report.checked["shards"], report.checked["entries"], report.findings) == (1, 4, [])
    assert seen == sorted(seen)
    assert len({total for _, total in seen}) == 1
    assert [done == total for done, total in seen[-2:]] == [False, True]
