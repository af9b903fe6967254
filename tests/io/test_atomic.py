"""Atomic replacement: the old or the new file, never a partial one, and no temporary files remain."""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path

import numpy as np
import pytest

from fastpack import io as files
from fastpack.io import AtomicFile, FileExistencePolicy, TargetExists, may_write


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_target_appears_on_commit_and_not_before(tmp_path: Path) -> None:
    target = tmp_path / "new" / "a.bin"
    with AtomicFile(target) as file:
        assert file.write(b"head") == 4
        file.write(np.arange(3, dtype=np.uint16))
        assert file.tell() == 10
        file.patch(0, b"HEAD")
        assert not target.exists()
    assert target.read_bytes() == b"HEAD\x00\x00\x01\x00\x02\x00"
    assert names(target.parent) == ["a.bin"]


def test_an_error_keeps_the_old_file_and_removes_the_partial_one(tmp_path: Path) -> None:
    target = tmp_path / "a.bin"
    target.write_bytes(b"old")
    with pytest.raises(KeyboardInterrupt), AtomicFile(target) as file:
        file.write(b"new")
        raise KeyboardInterrupt
    assert target.read_bytes() == b"old"
    assert names(tmp_path) == ["a.bin"]


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_failing_commit_keeps_the_old_file(call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "a.bin"
    target.write_bytes(b"old")

    def fail(*_arguments: object) -> None:
        raise OSError(28, "No space left on device")

    file = AtomicFile(target)
    file.write(b"new")
    monkeypatch.setattr(os, call, fail)
    with pytest.raises(OSError, match="No space left"), file:
        pass
    monkeypatch.undo()
    assert target.read_bytes() == b"old"
    assert names(tmp_path) == ["a.bin"]


def test_a_journal_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, synced = os.fsync, list[bytes]()

    def fsync(fd: int) -> None:
        real(fd)
        synced.append((tmp_path / "j").read_bytes())

    monkeypatch.setattr(os, "fsync", fsync)
    files.write_durably(tmp_path / "j", 0, b"first frame, second frame")
    files.write_durably(tmp_path / "j", 13, b"another")
    assert synced == [b"first frame, second frame", b"first frame, another"]


def test_a_file_is_truncated(tmp_path: Path) -> None:
    with AtomicFile(tmp_path / "a.bin") as file:
        file.write(b"0123456789")
        with pytest.raises(ValueError, match="truncation to 11 of 10 bytes"):
            file.truncate(11)
        file.truncate(10)
        assert file.tell() == 10
        file.truncate(4)
        assert file.tell() == 4
        file.write(b"x")
        assert os.fstat(file.fileno()).st_size == file.tell() == 5
    assert (tmp_path / "a.bin").read_bytes() == b"0123x"


def test_sync_calls_fsync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "fdatasync" if hasattr(os, "fdatasync") else "fsync"
    synced: list[int] = []
    monkeypatch.setattr(os, name, synced.append)
    with AtomicFile(tmp_path / "a.bin") as file:
        file.write(b"x")
        file.sync()
        assert synced == [file.fileno()]
        monkeypatch.undo()


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs /proc")
def test_a_commit_leaves_no_file_open(tmp_path: Path) -> None:
    before = os.listdir("/proc/self/fd")
    file = AtomicFile(tmp_path / "a.bin")
    file.write(b"x")
    file.commit()
    assert os.listdir("/proc/self/fd") == before


def test_short_positioned_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, offset: real(fd, data[:3], offset))
    files.write_durably(tmp_path / "j", 0, b"0123456789")
    assert (tmp_path / "j").read_bytes() == b"0123456789"


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, offset: real(fd, data[:3], offset))
    with AtomicFile(tmp_path / "a.bin") as file:
        file.write(b"0123456789")
    assert (tmp_path / "a.bin").read_bytes() == b"0123456789"


def test_preallocation_does_not_change_the_file(tmp_path: Path) -> None:
    with AtomicFile(tmp_path / "a.bin") as file:
        file.write(b"12")
        file.reserve(1 << 20)
        file.reserve(0)
        assert os.fstat(file.fileno()).st_size == 2
        file.write(b"34")
    assert (tmp_path / "a.bin").read_bytes() == b"1234"


@pytest.mark.parametrize(("number", "fails"), [(errno.ENOSPC, True), (errno.EDQUOT, True), (errno.EOPNOTSUPP, False)])
def test_a_full_disk_fails_before_writing(
    number: int, fails: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_arguments: int) -> int:
        ctypes.set_errno(number)
        return -1

    monkeypatch.setattr(files.atomic, "_fallocate", refuse)
    file = AtomicFile(tmp_path / "a.bin")
    if fails:
        with pytest.raises(OSError, match=os.strerror(number)), file:
            file.reserve(10)
    else:
        with file:
            file.reserve(10)
    assert (tmp_path / "a.bin").exists() is not fails
    assert not [name for name in names(tmp_path) if name.endswith(".partial")]


def test_patch_outside_the_written_bytes_is_rejected(tmp_path: Path) -> None:
    with AtomicFile(tmp_path / "a.bin") as file:
        file.write(b"1234")
        with pytest.raises(ValueError, match="beyond the 4 bytes"):
            file.patch(2, b"abc")
        file.patch(2, b"ab")
    assert (tmp_path / "a.bin").read_bytes() == b"12ab"


def test_existence_policies(tmp_path: Path) -> None:
    target = tmp_path / "a.bin"
    assert all(may_write(target, policy) for policy in ("skip", "error", "override"))
    target.touch()
    assert may_write(target, "override")
    assert not may_write(target, "skip")
    for kind in (ValueError, FileExistsError, TargetExists):
        with pytest.raises(kind, match=r"exists\. Pass if_exists='overwrite' to overwrite it\."):
            may_write(target, "error")
    with pytest.raises(ValueError, match="if_exists: found 'delete'"):
        may_write(target, "delete")  # type: ignore[arg-type]


@pytest.mark.parametrize("policy", list(FileExistencePolicy))
def test_policies_of_modalities_equal_the_names(policy: FileExistencePolicy, tmp_path: Path) -> None:
    assert may_write(tmp_path / "new", policy)
    (tmp_path / "old").touch()
    if policy is FileExistencePolicy.ERROR:
        with pytest.raises(TargetExists):
            may_write(tmp_path / "old", policy)
    else:
        assert may_write(tmp_path / "old", policy) == (policy == "override")
