"""Checkpoints: a resumed writer continues from the last note and produces the same bytes."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from fastpack.errors import JobError
from fastpack.tokens.journal import journal_path, read_journal, remove_finished_journal
from fastpack.tokens.pbin.packed_writer import CheckpointedPackedWriter, PackedWriter


def writer_at(path: Path, identity: str = "a", **options: Any) -> CheckpointedPackedWriter:
    return CheckpointedPackedWriter(path, 2, identity, **options)


def leave(writer: CheckpointedPackedWriter) -> None:
    """Stop as a kill does: nothing is flushed or removed."""
    assert writer._output is not None
    writer._output.suspend()
    writer._output = None


def whole(folder: Path, documents: list[list[int]]) -> bytes:
    with PackedWriter(folder / "whole.pbin", 2, if_exists="overwrite") as writer:
        for document in documents:
            writer.append(document)
    return (folder / "whole.pbin").read_bytes()


@given(
    documents=st.lists(st.lists(st.integers(0, 65535), max_size=6), max_size=20),
    stops=st.lists(st.tuples(st.integers(0, 20), st.booleans()), max_size=4),
)
def test_any_sequence_of_kills_gives_the_same_bytes(
    documents: list[list[int]], stops: list[tuple[int, bool]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("x")
    path = folder / "x.pbin"
    for n_more, checkpoint in stops:
        writer = writer_at(path, resume=True)
        first = writer.notes[-1]["n"] if writer.notes else 0
        assert writer.n_documents == first
        for document in documents[first : first + n_more]:
            writer.append(document)
        if checkpoint:
            writer.checkpoint({"n": writer.n_documents})
        for document in documents[first + n_more : first + n_more + 2]:  # lost by the kill
            writer.append(document)
        leave(writer)
    with writer_at(path, resume=True) as writer:
        for document in documents[writer.n_documents :]:
            writer.append(document)
    assert path.read_bytes() == whole(folder, documents)
    assert sorted(os.listdir(folder)) == ["whole.pbin", "x.pbin"]


@pytest.fixture
def left_behind(tmp_path: Path) -> Path:
    path = tmp_path / "x.pbin"
    writer = writer_at(path)
    for i in range(3):
        writer.append(np.arange(i + 1))
        writer.checkpoint({"n": i})
    leave(writer)
    return path


def test_notes_are_restored_in_order(left_behind: Path) -> None:
    writer = writer_at(left_behind, resume=True)
    assert [note["n"] for note in writer.notes] == [0, 1, 2]
    assert (writer.n_documents, writer.n_tokens) == (3, 6)
    writer.abort()
    assert os.listdir(left_behind.parent) == []


def test_without_resume_it_starts_from_the_beginning(left_behind: Path) -> None:
    with writer_at(left_behind) as writer:
        assert writer.notes == []
        writer.append([7])
    assert left_behind.read_bytes() == whole(left_behind.parent, [[7]])


def test_other_work_is_not_resumed(left_behind: Path) -> None:
    writer = writer_at(left_behind, "b", resume=True)
    assert (writer.stale, writer.notes, writer.n_documents) == (True, [], 0)
    writer.abort()


def test_a_torn_journal_yields_the_complete_frames(left_behind: Path) -> None:
    journal = Path(journal_path(left_behind))
    data = journal.read_bytes()
    whole_frames = [fields["note"]["n"] for fields, *_ in list(read_journal(journal))[1:]]
    assert whole_frames == [0, 1, 2]
    for keep in range(len(data)):
        journal.write_bytes(data[:keep])
        found = [fields["note"]["n"] for fields, *_ in list(read_journal(journal))[1:]]
        assert found == whole_frames[: len(found)]
        journal.write_bytes(data[:keep] + bytes([data[keep] ^ 1]) + data[keep + 1 :])
        damaged = [fields.get("note", {}).get("n") for fields, *_ in read_journal(journal)][1:]
        assert damaged == whole_frames[: len(damaged)]
        assert len(damaged) < 3


def test_a_checkpoint_beyond_the_file_is_ignored(left_behind: Path) -> None:
    partial = left_behind.parent / ".x.pbin.partial"
    partial.write_bytes(partial.read_bytes()[:-1])
    writer = writer_at(left_behind, resume=True)
    assert (writer.notes, writer.n_documents, writer.n_tokens) == ([], 0, 0)
    writer.append([5])
    writer.close()
    assert left_behind.read_bytes() == whole(left_behind.parent, [[5]])


def test_suspend_keeps_work_only_after_a_checkpoint(tmp_path: Path) -> None:
    writer = writer_at(tmp_path / "x.pbin")
    writer.append([1])
    writer.suspend()
    assert os.listdir(tmp_path) == []
    writer = writer_at(tmp_path / "x.pbin")
    writer.append([1])
    writer.checkpoint({"n": 1})
    writer.suspend()
    assert len(os.listdir(tmp_path)) == 2


def test_a_second_writer_does_not_disturb_the_first(tmp_path: Path) -> None:
    with writer_at(tmp_path / "x.pbin") as writer:
        writer.append([1])
        writer.checkpoint({"n": 1})
        with pytest.raises(JobError, match="another process is writing"):
            writer_at(tmp_path / "x.pbin", resume=True)
        writer.append([2])
    assert (tmp_path / "x.pbin").read_bytes() == whole(tmp_path, [[1], [2]])


def test_checkpoints_after_a_torn_one_count(left_behind: Path) -> None:
    journal = Path(journal_path(left_behind))
    journal.write_bytes(journal.read_bytes()[:-3])  # a kill, or a full disk, in the third
    writer = writer_at(left_behind, resume=True)
    assert writer.n_documents == 2
    writer.append([8, 9])
    writer.checkpoint({"n": 7})
    leave(writer)
    writer = writer_at(left_behind, resume=True)
    assert [note["n"] for note in writer.notes] == [0, 1, 7]
    writer.close()
    assert left_behind.read_bytes() == whole(left_behind.parent, [[0], [0, 1], [8, 9]])


@pytest.mark.parametrize("resume", [True, False])
def test_a_full_disk_keeps_checkpoints_with_resume(
    resume: bool, left_behind: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_arguments: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    writer = writer_at(left_behind, resume=resume)
    writer.append([8, 9])
    with monkeypatch.context() as patch, pytest.raises(OSError, match=r"No space left on device: '.*x\.pbin'"):
        patch.setattr(os, "pwrite", fail)
        writer.close()
    assert len(os.listdir(left_behind.parent)) == 2 * resume
    writer = writer_at(left_behind, resume=True)
    assert writer.n_documents == 3 * resume
    writer.abort()


def test_the_journal_of_a_finished_file_is_removed(left_behind: Path) -> None:
    journal = Path(journal_path(left_behind))
    remove_finished_journal(left_behind)
    assert journal.exists()  # not finished
    (left_behind.parent / ".x.pbin.partial").replace(left_behind)
    remove_finished_journal(left_behind)
    assert os.listdir(left_behind.parent) == ["x.pbin"]
