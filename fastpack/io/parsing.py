"""Parsing of YAML and JSON that users write: no code is run, and every problem is one `ParseError`."""

from __future__ import annotations

import json
from typing import Any

import yaml
from yaml.composer import ComposerError
from yaml.constructor import ConstructorError
from yaml.reader import ReaderError

MAX_YAML_BYTES = 16 << 20  # a minute of PyYAML's time for each 2 MiB
MAX_NUMBER = 1000  # characters: PyYAML's time for 1:59:59:... grows with their square
MAX_KEYS = 10_000  # of a mapping that merges others (<<): merges of merges multiply
# Other errors that PyYAML raises: for a date that does not exist, `!!int ''`, `!!bool x`, 1:1:...:1.5
_OTHER_ERRORS = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)


_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")


class ParseError(ValueError):
    """Raised for a text that cannot be parsed; offset: position in bytes if known, else 0."""

    def __init__(self, reason: str, offset: int) -> None:
        self.offset = offset
        super().__init__(reason)

    def __reduce__(self) -> tuple[type[ParseError], tuple[str, int]]:
        return type(self), (str(self), self.offset)


class NoAliases:
    """A mixin for PyYAML loaders that refuses aliases, with which a short file can expand to any size."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):  # type: ignore[attr-defined]
            mark = self.peek_event().start_mark  # type: ignore[attr-defined]
            raise ComposerError(None, None, "found an alias; aliases are refused", mark)
        return super().compose_node(parent, index)  # type: ignore[misc]


class LimitedLoader(yaml.SafeLoader):
    """PyYAML's safe loader, which refuses numbers and merges that take much time or memory."""

    def construct_scalar(self, node: Any) -> Any:
        if node.tag in _NUMBERS and len(node.value) > MAX_NUMBER:
            found = f"found a number of {len(node.value)} characters, expected at most {MAX_NUMBER}"
            raise ConstructorError(None, None, found, node.start_mark)
        return super().construct_scalar(node)

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        merged = [value for key, value in node.value if key.tag == "tag:yaml.org,2002:merge"]
        mappings = [
            mapping
            for value in merged
            for mapping in (value.value if isinstance(value, yaml.SequenceNode) else [value])
        ]
        n_keys = len(node.value)
        for mapping in mappings:
            if isinstance(mapping, yaml.MappingNode):
                self.flatten_mapping(mapping)
                n_keys += len(mapping.value)
            if n_keys > MAX_KEYS:
                found = f"found a mapping that merges (<<) more than {MAX_KEYS} keys"
                raise ConstructorError(None, None, found, node.start_mark)
        super().flatten_mapping(node)


class ValueLoader(NoAliases, LimitedLoader):
    """`LimitedLoader` without aliases."""


class TextLoader(NoAliases, yaml.BaseLoader):
    """A loader that reads all scalars as strings, so that a name may be `1` or `yes`; aliases are refused."""


def parse_yaml(data: bytes, loader: Any = ValueLoader) -> Any:
    """Parse YAML of at most 16 MiB; raises ParseError."""
    if len(data) > MAX_YAML_BYTES:
        raise ParseError(f"found {len(data):,} bytes of YAML, expected at most {MAX_YAML_BYTES:,}", MAX_YAML_BYTES)
    try:
        return yaml.load(data, Loader=loader)
    except (yaml.YAMLError, *_OTHER_ERRORS) as error:
        raise ParseError(_reason(error), _yaml_offset(data, error)) from error


def parse_json(data: bytes) -> Any:
    """Parse JSON as json.loads does; raises ParseError."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        offset = 0
        if isinstance(error, json.JSONDecodeError):
            codec = json.detect_encoding(data)
            offset = len(error.doc[: error.pos].encode(codec, "surrogatepass"))
        elif isinstance(error, UnicodeDecodeError):
            offset = error.start
        raise ParseError(_reason(error), min(offset, len(data))) from error


def _reason(error: BaseException) -> str:
    own = isinstance(error, (yaml.YAMLError, ValueError))
    return " ".join((str(error) if own else f"{type(error).__name__}: {error}").split())


def _yaml_offset(data: bytes, error: BaseException) -> int:
    """Return the offset in bytes: PyYAML counts characters, except for bytes that are not a character."""
    if isinstance(error, ReaderError) and error.encoding != "unicode":
        return int(error.position)
    mark = getattr(error, "problem_mark", None)
    n_characters = error.position if isinstance(error, ReaderError) else getattr(mark, "index", 0)
    codec = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}.get(data[:2], "utf-8")
    return min(len(data.decode(codec, "replace")[:n_characters].encode(codec, "replace")), len(data))
