"""The loader's threads: errors reach the caller, threads end, processes fork and are spawned."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numbered import Numbers, drawn

import fastpack
from fastpack import kernels
from fastpack.loading import producer

pytestmark = pytest.mark.usefixtures("no_threads")


class Failing(Numbers):
    """Fails at sample 7 until it is repaired."""

    error: BaseException | None = ZeroDivisionError("sample 7 is bad")

    def __getitem__(self, index: int) -> int:
        if index == 7 and self.error is not None:
            raise self.error
        return index


def background_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith(("fastpack-loader", "fastpack-slice"))]


def packed(shards: Path) -> fastpack.MemoryMappedDataset:
    return fastpack.MemoryMappedDataset(shards, 33, "*.npy", True, eos_token_id=0)


class Recording(Numbers):
    def __init__(self, length: int) -> None:
        super().__init__(length)
        self.fetched: list[int] = []
        self.hinted: list[int] = []
        self.most_ahead = 0

    def __getitem__(self, index: int) -> int:
        self.fetched.append(index)
        return index

    def will_need(self, indices: Any) -> None:
        self.hinted.extend(int(index) for index in indices)
        assert self.fetched == [] or max(self.hinted) >= max(self.fetched)


def test_prefetch_bounds_the_batches_produced_ahead() -> None:
    dataset = Recording(1000)
    loader = iter(fastpack.StatefulDataLoader(dataset, 10, range(len(dataset)), prefetch=3))
    for taken in range(1, 20):
        next(loader)
        time.sleep(0.002)
        assert len(dataset.fetched) <= (taken + 3) * 10
    deadline = time.monotonic() + 10
    while len(dataset.fetched) < 220 and time.monotonic() < deadline:
        time.sleep(0.002)
    assert len(dataset.fetched) == 220
    assert dataset.hinted[: len(dataset.fetched)] == dataset.fetched
    assert len(dataset.hinted) == 240  # hinted two batches further than fetched


class ByThread(Numbers):
    """Records which thread gets each sample; sample 300 fails once."""

    failed = False

    def __init__(self, n: int) -> None:
        super().__init__(n)
        self.threads: list[str] = []

    def __getitem__(self, index: int) -> int:
        if index == 300 and not self.failed:
            self.failed = True
            raise RuntimeError("sample 300")
        self.threads.append(threading.current_thread().name)
        return index


def test_a_loop_without_steps_makes_its_batches_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer, "QUICK", 1e9)
    monkeypatch.setattr(producer, "SLOW", 1e9)
    dataset = ByThread(1000)
    loader = fastpack.StatefulDataLoader(dataset, 1, range(1000))
    batches, taken = iter(loader), []
    while len(taken) < 500:
        try:
            taken += next(batches).tolist()
        except RuntimeError:
            assert len(taken) == 300
    assert dataset.threads[0] == "fastpack-loader"
    assert set(dataset.threads[200:500]) == {threading.current_thread().name}
    assert len(dataset.threads) == 500  # nothing is produced ahead
    loader.skip(steps=(510, 519))
    monkeypatch.setattr(producer, "QUICK", 0.0)  # now every step takes longer
    taken += [number for batch in batches for number in batch.tolist()]
    assert taken == [*range(510), *range(520, 1000)]
    assert set(dataset.threads[600:]) == {"fastpack-loader"}
    monkeypatch.setattr(producer, "QUICK", 1e9)
    monkeypatch.setattr(producer, "SLOW", 0.0)  # batches that take long hide what the thread costs
    dataset.threads.clear()
    assert len(list(loader)) == 1000
    assert set(dataset.threads) == {"fastpack-loader"}


def test_errors_reach_the_caller_with_traceback_and_can_be_retried() -> None:
    for prefetch in (0, 2):
        dataset = Failing(20)
        loader = iter(fastpack.StatefulDataLoader(dataset, 5, range(len(dataset)), prefetch=prefetch))
        assert next(loader).tolist() == [0, 1, 2, 3, 4]
        for _ in range(2):
            with pytest.raises(ZeroDivisionError, match="sample 7 is bad") as caught:
                next(loader)
            assert caught.traceback[-1].name == "__getitem__"
            assert "while batch 1 of the epoch was made (samples 5, 6, 7, 8, ...)" in caught.value.__notes__
            assert "raise self.error" in "".join(traceback.format_exception(caught.value))
            dataset.error = type(caught.value)("sample 7 is bad")
        assert loader.state_dict()["batches_yielded"] == 1
        dataset.error = None
        assert [batch[0] for batch in drawn(loader, 3)] == [5, 10, 15]
        assert drawn(loader, 2) == ["StopIteration", "StopIteration"]


def test_stop_iteration_of_a_dataset_is_not_the_end_of_the_epoch() -> None:
    dataset = Failing(20)
    dataset.error = StopIteration("surprise")
    loader = iter(fastpack.StatefulDataLoader(dataset, 5, range(len(dataset))))
    next(loader)
    with pytest.raises(RuntimeError, match="raised StopIteration: surprise"):
        next(loader)


def test_a_sampler_that_fails_is_not_the_end_of_the_epoch() -> None:
    def order() -> Iterator[int]:
        yield from range(6)
        raise OSError("no more")

    loader = iter(fastpack.StatefulDataLoader(Numbers(9), 2, order()))
    assert [batch[0] for batch in drawn(loader, 3)] == [0, 2, 4]
    for _ in range(2):
        with pytest.raises(OSError, match="no more"):
            next(loader)


def test_threads_end_with_the_loader(no_threads: Callable[[], bool]) -> None:
    def abandon() -> None:
        for _ in fastpack.StatefulDataLoader(Numbers(100), 2, range(100)):
            break

    for _ in range(5):
        abandon()
    assert no_threads()
    loader = fastpack.StatefulDataLoader(Numbers(100), 2, range(100))
    for _ in range(20):
        next(iter(loader))  # each one restarts the epoch
    assert loader.state_dict()["batches_yielded"] == 20
    loader.close()  # waits for its current thread; earlier ones end by themselves
    assert no_threads()
    assert next(iter(loader)).tolist() == [40, 41]
    loader.close()
    list(loader)
    assert no_threads()  # the epoch's end, while the loader exists


EXIT_SCRIPT = """
import atexit, sys, time, threading
atexit.register(lambda: print(threading.active_count()))  # after the exit handlers of fastpack
import fastpack
class Slow:
    def __len__(self): return 1000
    def __getitem__(self, i):
        if i > 6: time.sleep(float(sys.argv[2]))
        return i
loader = fastpack.StatefulDataLoader(Slow(), 2, range(len(Slow())))
for batch in loader:
    if sys.argv[1] == "raise": raise SystemExit(3)
    break
"""


@pytest.mark.parametrize(("how", "code"), [("break", 0), ("raise", 3)])
@pytest.mark.parametrize("seconds", ["0", "0.3"])
def test_the_interpreter_exits_immediately(how: str, code: int, seconds: str) -> None:
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-c", EXIT_SCRIPT, how, seconds], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (code, "1\n", "")
    assert time.monotonic() - started < 30


def run_forked(work: Any) -> Any:
    """The result of `work()` in a forked child."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(write, pickle.dumps(work()))
        except BaseException:
            os.write(write, pickle.dumps(traceback.format_exc()))
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        result = pickle.loads(pipe.read())
    os.waitpid(child, 0)
    return result


@pytest.mark.parametrize("prefetch", [0, 2])
def test_slicing_threads_live_as_long_as_the_producer(
    shards: Path, prefetch: int, no_threads: Callable[[], bool]
) -> None:
    dataset = packed(shards)
    order = np.arange(len(dataset))
    order[9] = 10**9
    loader = iter(fastpack.StatefulDataLoader(dataset, 4, order, prefetch=prefetch, num_threads=2))
    for number in range(2):
        np.testing.assert_array_equal(
            next(loader)["labels"], dataset.batch(range(number * 4, number * 4 + 4))["labels"]
        )
    for _ in range(2):
        with pytest.raises(IndexError, match="1000000000 out of range"):
            next(loader)
    order[9] = 9
    assert run_forked(lambda: next(loader)["labels"].tolist()) == dataset.batch(range(8, 12))["labels"].tolist()
    assert len(list(loader)) == len(dataset) // 4 - 2
    assert no_threads()


def test_parent_and_forked_child_continue_from_the_same_position(shards: Path) -> None:
    dataset = packed(shards)
    expected = [
        batch["labels"].copy() for batch in fastpack.StatefulDataLoader(dataset, 8, range(len(dataset)), prefetch=0)
    ]
    loader = iter(fastpack.StatefulDataLoader(dataset, 8, range(len(dataset))))
    for number in range(0, 30, 3):
        np.testing.assert_array_equal(next(loader)["labels"], expected[number])
        assert not [thread for thread in background_threads() if run_forked(lambda: 1) != 1]
        theirs = run_forked(lambda: [next(loader)["labels"].copy() for _ in range(3)])
        for ahead in range(2):
            np.testing.assert_array_equal(theirs[ahead], expected[number + 1 + ahead])
            np.testing.assert_array_equal(next(loader)["labels"], expected[number + 1 + ahead])
        np.testing.assert_array_equal(theirs[2], expected[number + 3])


def test_no_thread_runs_while_the_process_forks() -> None:
    """Otherwise the child may inherit a held lock, and Python 3.12 and later warn."""
    seen: list[int] = []
    os.register_at_fork(after_in_parent=lambda: seen.append(len(background_threads())))
    loader = iter(fastpack.StatefulDataLoader(Numbers(10_000), 2, range(10_000)))
    for _ in range(20):
        next(loader)
        assert run_forked(lambda: len(background_threads())) == 0
    assert set(seen) == {0}


class AtWork(Numbers):
    def __init__(self, length: int) -> None:
        super().__init__(length)
        self.at_work, self.go_on = threading.Event(), threading.Event()

    def __getitem__(self, index: int) -> int:
        if index == 10:
            self.at_work.set()
            assert self.go_on.wait(30)
        return index


def test_fork_waits_a_limited_time_and_the_child_finds_its_position(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastpack.loading.producer.PATIENCE", 0.05)
    dataset = AtWork(40)
    loader = iter(fastpack.StatefulDataLoader(dataset, 4, range(len(dataset))))
    assert next(loader).tolist() == [0, 1, 2, 3]
    assert dataset.at_work.wait(30)

    def child() -> list[Any]:
        dataset.go_on = threading.Event()  # the inherited lock may be held
        dataset.go_on.set()
        was_lost = loader._producers[0].lost
        return [was_lost, *drawn(loader, 3), loader._producers[0].lost]

    # the batch in production at the fork is unknown: the epoch is planned again
    assert run_forked(child) == [True, [4, 5, 6, 7], [8, 9, 10, 11], [12, 13, 14, 15], False]
    dataset.go_on.set()
    assert drawn(loader, 3) == [[4, 5, 6, 7], [8, 9, 10, 11], [12, 13, 14, 15]]


def in_process(loader: fastpack.StatefulDataLoader, answers: Any) -> None:
    first = [next(iter(loader))["doc_ids"].copy(), kernels.backend()]
    answers.put((first, loader.state_dict()["batches_yielded"]))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_loaders_move_to_other_processes(shards: Path, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[2])  # a spawned process imports this module
    dataset = packed(shards)
    loader = iter(fastpack.StatefulDataLoader(dataset, 8, range(len(dataset)), prefetch=3))
    next(loader)
    context = multiprocessing.get_context(method)
    answers = context.Queue()
    process = context.Process(target=in_process, args=(loader, answers))
    process.start()
    (doc_ids, backend), batches = answers.get(timeout=60)
    process.join(60)
    assert process.exitcode == 0
    np.testing.assert_array_equal(doc_ids, packed(shards).batch(range(8, 16))["doc_ids"])
    assert batches == 2
    assert method == "fork" or backend == "cython"
    np.testing.assert_array_equal(next(loader)["doc_ids"], doc_ids)
