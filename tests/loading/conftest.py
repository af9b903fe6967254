"""Fixtures of the loader's tests."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest


def wait_for_no_threads() -> bool:
    gc.collect()
    deadline = time.monotonic() + 10
    while _threads() and time.monotonic() < deadline:
        time.sleep(0.005)
    return not _threads()


def _threads() -> list[str]:
    return [
        thread.name for thread in threading.enumerate() if thread.name.startswith(("fastpack-loader", "fastpack-slice"))
    ]


@pytest.fixture
def no_threads() -> Iterator[Callable[[], bool]]:
    """Return whether all threads of loaders end within 10 s; at the end of the test they must have ended."""
    yield wait_for_no_threads
    assert wait_for_no_threads()


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    rng = np.random.default_rng(3)
    for number in range(3):
        np.save(tmp_path / f"{number}.npy", rng.integers(0, 20, 5000 + number, dtype=np.uint16))
    return tmp_path
