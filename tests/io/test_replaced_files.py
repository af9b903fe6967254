"""What a replaced file keeps: permissions, owner, links; and what a commit syncs."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from fastpack import io as files
from fastpack.errors import JobError
from fastpack.io import AtomicFile


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o444, 0o755, 0o666])
def test_a_replaced_file_keeps_its_permissions(mode: int, tmp_path: Path) -> None:
    target = tmp_path / "a.bin"
    target.write_bytes(b"old")
    target.chmod(mode)
    with AtomicFile(target) as file:
        partial = stat.S_IMODE(os.stat(file.partial_path).st_mode)
        # Other users must not read the partial file, and its owner must be able to resume it.
        assert partial == mode | 0o600
        file.set_mode(0o777)  # for new files
        assert stat.S_IMODE(os.stat(file.partial_path).st_mode) == partial
        file.write(b"new")
    assert (target.read_bytes(), stat.S_IMODE(target.stat().st_mode)) == (b"new", mode)


def test_permissions_changed_during_writing_are_kept(tmp_path: Path) -> None:
    target = tmp_path / "a.bin"
    target.write_bytes(b"old")
    with AtomicFile(target) as file:
        file.write(b"new")
        target.chmod(0o600)
    assert stat.S_IMODE(target.stat().st_mode) == 0o600


def test_a_new_file_has_the_given_permissions_or_those_of_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        for name, umask, mode in (("a.bin", 0, None), ("b.bin", 0o027, None), ("c.bin", 0o027, 0o604)):
            os.umask(umask)
            with AtomicFile(tmp_path / name) as file:
                if mode is not None:
                    file.set_mode(mode)
            assert stat.S_IMODE((tmp_path / name).stat().st_mode) == (mode or 0o666 & ~umask)
    finally:
        os.umask(before)


@pytest.mark.parametrize("may_change_owner", [True, False])
def test_a_replaced_file_keeps_its_owner_if_the_system_allows_it(
    may_change_owner: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only root may set an owner, so the system calls are replaced."""
    target = tmp_path / "a.bin"
    target.write_bytes(b"old")
    real, owners = os.stat, []

    def foreign(path: Any, **options: Any) -> os.stat_result:
        status = list(real(path, **options))
        if os.fspath(path) == str(target):
            status[4:6] = 12345, 54321
        return os.stat_result(status)

    def fchown(_fd: int, uid: int, gid: int) -> None:
        owners.append((uid, gid))
        if not may_change_owner:
            raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "stat", foreign)
    monkeypatch.setattr(os, "fchown", fchown)
    with AtomicFile(target) as file:
        file.write(b"new")
    monkeypatch.undo()
    assert set(owners) == {(-1, 54321), (12345, -1)}
    assert target.read_bytes() == b"new"


def test_a_commit_syncs_before_and_after_the_rename(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The contents are synced before the rename, the directory after it; or a power failure can lose the file."""
    folder = tmp_path / "new" / "folder"
    folder.mkdir(parents=True)
    (tmp_path / "link.bin").symlink_to(folder / "a.bin")
    real_fsync, real_replace = os.fsync, os.replace
    events: list[tuple[str, object]] = []

    def fsync(fd: int) -> None:
        events.append(("fsync", os.fstat(fd).st_ino))
        real_fsync(fd)

    def replace(source: str, target: str) -> None:
        events.append(("replace", target))
        real_replace(source, target)

    file = AtomicFile(tmp_path / "link.bin")
    file.write(b"new")
    inode = os.fstat(file.fileno()).st_ino
    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    file.commit()
    assert events == [("fsync", inode), ("replace", str(folder / "a.bin")), ("fsync", folder.stat().st_ino)]


def test_a_commit_removes_the_checksums_of_the_replaced_file(tmp_path: Path) -> None:
    for name in ("a.bin", "a.bin.fpsum", "b.bin.fpsum"):
        (tmp_path / name).write_bytes(b"old")
    with AtomicFile(tmp_path / "a.bin") as file:
        file.write(b"new")
    assert names(tmp_path) == ["a.bin", "b.bin.fpsum"]
    files.remove(tmp_path / "a.bin")
    files.remove(tmp_path / "a.bin")
    assert names(tmp_path) == ["b.bin.fpsum"]


def test_a_given_modification_time_is_kept(tmp_path: Path) -> None:
    with AtomicFile(tmp_path / "a.bin") as file:
        file.write(b"x")
        file.set_modified(1_234_567_890_000_000_000)
    assert (tmp_path / "a.bin").stat().st_mtime_ns == 1_234_567_890_000_000_000


def test_a_link_is_replaced_without_following_it(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "precious").write_bytes(b"precious")
    (tmp_path / "folder/a.bin").symlink_to(tmp_path / "precious")
    (tmp_path / "way").symlink_to(tmp_path / "folder")
    with AtomicFile(tmp_path / "way/a.bin", follow=False) as file:
        assert file.path == str(tmp_path / "folder/a.bin")
        file.write(b"new")
    assert (tmp_path / "folder/a.bin").read_bytes() == b"new"
    assert not (tmp_path / "folder/a.bin").is_symlink()
    assert (tmp_path / "precious").read_bytes() == b"precious"
    assert (tmp_path / "way").is_symlink()


def test_a_link_is_followed_and_a_folder_rejected(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with AtomicFile(tmp_path / "link") as file:
        file.write(b"x")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"x"
    with pytest.raises(JobError, match="not a regular file"):
        AtomicFile(tmp_path)
