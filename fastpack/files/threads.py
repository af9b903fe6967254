"""Threads that wait for stores."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

READERS = 16  # requests at a time
_T = TypeVar("_T")
_S = TypeVar("_S")
_pools: dict[int, ThreadPoolExecutor] = {}


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
    with ThreadPoolExecutor(min(READERS, len(items)), "fastpack-remote") as threads:
        try:
            return list(threads.map(function, items))
        except BaseException:
            threads.shutdown(wait=False, cancel_futures=True)
            raise
