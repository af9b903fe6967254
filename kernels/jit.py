"""Compile a function with Numba, as every Numba kernel is."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, cast

import numba
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

F = TypeVar("F", bound=Callable[..., Any])
_decorating = threading.Lock()


def jit(function: F) -> F:
    """Compile with `numba.njit`, without the GIL and cached on disk; uncached if no safe cache folder is writable.

    The cache is NUMBA_CACHE_DIR, else a folder of the user: Numba's first choice, the folder of the installed package,
    would keep files that `pip uninstall` does not remove.

    Compilation is lazy, because eager signatures only move it to the import. It is never parallel, because Numba's
    thread pools abort under threads and break under fork.
    """
    try:
        with _cache_of_user():
            compiled: Any = numba.njit(nogil=True, cache=True)(function)
    except RuntimeError:  # "cannot cache function": neither the home nor site-packages is writable
        return cast(F, numba.njit(nogil=True)(function))
    folder = getattr(getattr(compiled, "_cache", None), "cache_path", None)
    if folder is not None and not is_private(folder):
        compiled = numba.njit(nogil=True)(function)
    return cast(F, compiled)


@contextmanager
def _cache_of_user() -> Iterator[None]:
    """Let functions that are decorated in this block be cached in the user's cache folder, as Numba names it."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    config: Any = vars(numba)["config"]  # untyped, and not among the exported names
    with _decorating:
        given = config.CACHE_DIR
        config.CACHE_DIR = given or os.path.join(home, "numba")
        try:
            yield
        finally:
            config.CACHE_DIR = given


def is_private(folder: str) -> bool:
    """Return whether no other user can write to the folder: Numba unpickles and runs what is in its cache."""
    if not hasattr(os, "geteuid"):
        return True
    status = os.stat(folder)
    return status.st_uid in (0, os.geteuid()) and not status.st_mode & stat.S_IWOTH


@intrinsic
def pointer(context: Any, address: Any) -> Any:  # noqa: ARG001
    """Convert an integer address to a void pointer for `numba.carray`."""

    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], _context.get_value_type(types.voidptr))

    return types.voidptr(types.uint64), codegen


def prefetcher(for_writing: bool) -> Any:
    """Return a function of compiled code, (array, index), that prefetches the cache line of array[index]."""

    @intrinsic
    def prefetch(context: Any, array: Any, index: Any) -> Any:  # noqa: ARG001
        def codegen(_context: Any, builder: Any, signature: Any, args: Any) -> Any:
            view = _context.make_array(signature.args[0])(_context, builder, args[0])
            address = builder.bitcast(builder.gep(view.data, [args[1]]), ir.IntType(8).as_pointer())
            i32 = ir.IntType(32)
            kind = ir.FunctionType(ir.VoidType(), [address.type, i32, i32, i32])
            name = "llvm.prefetch.p0" if "*" not in str(address.type) else "llvm.prefetch.p0i8"
            function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
            builder.call(function, [address, i32(int(for_writing)), i32(2), i32(1)])
            return _context.get_dummy_value()

        return types.void(array, types.int64), codegen

    return prefetch


def trailing_zeros() -> Any:
    """Return a function of compiled code, (uint64), that counts the zero bits below the lowest set bit."""

    @intrinsic
    def count(_context: Any, value: Any) -> Any:
        def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
            return builder.cttz(args[0], ir.IntType(1)(0))

        return value(value), codegen

    return count
