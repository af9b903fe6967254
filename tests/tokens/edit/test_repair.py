"""repair() of every damage that verify() finds: the output is sound and contains the documents."""

from __future__ import annotations

import json
import pickle
import shutil
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packed_files import DOCUMENTS, EOS, documents_of, write_packed

import fastpack
from fastpack import repair, verify
from fastpack.cli import main
from fastpack.documents.raw_index import write_raw_index
from fastpack.errors import FormatError, JobError
from fastpack.io import TargetExists
from fastpack.tokens.pbin import recover_packed as module
from fastpack.tokens.pbin.packed_writer import CheckpointedPackedWriter

GOLDEN = Path(__file__).parents[2] / "golden" / "modalities"


def repaired(path: Path, expected: list[list[int]] = DOCUMENTS, **options: Any) -> fastpack.RepairResult:
    """Repair to another file, check that file, and check that the damaged one is unchanged."""
    before = path.read_bytes()
    target = path.parent / "repaired.pbin"
    result = repair(path, target, **options)
    assert path.read_bytes() == before
    assert (result.path, result.written) == (target, True)
    assert documents_of(target) == expected
    assert verify(target, eos_token_id=EOS).findings == []
    assert (result.documents, result.tokens) == (len(expected), sum(map(len, expected)))
    return result


def test_a_sound_file_is_left_alone(tmp_path: Path) -> None:
    path = write_packed(tmp_path / "a.pbin")
    result = repair(path, tmp_path / "b.pbin")
    assert (result.problem, result.written) == ("", False)
    assert not (tmp_path / "b.pbin").exists()


def test_the_merge_of_modalities(tmp_path: Path) -> None:
    result = repair(GOLDEN / "editing" / "out_005.pbin", tmp_path / "b.pbin")
    assert "12 bytes more too low at 1 places" in result.problem
    right = tmp_path / "right.pbin"
    fastpack.merge_packed_data([GOLDEN / "editing" / "wide.pbin"], right)
    documents = documents_of(tmp_path / "b.pbin")
    assert documents[: len(documents) // 2] == documents_of(right)


@settings(max_examples=30)
@given(st.lists(st.lists(st.integers(0, 12), min_size=1, max_size=5), min_size=2, max_size=5))
def test_any_merge_of_modalities_is_corrected(tmp_path_factory: Any, parts: list[list[int]]) -> None:
    folder = tmp_path_factory.mktemp("merge")
    paths = [write_packed(folder / f"{i}.pbin", [[1] * n + [EOS] for n in part]) for i, part in enumerate(parts)]
    fastpack.merge_packed_data(paths, folder / "right.pbin")
    fastpack.merge_packed_data(paths, folder / "wrong.pbin", compat="modalities-0.5")
    repair(folder / "wrong.pbin", in_place=True)
    assert (folder / "wrong.pbin").read_bytes() == (folder / "right.pbin").read_bytes()


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("window", [4, 8, 1 << 20])
def test_an_index_by_end_of_document_tokens(
    tmp_path: Path, size: int, window: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_WINDOW", window)
    path = write_packed(tmp_path / "a.pbin", token_size=size)
    whole = path.read_bytes()
    for damaged in (whole[:-1], whole[: 12 + 9 * size], whole[:-3] + b"\x00" + whole[-2:]):
        path.write_bytes(damaged)
        with pytest.raises(JobError, match="Give the end-of-document token"):
            repair(path, tmp_path / "none.pbin")
        repaired(path, eos_token_id=EOS)
        (tmp_path / "repaired.pbin").unlink()


def test_entries_outside_the_data(tmp_path: Path) -> None:
    path = write_packed(tmp_path / "a.pbin")
    end = 12 + 2 * 9
    path.write_bytes(path.read_bytes()[:end] + pickle.dumps([(0, 6), (6, 4), (10, 80)], protocol=4))
    assert "does not fit the data" in repaired(path, eos_token_id=EOS).problem


def test_no_documents_in_the_index_and_an_end_without_token(tmp_path: Path) -> None:
    path = write_packed(tmp_path / "a.pbin", [*DOCUMENTS, [7, 8]])
    path.write_bytes(path.read_bytes()[: 12 + 2 * 11] + pickle.dumps([], protocol=4))
    repair(path, tmp_path / "b.pbin", eos_token_id=EOS)
    assert documents_of(tmp_path / "b.pbin") == [*DOCUMENTS, [7, 8]]  # nothing was cut off: nothing is left out


@pytest.mark.parametrize("generation", [2, 3])
def test_big_endian_tokens(tmp_path: Path, generation: int) -> None:
    path = tmp_path / "a.pbin"
    data = np.concatenate(DOCUMENTS).astype(">u4").tobytes()
    header = struct.pack(">Q", len(data)) if generation == 2 else struct.pack(">QI", len(data), 4)
    rows = [(len(header) + start, n) for start, n in ((0, 12), (12, 8), (20, 160))]
    path.write_bytes(header + data + pickle.dumps(rows, protocol=4))
    with pytest.raises(JobError, match="it looks like a packed file of generation 3 with tokens of"):
        repair(path, tmp_path / "b.pbin", eos_token_id=EOS)  # that of generation 2 begins with the token 1
    if generation == 3:
        assert repaired(path, eos_token_id=EOS, token_size_in_bytes=4).problem.startswith("an index that does not fit")


@pytest.mark.parametrize("keep", range(12 + 6, 12 + 18))
def test_a_truncated_file(tmp_path: Path, keep: int) -> None:
    path = write_packed(tmp_path / "a.pbin")
    path.write_bytes(path.read_bytes()[:keep])
    whole = [document for document, end in zip(DOCUMENTS, (6, 10, 18), strict=True) if 12 + end <= keep]
    result = repaired(path, whole, eos_token_id=EOS)
    assert result.lost_bytes == keep - 12 - 2 * sum(map(len, whole))


def test_the_header_of_an_unfinished_pack(tmp_path: Path) -> None:
    """Modalities writes the data length last, after the tokens and the index."""
    path = write_packed(tmp_path / "a.pbin")
    whole = bytearray(path.read_bytes())
    whole[:8] = bytes(8)
    path.write_bytes(whole)
    assert repaired(path).problem == "an unfinished pack, of which only the header is missing"
    for keep in range(12 + 18, len(whole)):
        path.write_bytes(whole[:keep])
        (tmp_path / "repaired.pbin").unlink()
        if keep < 12 + 18 + 16:  # the start of the index may be taken for tokens, which end no document
            repair(path, tmp_path / "repaired.pbin", eos_token_id=EOS)
            assert documents_of(tmp_path / "repaired.pbin")[:3] == DOCUMENTS
        else:
            assert repaired(path, eos_token_id=EOS).problem == "an unfinished pack"


@pytest.mark.parametrize("in_place", [True, False])
def test_a_pack_that_was_killed(tmp_path: Path, in_place: bool) -> None:
    path = tmp_path / "a.pbin"
    writer = CheckpointedPackedWriter(path, 2, "work")
    writer.append(DOCUMENTS[0])
    writer.checkpoint({})
    writer.append_many([3, EOS, 4, 5, 6, EOS], [2, 4])
    writer.checkpoint({})
    writer.append([7] * 1000)
    writer._flush()
    writer.suspend()
    target = path if in_place else tmp_path / "b.pbin"
    assert repair(path, dry_run=True).documents == 3
    result = repair(path, None if in_place else target, in_place=in_place)
    assert (result.problem, result.lost_bytes) == ("an unfinished pack", 2000)
    assert target.read_bytes() == write_packed(tmp_path / "expected.pbin").read_bytes()
    left = {entry.name for entry in tmp_path.iterdir()} - {"expected.pbin"}
    assert left == ({"a.pbin"} if in_place else {".a.pbin.partial", ".a.pbin.journal", "b.pbin"})


def test_a_write_that_was_killed_before_any_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "a.pbin"
    (tmp_path / ".a.pbin.partial").write_bytes(bytes(12) + np.concatenate([*DOCUMENTS, [7]]).astype("<u2").tobytes())
    with pytest.raises(JobError, match="give another output"):
        repair(path, in_place=True, eos_token_id=EOS)
    with pytest.raises(JobError, match="give the token size"):
        repair(path, tmp_path / "b.pbin", eos_token_id=EOS)
    result = repair(path, tmp_path / "b.pbin", eos_token_id=EOS, token_size_in_bytes=2)
    assert documents_of(tmp_path / "b.pbin") == DOCUMENTS
    assert result.lost_bytes == 2


def test_what_cannot_be_repaired(tmp_path: Path) -> None:
    path = write_packed(tmp_path / "a.pbin")
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(JobError, match="no token 77"):
        repair(path, tmp_path / "b.pbin", eos_token_id=77)
    path.write_bytes(b"short")
    with pytest.raises(FormatError):
        repair(path, tmp_path / "b.pbin", eos_token_id=EOS)
    with pytest.raises(FileNotFoundError):
        repair(tmp_path / "absent.pbin", tmp_path / "b.pbin")
    (tmp_path / "a.txt").write_text("")
    with pytest.raises(JobError, match=r"not a \.pbin"):
        repair(tmp_path / "a.txt", tmp_path / "b.pbin")
    assert not (tmp_path / "b.pbin").exists()


def test_output_arguments(tmp_path: Path) -> None:
    path = write_packed(tmp_path / "a.pbin")
    damaged = path.read_bytes() + b"more"
    path.write_bytes(damaged)
    with pytest.raises(ValueError, match="no output is given"):
        repair(path)
    with pytest.raises(ValueError, match="the output is the damaged file"):
        repair(path, path)
    with pytest.raises(TargetExists):
        repair(path, write_packed(tmp_path / "b.pbin"))
    assert not repair(path, tmp_path / "b.pbin", if_exists="skip").written
    assert repair(path, dry_run=True).problem == "4 bytes after the index"
    assert path.read_bytes() == damaged
    assert repair(path, in_place=True).written
    assert path.read_bytes() == damaged[:-4]


@pytest.mark.parametrize(
    ("index", "problem"),
    [
        (None, "no index"),
        ([(0, 13), (14, 7), (22, 1)], "entries that are no lines"),
        ([(0, 13), (22, 1)], "no entries for 1 lines"),
        ([(0, 13), (14, 70)], "an index that cannot be used: "),
        ([(0, 11), (14, 7), (22, 1)], "lengths of lines in characters"),
    ],
)
def test_the_index_of_lines(tmp_path: Path, index: list[tuple[int, int]] | None, problem: str) -> None:
    raw = tmp_path / "a.jsonl"
    raw.write_bytes('{"text":"äö"}\n[1,2,3]\n{\n4\n'.encode().replace(b'{"text":"', b'{"a":"'))
    lines = raw.read_bytes().splitlines()
    assert len(lines) == 4
    rows = [(0, len(lines[0])), (len(lines[0]) + 1, 7), (len(lines[0]) + 11, 1)]
    if index is not None:
        wrong = {
            "entries": [rows[0], (rows[1][0], 6), rows[2]],
            "no": [rows[0], rows[2]],
            "an": [rows[0], (rows[1][0], 700)],
            "lengths": [(0, len(lines[0].decode())), rows[1], rows[2]],
        }[problem.split()[0]]
        write_raw_index(tmp_path / "a.idx", np.array(wrong))
    result = repair(raw, tmp_path / "b.idx")
    assert result.problem.startswith(problem)
    assert (result.documents, result.lost_bytes) == (3, 1)
    assert fastpack.read_raw_index(tmp_path / "b.idx").tolist() == [list(row) for row in rows]
    repair(tmp_path / "a.idx", in_place=True)
    assert verify(raw).findings == []
    assert repair(raw, in_place=True).problem == ""


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(shutil.copy(GOLDEN / "editing" / "out_005.pbin", tmp_path / "a.pbin"))
    before = path.read_bytes()
    assert main(["repair", str(path)]) == 2
    assert main(["repair", str(path), "-o", "x", "--in-place"]) == 2
    capsys.readouterr()
    assert main(["repair", str(path), "--dry-run"]) == 0
    problem = "offsets of Modalities 0.5's merge, 12 bytes more too low at 1 places"
    assert capsys.readouterr().out == f"{path}: {problem}\nwould write {path}: 8 documents, 102 tokens\n"
    assert path.read_bytes() == before
    assert main(["repair", str(path), "--in_place", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "path": str(path),
        "problem": problem,
        "documents": 8,
        "tokens": 102,
        "lost_bytes": 0,
        "written": True,
        "dry_run": False,
    }
    assert main(["verify", str(path), "-q"]) == 0
    assert main(["repair", str(path), "--in-place"]) == 0
    assert capsys.readouterr().out == f"{path}: nothing to repair\n"
