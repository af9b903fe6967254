"""Threads that wait for stores."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

READERS = 16  # requests at a time
_T = TypeVar("_T")
_S = TypeVar("_S")
_interrupted = threading.Event()
_pools: dict[int, ThreadPoolExecutor] = {}


@contextlib.contextmanager
def stopping_when_interrupted() -> Iterator[None]:
    """Have requests of other threads not be repeated once this one is interrupted (Ctrl-C), as it waits for them."""
    _interrupted.clear()
    try:
        yield
    except Exception:
        raise
    except BaseException:
        _interrupted.set()
        raise


def is_interrupted() -> bool:
    """Whether a failed request should not be repeated: the program is about to end."""
    return _interrupted.is_set() and threading.current_thread() is not threading.main_thread()


def pause(seconds: float) -> None:
    """Sleep; other threads than the main one wake when that is interrupted."""
    if threading.current_thread() is threading.main_thread():
        time.sleep(seconds)
    else:
        _interrupted.wait(seconds)


def pool() -> ThreadPoolExecutor:
    """The threads of this process that fetch ahead."""
    found = _pools.get(os.getpid())
    if found is None:
        found = _pools[os.getpid()] = ThreadPoolExecutor(READERS, "fastpack-remote")
    return found


def in_parallel(function: Callable[[_S], _T], items: Iterable[_S]) -> list[_T]:
    """What a function that asks a store returns for each of `items`, in order; several of them wait at a time."""
    items = list(items)
    if len(items) < 2:
        return [function(item) for item in items]
    with (
        ThreadPoolExecutor(min(READERS, len(items)), "fastpack-remote") as threads,
        stopping_when_interrupted(),
    ):
        try:
            return list(threads.map(function, items))
        except BaseException:
            threads.shutdown(wait=False, cancel_futures=True)
            raise
