"""Atomic replacement: the old or the new file, never a partial one; one writer at a time; no temporary files remain."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import gc
import multiprocessing
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastpack import io as files
from fastpack.errors import FormatError, JobError, MissingExtra
from fastpack.io import AtomicFile, FileExistencePolicy, TargetExists, map_bytes, may_write


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


def test_a_garbage_collected_writer_removes_its_partial_file(tmp_path: Path) -> None:
    file = AtomicFile(tmp_path / "a.bin")
    file.write(b"x")
    del file
    assert names(tmp_path) == []


@pytest.mark.parametrize("call", ["flock", "fstat"])
def test_an_interrupt_during_creation_leaves_no_partial_file(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = fcntl if call == "flock" else os
    real, calls = getattr(module, call), []

    def interrupted(*arguments: object) -> object:
        calls.append(real(*arguments))
        if len(calls) == 1:
            raise KeyboardInterrupt
        return calls[-1]

    monkeypatch.setattr(module, call, interrupted)
    with pytest.raises(KeyboardInterrupt):
        AtomicFile(tmp_path / "a.bin")
    gc.collect()
    assert names(tmp_path) == []


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


def test_a_journal_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, synced = os.fsync, list[bytes]()

    def fsync(fd: int) -> None:
        real(fd)
        synced.append((tmp_path / "j").read_bytes())

    monkeypatch.setattr(os, "fsync", fsync)
    files.write_durably(tmp_path / "j", 0, b"first frame, second frame")
    files.write_durably(tmp_path / "j", 13, b"another")
    assert synced == [b"first frame, second frame", b"first frame, another"]


def test_a_suspended_file_is_kept_on_request(tmp_path: Path) -> None:
    target = tmp_path / "a.bin"
    for keep, expected in ((True, b"first, second"), (False, b"second")):
        file = AtomicFile(target)
        assert file.tell() == 0
        file.write(b"first, ")
        file.suspend()
        with AtomicFile(target, keep=keep) as file:
            assert file.tell() == (7 if keep else 0)
            file.write(b"second")
        assert target.read_bytes() == expected
        assert names(tmp_path) == ["a.bin"]


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


def test_a_given_modification_time_is_kept(tmp_path: Path) -> None:
    with AtomicFile(tmp_path / "a.bin") as file:
        file.write(b"x")
        file.set_modified(1_234_567_890_000_000_000)
    assert (tmp_path / "a.bin").stat().st_mtime_ns == 1_234_567_890_000_000_000


def test_sync_calls_fsync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "fdatasync" if hasattr(os, "fdatasync") else "fsync"
    synced: list[int] = []
    monkeypatch.setattr(os, name, synced.append)
    with AtomicFile(tmp_path / "a.bin") as file:
        file.write(b"x")
        file.sync()
        assert synced == [file.fileno()]
        monkeypatch.undo()


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


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs /proc")
def test_a_commit_leaves_no_file_open(tmp_path: Path) -> None:
    before = os.listdir("/proc/self/fd")
    file = AtomicFile(tmp_path / "a.bin")
    file.write(b"x")
    file.commit()
    assert os.listdir("/proc/self/fd") == before


def test_a_target_that_appears_is_kept_by_the_skip_policy(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"old")
    with pytest.raises(TargetExists, match="was written by another process"):
        AtomicFile(tmp_path / "a.bin", policy="skip")
    assert names(tmp_path) == ["a.bin"]


def test_a_partial_file_renamed_before_the_lock_is_not_modified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If another writer commits between the open and the lock, its file must not be truncated."""
    other = AtomicFile(tmp_path / "a.bin")
    other.write(b"of the other")
    real, calls = fcntl.flock, list[object]()

    def flock(*arguments: Any) -> None:
        calls.append(arguments)
        if len(calls) == 1:
            other.commit()
        real(*arguments)

    monkeypatch.setattr(fcntl, "flock", flock)
    second = AtomicFile(tmp_path / "a.bin")
    assert (tmp_path / "a.bin").read_bytes() == b"of the other"
    assert len(calls) == 2
    second.abort()


def test_an_interrupt_keeps_the_partial_file_of_another_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = AtomicFile(tmp_path / "a.bin")
    other.write(b"of the other")
    real, calls = fcntl.flock, list[object]()

    def flock(*arguments: Any) -> None:
        calls.append(arguments)
        if len(calls) == 1:
            raise KeyboardInterrupt
        real(*arguments)

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(KeyboardInterrupt):
        AtomicFile(tmp_path / "a.bin")
    other.commit()
    assert (tmp_path / "a.bin").read_bytes() == b"of the other"


def test_short_positioned_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, offset: real(fd, data[:3], offset))
    files.write_durably(tmp_path / "j", 0, b"0123456789")
    assert (tmp_path / "j").read_bytes() == b"0123456789"


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, bytes(data)[:3]))
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


def test_a_link_is_followed_and_a_folder_rejected(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with AtomicFile(tmp_path / "link") as file:
        file.write(b"x")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"x"
    with pytest.raises(JobError, match="not a regular file"):
        AtomicFile(tmp_path)


HOLD = """
import sys, time
from fastpack.io import AtomicFile
file = AtomicFile(sys.argv[1])
file.write(b"half")
print("holding", flush=True)
time.sleep(60)
"""


def test_a_second_writer_fails_immediately_and_a_killed_one_releases_its_lock(tmp_path: Path) -> None:
    target = tmp_path / "a.bin"
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(target)], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "holding\n"
        with pytest.raises(JobError, match="another process is writing"):
            AtomicFile(target)
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.communicate()
    assert not target.exists()
    with AtomicFile(target) as file:
        file.write(b"whole")
    assert target.read_bytes() == b"whole"
    assert names(tmp_path) == ["a.bin"]


def race(target: str, mark: bytes, start: float, wins: multiprocessing.SimpleQueue[bytes]) -> None:
    time.sleep(max(0.0, start - time.time()))
    try:
        with AtomicFile(target) as file:
            file.write(mark * 1000)
            time.sleep(0.3)
            file.write(mark * 1000)
    except JobError:
        return
    wins.put(mark)


def test_one_of_several_concurrent_writers_succeeds(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    wins = context.SimpleQueue()
    target, start = tmp_path / "a.bin", time.time() + 0.2
    racers = [context.Process(target=race, args=(str(target), mark, start, wins)) for mark in (b"a", b"b", b"c")]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    winner = wins.get()
    assert wins.empty()
    assert target.read_bytes() == winner * 2000


def test_existence_policies(tmp_path: Path) -> None:
    target = tmp_path / "a.bin"
    assert all(may_write(target, policy) for policy in ("skip", "error", "override"))
    target.touch()
    assert may_write(target, "override")
    assert not may_write(target, "skip")
    for kind in (ValueError, FileExistsError, TargetExists):
        with pytest.raises(kind, match=r"exists\. Pass if_exists='overwrite' to overwrite it\."):
            may_write(target, "error")
    with pytest.raises(ValueError, match="if_exists: found"):
        may_write(target, "delete")  # type: ignore[arg-type]


def test_mappings_are_read_only_and_empty_files_give_empty_arrays(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    (tmp_path / "empty").touch()
    data = map_bytes(tmp_path / "a")
    assert data.tobytes() == b"abc"
    assert not data.flags.writeable
    assert len(map_bytes(tmp_path / "empty")) == 0
    os.mkfifo(tmp_path / "pipe")
    holder = os.open(tmp_path / "pipe", os.O_RDWR)  # so that opening the pipe for reading does not block
    try:
        with pytest.raises(JobError, match="not a regular file"):
            map_bytes(tmp_path / "pipe")
    finally:
        os.close(holder)


def test_errors_can_be_pickled() -> None:
    import pickle

    error = pickle.loads(pickle.dumps(FormatError("a.bin", 12, "5 bytes", "8 bytes")))
    assert (error.path, error.offset, error.found, error.expected) == ("a.bin", 12, "5 bytes", "8 bytes")
    assert str(error) == "a.bin: at byte 12: found 5 bytes, expected 8 bytes"
    missing = pickle.loads(pickle.dumps(MissingExtra("jq", "jq", "the pattern .a[]")))
    assert str(missing) == "the pattern .a[] needs the package 'jq': pip install 'fastpack-llm[jq]'"


@pytest.mark.parametrize("policy", list(FileExistencePolicy))
def test_policies_of_modalities_equal_the_names(policy: FileExistencePolicy, tmp_path: Path) -> None:
    assert may_write(tmp_path / "new", policy)
    (tmp_path / "old").touch()
    if policy is FileExistencePolicy.ERROR:
        with pytest.raises(TargetExists):
            may_write(tmp_path / "old", policy)
    else:
        assert may_write(tmp_path / "old", policy) == (policy == "override")


def test_a_partial_file_that_is_not_a_private_regular_file_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "precious").write_bytes(b"precious")
    partial = tmp_path / ".a.bin.partial"
    for make in (lambda: os.link(tmp_path / "precious", partial), lambda: os.mkfifo(partial)):
        make()
        with pytest.raises(JobError, match=r"\.a\.bin\.partial has another link"):
            AtomicFile(tmp_path / "a.bin")
        partial.unlink()
    partial.symlink_to(tmp_path / "precious")
    with pytest.raises(OSError, match=r"\.a\.bin\.partial"):
        AtomicFile(tmp_path / "a.bin")
    assert (tmp_path / "precious").read_bytes() == b"precious"
    assert partial.is_symlink()


def test_an_abort_after_the_rename_keeps_the_file_of_another_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal raises right after the rename, and another writer starts before the abort."""
    others: list[AtomicFile] = []

    def replace(source: str, target: str) -> None:
        os.rename(source, target)
        others.append(AtomicFile(tmp_path / "a.bin"))
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises(KeyboardInterrupt), AtomicFile(tmp_path / "a.bin") as file:
        file.write(b"first")
    monkeypatch.undo()
    others[0].write(b"second")
    others[0].commit()
    assert (tmp_path / "a.bin").read_bytes() == b"second"


def test_read_errors_contain_the_file_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_arguments: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    (tmp_path / "a.bin").write_bytes(b"abc")
    file = files.open_reader(tmp_path / "a.bin")
    monkeypatch.setattr(os, "preadv", fail)
    with pytest.raises(OSError, match=r"Input/output error: '.*a\.bin'"):
        file.read_into(np.empty(3, np.uint8), 0)


@pytest.mark.parametrize(("number", "text"), [(0, "0 lines"), (1, "1 line"), (2000, "2,000 lines")])
def test_nouns_agree_with_their_number(number: int, text: str) -> None:
    from fastpack.errors import counted

    assert counted(number, "line") == text


def test_results_with_one_item_are_in_the_singular(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from fastpack.cli import main

    (tmp_path / "a.jsonl").write_bytes(b'{"text": "ab"}\n')
    assert main(["index", str(tmp_path / "a.jsonl")]) == 0
    assert "1 line, 15 bytes indexed" in capsys.readouterr().out
    assert main(["pack", str(tmp_path / "a.jsonl"), "--tokenizer", "bytes"]) == 0
    assert "1 document, 3 tokens" in capsys.readouterr().out
    assert main(["verify", str(tmp_path / "a.jsonl")]) == 0
    assert "1 line" in (out := capsys.readouterr().out)
    assert "1 lines" not in out
    assert "1 entry" in out or "1 entries" not in out
