"""One writer at a time, also after kills and signals, and no file of another writer is touched."""

from __future__ import annotations

import fcntl
import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from fastpack.errors import JobError
from fastpack.io import AtomicFile, TargetExists


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


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
