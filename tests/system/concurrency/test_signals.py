"""A signal during a batch: the loader's state remains correct, and a process that should end does."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
from command_line import started

import fastpack


class Interrupt(BaseException):
    """A substitute for KeyboardInterrupt, which would end pytest."""


@contextmanager
def interrupts() -> Iterator[tuple[random.Random, dict[str, bool]]]:
    def interrupt(number: int, frame: FrameType | None) -> None:
        in_test = frame is not None and frame.f_code.co_filename == __file__  # where nothing would catch it
        if not in_test and armed.pop("next", False):  # once each time
            raise Interrupt

    armed: dict[str, bool] = {}
    previous = signal.signal(signal.SIGALRM, interrupt)
    try:
        yield random.Random(1), armed
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


@pytest.fixture
def dataset(tmp_path: Path) -> fastpack.MemoryMappedDataset:
    np.save(tmp_path / "a.npy", np.repeat(np.arange(4000, dtype=np.uint16), 8))
    return fastpack.MemoryMappedDataset(tmp_path, 8)


class Interrupted:
    """A queue whose `get` is interrupted once, before or after it takes an item."""

    def __init__(self, queue: Any, when: str) -> None:
        self.queue, self.when = queue, when

    def put(self, item: Any) -> None:
        self.queue.put(item)

    def get(self) -> Any:
        if self.when == "after":
            self.queue.get()
        raise Interrupt


@pytest.mark.parametrize("prefetch", [1, 3])
@pytest.mark.parametrize("when", ["before", "after"])
def test_interrupting_next_loses_no_batch(dataset: fastpack.MemoryMappedDataset, prefetch: int, when: str) -> None:
    expected = [
        batch["input_ids"].copy() for batch in fastpack.StatefulDataLoader(dataset, 4, range(len(dataset)), prefetch=0)
    ]
    loader = iter(fastpack.StatefulDataLoader(dataset, 4, range(len(dataset)), prefetch=prefetch))
    next(loader)  # starts the thread
    for number, rows in enumerate(expected[1:8], start=1):
        producer = loader._producers[0]
        producer._ready = Interrupted(producer._ready, when)
        with pytest.raises(Interrupt):
            next(loader)
        assert loader.state_dict()["batches_yielded"] == number
        np.testing.assert_array_equal(next(loader)["input_ids"], rows)
    loader.close()


class Fragile:
    """A dataset that is interrupted once at each of some samples."""

    def __init__(self) -> None:
        self.left = {5, 6, 11}

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> int:
        if index in self.left:
            self.left.remove(index)
            raise Interrupt
        return index


def test_an_interrupted_batch_is_produced_again() -> None:
    loader = iter(fastpack.StatefulDataLoader(Fragile(), 4, range(len(Fragile())), prefetch=0))
    found, interrupts = [], 0
    while len(found) < 5:
        try:
            found.append(next(loader).tolist())
        except Interrupt:
            interrupts += 1
    assert (found, interrupts) == ([list(range(i, i + 4)) for i in range(0, 20, 4)], 3)
    assert next(loader, None) is None


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # an interrupt in a finaliser
def test_batches_continue_at_the_position_in_the_state(dataset: fastpack.MemoryMappedDataset) -> None:
    """After 400 interrupts at random positions of `next`, the loader never blocks or returns an uncounted batch.

    Without a thread, because Python itself does not always survive an interrupt while it starts a thread.
    """
    sampler = fastpack.DistributedSampler(dataset, 1, 0, seed=3)
    loader = iter(fastpack.StatefulDataLoader(dataset, 4, sampler, prefetch=0))
    orders: dict[int, np.ndarray] = {}
    last = interrupted = n_batches = 0
    with interrupts() as (source, armed):
        while interrupted < 400:
            try:
                before = loader.state_dict()
                armed["next"] = True
                signal.setitimer(signal.ITIMER_REAL, source.choice((1, 3, 10, 30, 100)) * source.random() * 1e-5)
                batch = next(loader, None)
                armed.clear()
            except Interrupt:
                interrupted += 1
                continue
            if batch is None:
                at_end = before["epoch"], before["batches_yielded"]
                assert at_end in ((last, len(loader)), (last + 1, 0))  # the second: interrupted at the end
                iter(loader)
                continue
            last = epoch = before["epoch"]
            place = before["batches_yielded"] * 4
            if epoch not in orders:
                other = fastpack.DistributedSampler(dataset, 1, 0, seed=3)
                other.set_epoch(epoch)
                orders[epoch] = other.indices()
            assert batch["input_ids"][:, 0].tolist() == orders[epoch][place : place + 4].tolist()
            n_batches += 1
    assert n_batches > 20
    loader.close()


SCRIPT = """
import sys, time, fastpack
class Slow:
    def __len__(self): return 1000
    def __getitem__(self, i):
        if i > 8: print("at work", flush=True); time.sleep(0.3)
        return i
for batch in fastpack.StatefulDataLoader(Slow(), 4, range(len(Slow())), prefetch=int(sys.argv[1])): pass
"""


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_signal_ends_a_process_during_a_batch(sent: signal.Signals, prefetch: int) -> None:
    with started([sys.executable, "-c", SCRIPT, str(prefetch)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "at work\n"
        process.send_signal(sent)
        _, errors = process.communicate(timeout=60)  # all batches take 300 s
    assert process.returncode == -sent
    assert errors == "" or (sent == signal.SIGINT and "KeyboardInterrupt" in errors)
