"""`field_map` of dataset.yaml: which part of a stored sample, or what within it, becomes which field of a sample."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from fastpack.errors import FastpackError

_ALTERNATIVE = re.compile(r"([^\[\]]+)((?:\[[^\[\]]+\])*)$")
_KEY = re.compile(r"\[([^\[\]]+)\]")


class FieldAccessError(FastpackError, ValueError):
    """A sample has not what its field map asks for."""


def split_field_access(expression: str) -> list[list[str]]:
    """The alternatives of an expression, each a part's name and the keys to go down by within it.

    `json[a][0],txt` -> [["json", "a", "0"], ["txt"]]. No blanks are stripped, as Energon does not. An alternative that
    is not of this form, such as the halves of `json[a,b]`, stands for a part whose name is the whole expression.
    """
    alternatives = []
    for text in expression.split(","):
        match = _ALTERNATIVE.match(text)
        alternatives.append([match[1], *_KEY.findall(match[2])] if match else [expression])
    return alternatives


def field_access(value: Any, alternatives: list[list[str]]) -> Any:
    """What the first alternative that is there leads to; FieldAccessError, of the last one, when none is."""
    for path in alternatives[:-1]:
        try:
            return _go_down(value, path)
        except FieldAccessError:
            continue
    return _go_down(value, alternatives[-1])


def _go_down(value: Any, path: list[str]) -> Any:
    for depth, key in enumerate(path):
        try:
            if isinstance(value, dict):
                value = value[key]
            elif isinstance(value, list):
                value = value[int(key)]
            else:
                raise FieldAccessError(f"{_shown(path)}: {_shown(path[:depth])} is {_kind(value)}, it has no [{key}]")
        except (KeyError, IndexError):
            raise FieldAccessError(_missing(value, path, depth)) from None
        except ValueError as error:
            if isinstance(error, FieldAccessError):
                raise
            raise FieldAccessError(f"{_shown(path)}: {_shown(path[:depth])} is a list, [{key}] is no number") from None
    return value


def _missing(value: Any, path: list[str], depth: int) -> str:
    if depth == 0:
        there = sorted(name for name in value if not name.startswith("__"))
        return f"there is no part {path[0]!r}, only {', '.join(map(repr, there)) or 'none'}"
    if isinstance(value, list):
        return f"{_shown(path)}: {_shown(path[:depth])} has {len(value)} items, [{path[depth]}] is none of them"
    return f"{_shown(path)}: {_shown(path[:depth])} has no {path[depth]!r}"


def _shown(path: list[str]) -> str:
    return path[0] + "".join(f"[{key}]" for key in path[1:])


def _kind(value: Any) -> str:
    return "null" if value is None else f"of type {type(value).__name__}"


class FieldMap:
    """A whole field map: `parts` are the names of the parts it needs, calling it makes the fields of a sample."""

    def __init__(self, expressions: Mapping[str, str]) -> None:
        for name, expression in expressions.items():
            if not isinstance(expression, str):
                raise ValueError(f"field_map: {name} is {expression!r}, a text such as 'json[caption],txt' is expected")
        self._fields = {name: split_field_access(expression) for name, expression in expressions.items()}
        self.names = frozenset(self._fields)
        self.parts = frozenset(path[0] for alternatives in self._fields.values() for path in alternatives)

    def __call__(self, sample: dict[str, Any]) -> dict[str, Any]:
        """{field: value} of a sample {part: decoded value}; FieldAccessError names the field."""
        values = {}
        for name, alternatives in self._fields.items():
            try:
                values[name] = field_access(sample, alternatives)
            except FieldAccessError as error:
                raise FieldAccessError(f"field {name!r}: {error}") from None
        return values
