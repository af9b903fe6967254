"""Atomic replacement: old or new, never half; one writer at a time; nothing left behind."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from fastpack import files
from fastpack.errors import FormatError, JobError, MissingExtra
from fastpack.files import AtomicFile, FileExistencePolicy, TargetExists, map_bytes, may_write


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_target_appears_on_commit_and_not_before(tmp_path: Path) -> None:
    target = tmp_path / "new" / "a.bin"
    with AtomicFile(target) as file:
        assert file.write(b"head") == 4
        file.write(np.arange(3, dtype=np.uint16))
        assert file.tell() == 10
        file.patch(0, b"HEAD")
        assert not target.exists()
    assert target.read_bytes() == b"HEAD\x00\x00\x01\x00\x02\x00"
    assert names(target.parent) == ["a.bin"]


def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "a.bin"
    target.write_bytes(b"old")
    with pytest.raises(KeyboardInterrupt), AtomicFile(target) as file:
        file.write(b"new")
        raise KeyboardInterrupt
    assert target.read_bytes() == b"old"
    assert names(tmp_path) == ["a.bin"]


def test_a_dropped_writer_leaves_nothing(tmp_path: Path) -> None:
    file = AtomicFile(tmp_path / "a.bin")
    file.write(b"x")
    del file
    assert names(tmp_path) == []


@pytest.mark.parametrize("call", ["flock", "fstat"])
def test_an_interrupt_while_the_partial_file_is_made_leaves_nothing(
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
def test_a_failing_commit_leaves_the_old_file(call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, bytes(data)[:3]))
    with AtomicFile(tmp_path / "a.bin") as file:
        file.write(b"0123456789")
    assert (tmp_path / "a.bin").read_bytes() == b"0123456789"


def test_room_is_set_aside_without_changing_the_file(tmp_path: Path) -> None:
    with AtomicFile(tmp_path / "a.bin") as file:
        file.write(b"12")
        file.reserve(1 << 20)
        file.reserve(0)
        assert os.fstat(file.fileno()).st_size == 2
        file.write(b"34")
    assert (tmp_path / "a.bin").read_bytes() == b"1234"


@pytest.mark.parametrize(("number", "fails"), [(errno.ENOSPC, True), (errno.EDQUOT, True), (errno.EOPNOTSUPP, False)])
def test_a_disk_without_room_fails_before_the_work(
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


def test_patch_stays_inside_what_was_written(tmp_path: Path) -> None:
    with AtomicFile(tmp_path / "a.bin") as file:
        file.write(b"1234")
        with pytest.raises(ValueError, match="beyond the 4 bytes"):
            file.patch(2, b"abc")


def test_a_link_is_written_through_and_a_folder_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with AtomicFile(tmp_path / "link") as file:
        file.write(b"x")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"x"
    with pytest.raises(JobError, match="not a regular file"):
        AtomicFile(tmp_path)


HOLD = """
import sys, time
from fastpack.files import AtomicFile
file = AtomicFile(sys.argv[1])
file.write(b"half")
print("holding", flush=True)
time.sleep(60)
"""


def test_second_writer_fails_at_once_and_a_killed_one_leaves_room_for_the_next(tmp_path: Path) -> None:
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


def test_of_writers_that_race_one_wins(tmp_path: Path) -> None:
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


def test_policies(tmp_path: Path) -> None:
    target = tmp_path / "a.bin"
    assert all(may_write(target, policy) for policy in ("skip", "error", "override"))
    target.touch()
    assert may_write(target, "override")
    assert not may_write(target, "skip")
    for kind in (ValueError, FileExistsError, TargetExists):
        with pytest.raises(kind, match=r"exists\. Pass file_existence_policy='override' to overwrite it\."):
            may_write(target, "error")
    with pytest.raises(ValueError, match="unknown file existence policy"):
        may_write(target, "delete")  # type: ignore[arg-type]


def test_maps_are_read_only_and_empty_files_are_empty_arrays(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    (tmp_path / "empty").touch()
    data = map_bytes(tmp_path / "a")
    assert data.tobytes() == b"abc"
    assert not data.flags.writeable
    assert len(map_bytes(tmp_path / "empty")) == 0
    os.mkfifo(tmp_path / "pipe")
    holder = os.open(tmp_path / "pipe", os.O_RDWR)  # so that opening it to read does not wait
    try:
        with pytest.raises(JobError, match="not a regular file"):
            map_bytes(tmp_path / "pipe")
    finally:
        os.close(holder)


def test_errors_carry_their_facts_through_pickle() -> None:
    import pickle

    error = pickle.loads(pickle.dumps(FormatError("a.bin", 12, "5 bytes", "8 bytes")))
    assert (error.path, error.offset, error.found, error.expected) == ("a.bin", 12, "5 bytes", "8 bytes")
    assert str(error) == "a.bin: at byte 12: found 5 bytes, expected 8 bytes"
    missing = pickle.loads(pickle.dumps(MissingExtra("jq", "jq", "the pattern .a[]")))
    assert str(missing) == "the pattern .a[] needs the package 'jq': pip install 'fastpack-llm[jq]'"


@pytest.mark.parametrize("policy", list(FileExistencePolicy))
def test_modalities_names_of_the_policies_are_the_plain_words(policy: FileExistencePolicy, tmp_path: Path) -> None:
    assert may_write(tmp_path / "new", policy)
    (tmp_path / "old").touch()
    if policy is FileExistencePolicy.ERROR:
        with pytest.raises(TargetExists):
            may_write(tmp_path / "old", policy)
    else:
        assert may_write(tmp_path / "old", policy) == (policy == "override")


def test_a_partial_file_that_is_another_file_as_well_is_refused(tmp_path: Path) -> None:
    (tmp_path / "precious").write_bytes(b"precious")
    partial = tmp_path / ".a.bin.partial"
    for make in (lambda: os.link(tmp_path / "precious", partial), lambda: os.mkfifo(partial)):
        make()
        with pytest.raises(JobError, match=r"\.a\.bin\.partial is in the way"):
            AtomicFile(tmp_path / "a.bin")
        partial.unlink()
    partial.symlink_to(tmp_path / "precious")
    with pytest.raises(OSError, match=r"\.a\.bin\.partial"):
        AtomicFile(tmp_path / "a.bin")
    assert (tmp_path / "precious").read_bytes() == b"precious"
    assert partial.is_symlink()


def test_an_abort_after_the_rename_removes_no_other_writers_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal's exception comes right after the rename, and another writer starts before the file is given up."""
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


def test_errors_of_reading_name_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_arguments: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    (tmp_path / "a.bin").write_bytes(b"abc")
    file = files.open_reader(tmp_path / "a.bin")
    monkeypatch.setattr(os, "preadv", fail)
    with pytest.raises(OSError, match=r"Input/output error: '.*a\.bin'"):
        file.read_into(np.empty(3, np.uint8), 0)


@pytest.mark.parametrize(("number", "text"), [(0, "0 lines"), (1, "1 line"), (2000, "2,000 lines")])
def test_a_number_has_the_noun_that_fits(number: int, text: str) -> None:
    from fastpack.errors import counted

    assert counted(number, "line") == text


def test_results_of_one_are_in_the_singular(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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
