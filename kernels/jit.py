"""How every Numba twin is compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., Any])


def jit(function: F) -> F:
    """`numba.njit` that releases the GIL and caches on disk; compiled uncached where no cache folder is writable.

    Lazy, because eager signatures only move the wait to the import; never parallel, because Numba's thread pools abort
    under threads and break under fork.
    """
    try:
        compiled: Any = numba.njit(nogil=True, cache=True)(function)
    except RuntimeError:  # "cannot cache function": neither site-packages nor the home is writable
        compiled = numba.njit(nogil=True)(function)
    return cast(F, compiled)
