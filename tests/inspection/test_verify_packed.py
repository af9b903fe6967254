"""verify() on packed files: sound files of every generation, and each type of damage with its position."""

from __future__ import annotations

import json
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packed_files import DOCUMENTS, EOS, packed_bytes, write_packed

import fastpack
from fastpack.analysis.findings import VerifyReport
from fastpack.cli import main
from fastpack.inspection.verify import verify
from fastpack.tokens.pbin.packed_writer import CheckpointedPackedWriter

GOLDEN = Path(__file__).parents[1] / "golden" / "modalities"


def with_index(path: Path, rows: list[tuple[int, int]], documents: list[list[int]] = DOCUMENTS) -> Path:
    """Write a packed file of 2-byte tokens with the given index."""
    data = np.concatenate([*map(np.array, documents), []]).astype("<u2").tobytes()
    path.write_bytes(struct.pack("<QI", len(data), 2) + data + pickle.dumps(rows, protocol=4))
    return path


def old(path: Path, generation: int) -> Path:
    path.write_bytes(packed_bytes(DOCUMENTS, generation))
    return path


def only_finding(report: VerifyReport, severity: str) -> tuple[str, int | None]:
    (finding,) = report.findings
    assert finding.severity == severity
    assert report.is_sound == (severity == "warning")
    return finding.found, finding.offset


@pytest.mark.parametrize("name", ["docs_bpe2000", "docs_char250", "docs_crlf_bpe2000", "one_bpe2000"])
def test_files_of_modalities_are_sound(name: str, backend: str) -> None:
    report = verify(GOLDEN / "pbin" / f"{name}.pbin", vocab_size=2000)
    assert report.findings == []
    with fastpack.PackedFile(GOLDEN / "pbin" / f"{name}.pbin") as file:
        assert report.checked["documents"] == len(file)
        assert report.checked["tokens"] == len(file.data)


def test_a_written_file_is_sound(tmp_path: Path) -> None:
    assert verify(write_packed(tmp_path / "a.pbin"), vocab_size=10, eos_token_id=EOS).findings == []
    assert verify(write_packed(tmp_path / "empty.pbin", []), vocab_size=10, eos_token_id=EOS).findings == []


@pytest.mark.parametrize("generation", [2, 3, 4])
def test_old_generations_are_warnings(tmp_path: Path, generation: int) -> None:
    report = verify(old(tmp_path / "a.pbin", generation), vocab_size=10, eos_token_id=EOS)
    found, offset = only_finding(report, "warning")
    assert found.startswith(f"generation {generation}:")
    assert offset == 0
    assert report.checked["documents"] == 3


def test_the_merge_defect_of_modalities() -> None:
    found, offset = (verify(GOLDEN / "editing" / "out_005.pbin").findings[0].found, 12 + 4 * 102)
    assert found == "the index of Modalities 0.5's merge, too low by 12 bytes more at 1 places"
    assert verify(GOLDEN / "editing" / "out_005.pbin").findings[0].offset == offset


@settings(max_examples=30)
@given(st.lists(st.lists(st.integers(0, 12), min_size=1, max_size=5), min_size=2, max_size=5))
def test_any_merge_of_modalities_is_recognised(tmp_path_factory: Any, files: list[list[int]]) -> None:
    folder = tmp_path_factory.mktemp("merge")
    paths = [write_packed(folder / f"{i}.pbin", [[1] * n + [EOS] for n in lengths]) for i, lengths in enumerate(files)]
    fastpack.merge_packed_data(paths, folder / "wrong.pbin", compat="modalities-0.5")
    report = verify(folder / "wrong.pbin", eos_token_id=EOS)
    assert [finding.severity for finding in report.findings] == ["error"]
    assert f"12 bytes more at {len(files) - 1} places" in report.findings[0].found
    fastpack.merge_packed_data(paths, folder / "right.pbin")
    assert verify(folder / "right.pbin", eos_token_id=EOS).findings == []


@given(st.permutations(range(6)))
def test_a_shuffled_index_is_legal(tmp_path_factory: Any, order: list[int]) -> None:
    rows = [(12 * i, 12) for i in range(6)]  # the lengths of the merge defect
    documents = [[1, 2, 3, 4, 5, EOS]] * 6
    path = with_index(tmp_path_factory.mktemp("order") / "a.pbin", [rows[i] for i in order], documents)
    report = verify(path, eos_token_id=EOS)
    assert report.is_sound
    assert len(report.findings) == (order != sorted(order))


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        ([(0, 6), (6, 4), (10, 10)], "index entry 2 = (10, 10)"),
        ([(0, 6), (7, 4)], "index entry 1 = (7, 4)"),
        ([(-2, 2), (0, 6)], "index entry 0 = (-2, 2)"),
        ([(0, 6), (6, 2**62)], f"index entry 1 = (6, {2**62})"),
    ],
)
def test_entries_outside_the_data(tmp_path: Path, rows: list[tuple[int, int]], found: str) -> None:
    assert only_finding(verify(with_index(tmp_path / "a.pbin", rows)), "error") == (found, 12 + 18)


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        ([(0, 6), (10, 8)], "2 tokens in no document"),
        ([(0, 6), (4, 6), (10, 8)], "1 documents that begin within others, the first at byte 4 of the data"),
        ([(0, 6), (6, 0), (6, 4), (10, 8)], "1 documents without tokens"),
        ([(0, 6), (10, 8), (6, 4)], "index entry 2 is before the preceding one"),
    ],
)
def test_unusual_indexes_are_warnings(tmp_path: Path, rows: list[tuple[int, int]], found: str) -> None:
    assert only_finding(verify(with_index(tmp_path / "a.pbin", rows)), "warning")[0] == found


def test_data_without_index(tmp_path: Path) -> None:
    assert (
        only_finding(verify(with_index(tmp_path / "a.pbin", [])), "error")[0]
        == "an index of no documents for 18 bytes of data"
    )


def test_ids_beyond_the_vocabulary(tmp_path: Path, backend: str) -> None:
    path = write_packed(tmp_path / "a.pbin")
    assert only_finding(verify(path, vocab_size=5), "error") == ("token 9", 12 + 2 * 2)
    assert "the largest id is 9" in verify(path, vocab_size=5).findings[0].expected
    assert verify(path, vocab_size=10).findings == []


def test_documents_without_eos(tmp_path: Path, backend: str) -> None:
    path = with_index(tmp_path / "a.pbin", [(0, 4), (4, 6), (10, 8)])
    found, offset = only_finding(verify(path, eos_token_id=EOS), "error")
    assert found == "1 of 3 documents that do not end in token 9, the first in 2"
    assert offset == 12 + 2
    inside = write_packed(tmp_path / "inside.pbin", [[1, EOS, 2, EOS], [EOS, EOS]])
    assert only_finding(verify(inside, eos_token_id=EOS), "warning")[0] == (
        "2 EOS tokens inside documents: 2 documents would be read as more"
    )
    assert only_finding(verify(inside), "warning")[0].startswith("2 EOS tokens inside documents")
    assert verify(inside).is_sound


def test_the_eos_token_is_inferred_if_most_documents_end_with_it(tmp_path: Path) -> None:
    path = write_packed(tmp_path / "a.pbin", [[1, EOS]] * 50 + [[1, 2]] + [[1, EOS]])
    found, offset = only_finding(verify(path), "warning")
    assert found == "1 of 52 documents that do not end in token 9, the first in 2"
    assert offset == 12 + 2 * 101
    assert verify(write_packed(tmp_path / "b.pbin", [[1, 2], [3, 4], [5, EOS]])).findings == []


def test_zeros_at_the_end(tmp_path: Path) -> None:
    path = write_packed(tmp_path / "a.pbin", [[1] * 1000, [0] * 2000])
    assert only_finding(verify(path), "warning") == ("2000 tokens 0 at the end", 12 + 2 * 1000)


def test_implausibly_large_ids(tmp_path: Path) -> None:
    path = write_packed(tmp_path / "a.pbin", [[70_000_000, 80_000_000]], 4)
    assert only_finding(verify(path), "warning")[0] == "most ids above 1048576"


@pytest.mark.parametrize("keep", range(0, 60, 7))
def test_truncated_files(tmp_path: Path, keep: int) -> None:
    path = write_packed(tmp_path / "a.pbin")
    whole = path.read_bytes()
    path.write_bytes(whole[:keep])
    report = verify(path)
    assert not report.is_sound
    (finding,) = report.findings
    assert finding.offset is not None
    assert 0 <= finding.offset <= keep


def test_bytes_after_the_index(tmp_path: Path) -> None:
    path = write_packed(tmp_path / "a.pbin")
    size = path.stat().st_size
    path.write_bytes(path.read_bytes() + b"more")
    assert only_finding(verify(path), "warning") == ("4 bytes after the index", size)


def test_the_header_of_an_unfinished_pack(tmp_path: Path) -> None:
    path = write_packed(tmp_path / "a.pbin")
    whole = bytearray(path.read_bytes())
    whole[:8] = bytes(8)
    path.write_bytes(whole)
    found, offset = only_finding(verify(path), "error")
    assert found.startswith("an unfinished pack")
    assert offset == 0


def test_files_of_an_interrupted_write(tmp_path: Path) -> None:
    path = tmp_path / "a.pbin"
    writer = CheckpointedPackedWriter(path, 2, "work")
    writer.append([1, 2, EOS])
    writer.checkpoint({})
    writer.suspend()
    found, _ = only_finding(verify(path), "error")
    assert found == "an unfinished write of a.pbin, 3 tokens at its last checkpoint"
    assert verify(tmp_path).n_errors == 1
    other = write_packed(tmp_path / "b.pbin")
    (tmp_path / ".a.pbin.journal").rename(tmp_path / ".b.pbin.journal")
    assert verify(other).findings == []  # only the journal: the write was finished
    (tmp_path / ".a.pbin.partial").rename(tmp_path / ".b.pbin.partial")
    assert only_finding(verify(other), "warning")[0].startswith("an unfinished write of b.pbin")


def test_the_verify_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_packed(tmp_path / "a.pbin")
    assert main(["verify", str(path), "--vocab-size", "10", "--eos_token_id", "9"]) == 0
    assert capsys.readouterr().out == f"{path}: pbin: 3 documents, 9 tokens, 64 bytes: sound, 0 warnings\n"
    assert main(["verify", "--json", str(path), "--vocab-size", "5"]) == 3
    found = json.loads(capsys.readouterr().out)
    assert set(found) == {"path", "kind", "sound", "checked", "findings", "more"}
    assert found["findings"][0]["offset"] == 16


def test_several_paths_give_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = write_packed(tmp_path / "good.pbin"), tmp_path / "bad.pbin"
    bad.write_bytes(b"")
    assert main(["verify", str(good), str(tmp_path / "absent"), str(bad)]) == 3
    out, err = capsys.readouterr()
    assert [line.split()[:5] for line in out.splitlines()[1:]] == [
        ["errors", "warnings", "format", "path", "checked"],
        ["sound", "0", "0", "pbin", str(good)],
        ["DAMAGED", "1", "0", "pbin", str(bad)],
    ]
    assert "absent: No such file" in err
    assert main(["verify", str(good), str(tmp_path / "absent"), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["sound"] is False
    assert found["failed"][0]["path"] == str(tmp_path / "absent")
