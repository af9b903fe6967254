"""`field_map` of dataset.yaml: map stored fields, or values in them, to the fields of a sample type."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from fastpack.errors import FastpackError

_ALTERNATIVE = re.compile(r"([^\[\]]+)((?:\[[^\[\]]+\])*)$")
_KEY = re.compile(r"\[([^\[\]]+)\]")


class FieldAccessError(FastpackError, ValueError):
    """Raised when a sample lacks a value that its field map requires.

    Examples
    --------
    >>> import io, tarfile, tempfile, fastpack
    >>> folder = tempfile.TemporaryDirectory()
    >>> with tarfile.open(f"{folder.name}/0.tar", "w") as tar:
    ...     file = tarfile.TarInfo("sample.json")
    ...     file.size = 2
    ...     tar.addfile(file, io.BytesIO(b"{}"))
    >>> options = {"split_ratio": (1, 0, 0), "sample_type": "TextSample", "field_map": {"text": "json[text]"}}
    >>> _ = fastpack.prepare(folder.name, **options)
    >>> with fastpack.WebDataset(folder.name) as dataset:
    ...     try:
    ...         dataset[0]
    ...     except fastpack.webdataset.FieldAccessError:
    ...         print("the sample has no text")
    the sample has no text
    >>> folder.cleanup()
    """


def split_field_access(expression: str) -> list[list[str]]:
    """Return the alternatives of an expression: each a stored field, followed by keys of nested values.

    `json[a][0],txt` -> [["json", "a", "0"], ["txt"]]. Blanks are not stripped, as in Energon. An alternative that does
    not have this form, such as the halves of `json[a,b]`, means a stored field whose name is the whole expression.
    """
    alternatives = []
    for text in expression.split(","):
        match = _ALTERNATIVE.match(text)
        alternatives.append([match[1], *_KEY.findall(match[2])] if match else [expression])
    return alternatives


def field_access(value: Any, alternatives: list[list[str]]) -> Any:
    """Return the value of the first alternative that exists; FieldAccessError of the last one if none does."""
    for path in alternatives[:-1]:
        try:
            return _descend(value, path)
        except FieldAccessError:
            continue
    return _descend(value, alternatives[-1])


def _descend(value: Any, path: list[str]) -> Any:
    for depth, key in enumerate(path):
        if not isinstance(value, (dict, list)):
            kind = "null" if value is None else f"of type {type(value).__name__}"
            raise FieldAccessError(f"{_shown(path)}: {_shown(path[:depth])} is {kind}, it has no [{key}]")
        try:
            value = value[key] if isinstance(value, dict) else value[int(key)]
        except LookupError:
            raise FieldAccessError(_missing(value, path, depth)) from None
        except ValueError:
            raise FieldAccessError(
                f"{_shown(path)}: {_shown(path[:depth])} is a list, [{key}] is not a number"
            ) from None
    return value


def _missing(value: Any, path: list[str], depth: int) -> str:
    if depth == 0:
        names = sorted(name for name in value if not name.startswith("__"))
        return f"there is no stored field {path[0]!r}, only {', '.join(map(repr, names)) or 'none'}"
    if isinstance(value, list):
        return f"{_shown(path)}: {_shown(path[:depth])} has {len(value)} items, [{path[depth]}] does not exist"
    return f"{_shown(path)}: {_shown(path[:depth])} has no {path[depth]!r}"


def _shown(path: list[str]) -> str:
    return path[0] + "".join(f"[{key}]" for key in path[1:])


class FieldMap:
    """A field map: `stored` are the stored fields that it reads; calling it returns the fields of a sample."""

    def __init__(self, expressions: Mapping[str, str]) -> None:
        for name, expression in expressions.items():
            if not isinstance(expression, str):
                raise ValueError(f"field_map: {name} is {expression!r}, expected a text such as 'json[caption],txt'")
        self._fields = {name: split_field_access(expression) for name, expression in expressions.items()}
        self.names = frozenset(self._fields)
        self.stored = frozenset(path[0] for alternatives in self._fields.values() for path in alternatives)

    def __call__(self, sample: dict[str, Any]) -> dict[str, Any]:
        """Return {field: value} of a sample {stored field: decoded value}; FieldAccessError names the field."""
        values = {}
        for name, alternatives in self._fields.items():
            try:
                values[name] = field_access(sample, alternatives)
            except FieldAccessError as error:
                raise FieldAccessError(f"field {name!r}: {error}") from None
        return values
