"""Waits for stores, other processes and locks: each one ends, and long ones are logged."""

from __future__ import annotations

import fcntl
import logging
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from command_line import FASTPACK, started
from forks import check_in_a_fork

from fastpack.errors import JobError
from fastpack.io import store_helper as remote_helper
from fastpack.io import stores as remote
from fastpack.io.block_cache import cache, identity
from fastpack.io.remote_files import fetch


def lock_of(url: str) -> tuple[Path, Path]:
    """Return the paths of the lock for fetching an object and of its partial file."""
    name = identity(url, remote.status(url))
    path = cache().path(name)
    path.parent.mkdir(parents=True)
    locks = cache().folder / "locks"
    locks.mkdir()
    return locks / f"{name[:2]}.fetch", path.with_name(f".{name}.partial")


def test_lock_of_an_idle_process_times_out(
    store: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("fastpack.io.block_cache.SAY_AFTER", 0.2)
    monkeypatch.setattr("fastpack.io.block_cache.LOCK_SECONDS", 1.0)
    url = store.put("a", b"content")
    lock, _ = lock_of(url)
    with open(lock, "ab") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(JobError, match=r"another process has held .*\.fetch for \d+ s and written nothing for"):
            fetch(url)
    assert "waiting for another process that fetches into" in caplog.text
    assert fetch(url).read_bytes() == b"content"


def test_lock_of_a_working_process_is_awaited(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastpack.io.block_cache.LOCK_SECONDS", 3.0)
    url = store.put("a", b"content")
    lock, partial = lock_of(url)

    def work() -> None:
        with open(lock, "ab") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            is_held.set()
            for number in range(20):
                partial.write_bytes(bytes(number + 1))
                time.sleep(0.25)

    is_held = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(work)
        is_held.wait(60)
        assert fetch(url).read_bytes() == b"content"
        working.result()


def test_unresponsive_helper_process_is_killed_and_replaced(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_helper, "ANSWER_SECONDS", 1.0)
    url = store.put("a", b"content")
    remote.status(url)

    def check() -> None:
        monkeypatch.setattr(remote_helper, "ANSWER_SECONDS", 60.0)
        assert remote.read_range(url, 0, 7) == b"content"
        monkeypatch.setattr(remote_helper, "ANSWER_SECONDS", 1.0)
        helper = remote_helper.helper()
        os.kill(helper._process.pid, signal.SIGSTOP)
        with pytest.raises(OSError, match="did not respond to `read_range` for 1 s, and was killed"):
            remote.read_range(url, 0, 7)
        monkeypatch.setattr(remote_helper, "ANSWER_SECONDS", 60.0)
        helper._process.wait(60)
        assert remote.read_range(url, 0, 7) == b"content"  # by a new helper process

    check_in_a_fork(check)


def test_interrupted_request_does_not_affect_the_next(store: Any) -> None:
    url = store.put("a", b"content")
    remote.status(url)

    def delay_the_second(*_: Any) -> None:
        store.proxy.delay = 2.0 if store.proxy.count("GET") == 1 else 0.0

    store.proxy.choose = delay_the_second

    def check() -> None:
        assert remote.read_range(url, 0, 7) == b"content"
        helper = remote_helper.helper()  # once it has ended, the function starts another one
        signal.signal(signal.SIGUSR1, signal.default_int_handler)
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        with pytest.raises(KeyboardInterrupt):
            remote.read_range(url, 0, 3)
        helper._process.wait(60)
        assert remote.read_range(url, 3, 7) == b"tent"

    check_in_a_fork(check)


def test_helper_process_that_does_not_exit_is_killed(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_helper, "END_SECONDS", 0.5)
    helper = remote_helper.Helper()
    os.kill(helper._process.pid, signal.SIGSTOP)
    process = helper._process
    del helper
    assert process.wait(60) == -signal.SIGKILL


def test_interrupted_fetch_ends_promptly(store: Any, tmp_path: Path) -> None:
    url = store.put("a", bytes(40 << 20))
    store.proxy.choose = lambda _, method, *__: "stall" if method == "GET" else None
    with started([*FASTPACK, "fetch", url], env=os.environ | {"FASTPACK_STALL_SECONDS": "3"}, stderr=None) as process:
        while store.proxy.count("GET") < 3:
            time.sleep(0.1)
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130


def test_retries_are_logged(store: Any, caplog: pytest.LogCaptureFixture) -> None:
    url = store.put("a", b"content")
    faults = iter(["503", "503", "503", "503"])
    store.proxy.choose = lambda _, method, *__: next(faults, None) if method == "GET" else None
    with caplog.at_level(logging.WARNING, "fastpack"):
        assert remote.read_range(url, 0, 7) == b"content"
    messages = [record.getMessage() for record in caplog.records if record.name == "fastpack"]
    assert [message[-25:] for message in messages] == [f"retrying (attempt {n} of 6)" for n in (4, 5)]
