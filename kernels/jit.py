"""Compile a function with Numba, as every Numba kernel is."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., Any])


def jit(function: F) -> F:
    """Compile with `numba.njit`, without the GIL and cached on disk; uncached if no safe cache folder is writable.

    Compilation is lazy, because eager signatures only move it to the import. It is never parallel, because Numba's
    thread pools abort under threads and break under fork.
    """
    try:
        compiled: Any = numba.njit(nogil=True, cache=True)(function)
    except RuntimeError:  # "cannot cache function": neither site-packages nor the home is writable
        return cast(F, numba.njit(nogil=True)(function))
    folder = getattr(getattr(compiled, "_cache", None), "cache_path", None)
    if folder is not None and not is_private(folder):
        compiled = numba.njit(nogil=True)(function)
    return cast(F, compiled)


def is_private(folder: str) -> bool:
    """Return whether no other user can write to the folder: Numba unpickles and runs what is in its cache."""
    if not hasattr(os, "geteuid"):
        return True
    status = os.stat(folder)
    return status.st_uid in (0, os.geteuid()) and not status.st_mode & stat.S_IWOTH
