"""Several threads at one loader: every batch once, no thread left waiting, an exact state."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numbered import Numbers

import fastpack

pytestmark = pytest.mark.usefixtures("no_threads")


class Pausing(Numbers):
    """Yields to other threads now and then."""

    def __getitem__(self, index: int) -> int:
        if index % 7 == 0:
            time.sleep(0.0002)
        return index


def in_threads(count: int, work: Callable[[], None]) -> None:
    """Run `work` in threads; all must end, and none may raise."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert errors == []


@pytest.mark.parametrize("prefetch", [0, 1, 3])
def test_four_threads_share_an_epoch(prefetch: int) -> None:
    loader = fastpack.StatefulDataLoader(Pausing(1500), 1, prefetch=prefetch)
    for epoch in range(3):
        iter(loader)
        seen: list[int] = []

        def work(seen: list[int] = seen) -> None:
            while (batch := next(loader, None)) is not None:
                seen.append(int(batch[0]))

        in_threads(4, work)
        assert sorted(seen) == list(range(1500))
        assert loader.state_dict()["epoch"] == epoch + 1


def test_threads_may_close_restart_and_save_concurrently() -> None:
    loader = iter(fastpack.StatefulDataLoader(Pausing(1200), 2, prefetch=2))
    seen: list[int] = []

    def work() -> None:
        rng = random.Random(threading.get_ident())
        while loader.state_dict()["epoch"] == 0:
            choice = rng.random()
            if choice < 0.03:
                loader.close()
            elif choice < 0.1:
                iter(loader)
            elif choice < 0.2:
                assert loader.state_dict()["elastic"]["consumed"] % 2 == 0
            elif (batch := next(loader, None)) is not None:
                seen.extend(batch.tolist())

    in_threads(4, work)
    first_epoch = seen[:1200]
    assert sorted(first_epoch) == list(range(1200))


def test_an_error_reaches_one_thread_and_the_others_continue() -> None:
    class Failing(Pausing):
        failed = False

        def __getitem__(self, index: int) -> int:
            if index == 77 and not self.failed:
                self.failed = True
                raise OSError("once")
            return super().__getitem__(index)

    loader = iter(fastpack.StatefulDataLoader(Failing(400), 1))
    seen: list[int] = []
    errors: list[str] = []

    def work() -> None:
        while True:
            try:
                seen.append(int(next(loader)[0]))
            except StopIteration:
                return
            except OSError as error:
                errors.append(str(error))

    in_threads(4, work)
    assert errors == ["once"]
    assert sorted(seen) == list(range(400))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_fork_while_another_thread_waits_for_a_batch() -> None:
    """The child has no copy of the thread that held the lock."""
    started, go_on = threading.Event(), threading.Event()

    class Waiting(Numbers):
        def __getitem__(self, index: int) -> int:
            if index == 4 and os.getpid() == parent:
                started.set()
                go_on.wait(30)
            return index

    parent = os.getpid()
    loader = iter(fastpack.StatefulDataLoader(Waiting(20), 2, np.arange(20), prefetch=0))
    assert [next(loader).tolist() for _ in range(2)] == [[0, 1], [2, 3]]
    waiting = threading.Thread(target=lambda: next(loader), daemon=True)
    waiting.start()
    assert started.wait(30)
    child = os.fork()
    if child == 0:
        got: Any = None
        try:
            loader.load_state_dict({"epoch": 0, "batches_yielded": 2})
            got = next(iter(loader)).tolist()
        finally:
            os._exit(0 if got == [4, 5] else 1)
    deadline = time.monotonic() + 30
    while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < deadline:
        time.sleep(0.01)
    if ended == (0, 0):
        os.kill(child, 9)
        os.waitpid(child, 0)
    go_on.set()
    waiting.join(30)
    assert ended[1] == 0
    assert next(loader).tolist() == [6, 7]
