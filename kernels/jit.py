"""How every Numba twin is compiled."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., Any])


def jit(function: F) -> F:
    """`numba.njit` that releases the GIL and caches on disk; uncached where no cache folder is writable, or others' is.

    Lazy, because eager signatures only move the wait to the import; never parallel, because Numba's thread pools abort
    under threads and break under fork.
    """
    try:
        compiled: Any = numba.njit(nogil=True, cache=True)(function)
    except RuntimeError:  # "cannot cache function": neither site-packages nor the home is writable
        return cast(F, numba.njit(nogil=True)(function))
    folder = getattr(getattr(compiled, "_cache", None), "cache_path", None)
    if folder is not None and not is_ones_own(folder):
        compiled = numba.njit(nogil=True)(function)
    return cast(F, compiled)


def is_ones_own(folder: str) -> bool:
    """Whether nobody else can put files there: Numba unpickles what it finds in its cache, and runs it."""
    if not hasattr(os, "geteuid"):
        return True
    status = os.stat(folder)
    return status.st_uid in (0, os.geteuid()) and not status.st_mode & stat.S_IWOTH
