"""Former names of keyword arguments, accepted next to the current ones."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def accept_aliases(**names: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator that lets a function accept keyword arguments under former names (`former="current"`).

    The decorated function raises TypeError where an argument is passed under both names.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            options: dict[str, Any] = dict(kwargs)
            for former, current in names.items():
                if former not in options:
                    continue
                if current in options:
                    raise TypeError(f"{function.__name__}() got both {current!r} and its former name {former!r}")
                options[current] = options.pop(former)
            return function(*args, **options)

        return call

    return decorate
