"""Threads: for requests to object stores, and for tasks whose results are needed in order."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:  # imported by functions: it imports logging, which takes 4 ms
    from concurrent.futures import Future, ThreadPoolExecutor

READERS = 16  # concurrent requests
_T = TypeVar("_T")
_S = TypeVar("_S")
_interrupted = threading.Event()
_pools: dict[int, ThreadPoolExecutor] = {}


@contextlib.contextmanager
def stopping_when_interrupted() -> Iterator[None]:
    """Do not retry requests of other threads after this thread, which waits for them, is interrupted (Ctrl-C)."""
    _interrupted.clear()
    try:
        yield
    except Exception:
        raise
    except BaseException:
        _interrupted.set()
        raise


def is_interrupted() -> bool:
    """Return whether failed requests should not be retried because the program is about to end."""
    return _interrupted.is_set() and threading.current_thread() is not threading.main_thread()


def pause(seconds: float) -> None:
    """Sleep; threads other than the main thread wake up when it is interrupted."""
    if threading.current_thread() is threading.main_thread():
        time.sleep(seconds)
    else:
        _interrupted.wait(seconds)


def pool() -> ThreadPoolExecutor:
    """Return this process's threads for prefetching."""
    found = _pools.get(os.getpid())
    if found is None:
        from concurrent.futures import ThreadPoolExecutor

        found = _pools[os.getpid()] = ThreadPoolExecutor(READERS, "fastpack-remote")
    return found


def in_parallel(function: Callable[[_S], _T], items: Iterable[_S]) -> list[_T]:
    """Call a function that sends requests for each item, several at a time; return the results in order."""
    items = list(items)
    if len(items) < 2:
        return [function(item) for item in items]
    from concurrent.futures import ThreadPoolExecutor

    with (
        ThreadPoolExecutor(min(READERS, len(items)), "fastpack-remote") as threads,
        stopping_when_interrupted(),
    ):
        try:
            return list(threads.map(function, items))
        except BaseException:
            threads.shutdown(wait=False, cancel_futures=True)
            raise


def in_order(function: Callable[[_S], _T], items: Iterable[_S], num_threads: int) -> Iterator[_T]:
    """Call a function for each item, `num_threads` at a time; yield the results in order.

    At most 2 * num_threads calls are pending or finished. Closing the iterator cancels those that have not started.
    """
    from concurrent.futures import ThreadPoolExecutor

    waiting: deque[Future[_T]] = deque()
    with ThreadPoolExecutor(num_threads, "fastpack-in-order") as threads:
        try:
            for item in items:
                waiting.append(threads.submit(function, item))
                if len(waiting) == 2 * num_threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            threads.shutdown(cancel_futures=True)
