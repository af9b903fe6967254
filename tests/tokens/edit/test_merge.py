"""Merging: all generations, the correct index, and invalid arguments."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastpack
from fastpack.errors import DataWarning, FormatError, JobError
from fastpack.io import TargetExists
from fastpack.tokens.edit import merge

WritePacked = Callable[..., Path]
Bytes = Callable[..., bytes]

documents = st.lists(st.lists(st.integers(0, 255), max_size=9), max_size=6)
sources = st.lists(st.tuples(documents, st.integers(1, 5)), min_size=1, max_size=5)


@given(sources=sources, size=st.sampled_from([1, 2, 4]))
def test_documents_of_all_generations_are_concatenated(
    sources: list[tuple[list[list[int]], int]], size: int, write_packed: WritePacked, expected_bytes: Bytes
) -> None:
    """The output has the same bytes for sources of every generation."""
    paths, merged = [], []
    for number, (given_documents, generation) in enumerate(sources):
        if not any(given_documents) and generation < 5:
            given_documents = [[1], *given_documents]  # without data the index does not tell what it counts from
        paths.append(write_packed(f"{number}.pbin", given_documents, size, generation))
        merged += given_documents
    target = paths[0].with_name("out")
    result = fastpack.merge_packed_data(paths, target, token_size_in_bytes=4, if_exists="overwrite")
    assert target.read_bytes() == expected_bytes(merged, 4)
    assert result == fastpack.EditResult(
        target, len(merged), sum(map(len, merged)), target.stat().st_size, len(sources)
    )
    planned = fastpack.merge_packed_data(paths, target, token_size_in_bytes=4, if_exists="overwrite", dry_run=True)
    assert planned.bytes == result.bytes
    assert not planned.written


def test_many_blocks(write_packed: WritePacked, expected_bytes: Bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge, "_BLOCK", 64)
    monkeypatch.setattr(merge, "BLOCK_ROWS", 3)
    rows = [list(range(n, n + n % 7)) for n in range(90)]
    paths = [write_packed(f"{g}.pbin", rows, 4, g) for g in (1, 2, 3, 4, 5)]
    seen: list[tuple[int, int]] = []
    fastpack.merge_packed_data(paths, paths[0].with_name("out"), progress=lambda *done: seen.append(done))
    assert paths[0].with_name("out").read_bytes() == expected_bytes(rows * 5, 4)
    assert seen == sorted(seen)
    assert seen[-1] == (5 * 4 * sum(map(len, rows)),) * 2


def test_an_index_in_another_order_keeps_it(tmp_path: Path, write_packed: WritePacked) -> None:
    """Overlapping, incomplete and unordered indexes are kept; the data is copied as it is."""
    data = np.arange(10, dtype="<u2").tobytes()
    odd = tmp_path / "odd.pbin"
    odd.write_bytes(b"\x14" + bytes(7) + b"\x02\0\0\0" + data + pickle.dumps([(12, 4), (0, 6), (2, 2)], protocol=4))
    first = write_packed("a.pbin", [[7, 8]])
    fastpack.merge_packed_data([first, odd], tmp_path / "out")
    with fastpack.PackedFile(tmp_path / "out") as file:
        assert file.index.tolist() == [[0, 4], [16, 4], [4, 6], [6, 2]]
        assert [file[i].tolist() for i in range(4)] == [[7, 8], [6, 7], [0, 1, 2], [1]]


def test_compat_is_twelve_bytes_too_low_for_each_preceding_file(tmp_path: Path, write_packed: WritePacked) -> None:
    paths = [write_packed(f"{n}.pbin", [[n] * 20]) for n in range(3)]
    fastpack.merge_packed_data(paths, tmp_path / "right")
    fastpack.merge_packed_data(paths, tmp_path / "wrong", compat="modalities-0.5")
    right, wrong = (fastpack.PackedFile(tmp_path / name).index[:, 0] for name in ("right", "wrong"))
    assert (right - wrong).tolist() == [0, 12, 24]


def test_compat_rejects_generations_that_modalities_cannot_read(tmp_path: Path, write_packed: WritePacked) -> None:
    with pytest.raises(ValueError, match=r"old\.pbin is of generation 3, which Modalities 0\.5 cannot read"):
        fastpack.merge_packed_data(write_packed("old.pbin", [[1]], 2, 3), tmp_path / "out", compat="modalities-0.5")
    with pytest.raises(ValueError, match="unknown compat 'energon'"):
        fastpack.merge_packed_data(write_packed("new.pbin", [[1]]), tmp_path / "out", compat="energon")  # type: ignore[arg-type]
    assert not (tmp_path / "out").exists()


def test_a_directory_stands_for_its_files_without_the_target(tmp_path: Path, write_packed: WritePacked) -> None:
    for name, token in (("d/b.pbin", 2), ("d/a/z.pbin", 1), ("d/c.pbin", 3), ("d/out.pbin", 9)):
        write_packed(name, [[token]])
    (tmp_path / "d/notes.txt").write_text("no packed file")
    (tmp_path / "d/folder.pbin").mkdir()
    target = tmp_path / "d/out.pbin"
    for _ in range(2):
        result = fastpack.merge_packed_data(tmp_path / "d", target, if_exists="overwrite")
        with fastpack.PackedFile(target) as file:
            assert file.data.tolist() == [1, 2, 3]
        assert result.sources == 3


def test_tokens_are_widened_on_request(tmp_path: Path, write_packed: WritePacked, expected_bytes: Bytes) -> None:
    narrow, wide = write_packed("n.pbin", [[1, 2], [3]], 1), write_packed("w.pbin", [[70_000]], 4, 2)
    with pytest.raises(ValueError, match=r"1 in .*n\.pbin, 4 in .*w\.pbin"):
        fastpack.merge_packed_data([narrow, wide], tmp_path / "out")
    with pytest.raises(ValueError, match=r"w\.pbin has tokens of 4 bytes, which 2 cannot hold"):
        fastpack.merge_packed_data([narrow, wide], tmp_path / "out", token_size_in_bytes=2)
    with pytest.raises(ValueError, match="1, 2 or 4"):
        fastpack.merge_packed_data([narrow], tmp_path / "out", token_size_in_bytes=3)
    assert not (tmp_path / "out").exists()
    fastpack.merge_packed_data([narrow, wide], tmp_path / "out", token_size_in_bytes=4)
    assert (tmp_path / "out").read_bytes() == expected_bytes([[1, 2], [3], [70_000]], 4)


def test_what_is_refused(tmp_path: Path, write_packed: WritePacked) -> None:
    good = write_packed("good.pbin", [[1, 2, 3]])
    target = tmp_path / "out.pbin"
    bad = tmp_path / "bad.pbin"
    bad.write_bytes(good.read_bytes()[:-4])
    with pytest.raises(FormatError, match=r"bad\.pbin"):
        fastpack.merge_packed_data([good, bad], target)
    with pytest.raises(FileNotFoundError, match=r"none\.pbin"):
        fastpack.merge_packed_data([good, tmp_path / "none.pbin"], target)
    with pytest.raises(ValueError, match="must be different"):
        fastpack.merge_packed_data([good], good, if_exists="overwrite")
    os.link(good, tmp_path / "link")
    with pytest.raises(ValueError, match="must be different"):
        fastpack.merge_packed_data([good], tmp_path / "link", if_exists="overwrite")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"no \.pbin file in .*empty: nothing to merge"):
        fastpack.merge_packed_data([tmp_path / "empty"], target)
    with pytest.raises(ValueError, match="nothing to merge"):
        fastpack.merge_packed_data([], target)
    assert not target.exists()
    assert good.read_bytes()[12:18] == b"\1\0\2\0\3\0"


def test_policies(tmp_path: Path, write_packed: WritePacked) -> None:
    source, target = write_packed("a.pbin", [[1]]), tmp_path / "out"
    target.write_bytes(b"old")
    with pytest.raises(TargetExists):
        fastpack.merge_packed_data_files([source], target)
    kept = fastpack.merge_packed_data([source], target, if_exists="skip")
    assert (kept.kept_existing, kept.written, kept.documents) == (True, False, 0)
    assert target.read_bytes() == b"old"
    fastpack.merge_packed_data([source], target, if_exists="overwrite")
    assert target.read_bytes() == source.read_bytes()


def test_a_source_given_twice_is_merged_twice_with_a_warning(tmp_path: Path, write_packed: WritePacked) -> None:
    source = write_packed("d/a.pbin", [[1], [2]])
    with pytest.warns(DataWarning, match=r"merged more than once: .*a\.pbin"):
        result = fastpack.merge_packed_data([source.parent, source], tmp_path / "out")
    assert result.documents == 4


def test_a_source_that_changes_during_the_merge_is_named(
    tmp_path: Path, write_packed: WritePacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, plan = write_packed("a.pbin", [[1], [2]]), merge.read_sources

    def then_change(*arguments: object, **options: object) -> object:
        planned = plan(*arguments, **options)  # type: ignore[arg-type]
        write_packed("a.pbin", [[1]])
        return planned

    monkeypatch.setattr(merge, "read_sources", then_change)
    with pytest.raises(JobError, match=r"a\.pbin changed"):
        fastpack.merge_packed_data([source], tmp_path / "out")
    assert not (tmp_path / "out").exists()
