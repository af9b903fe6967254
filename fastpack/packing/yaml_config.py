"""YAML files with OmegaConf's interpolation, as Modalities reads them: `${a.b}`, `${.sibling}`, `${resolver:arg}`.

OmegaConf itself is not used. Measured with OmegaConf 2.4.0: the golden files give the same trees, but a program that
reads one configuration takes 0.53 s instead of 0.33 s, and almost every configuration of Modalities has a `${...}`. It
has no limit on what interpolations expand to: 540 bytes that double a text 24 times take 520 MB and twice as much for
each further doubling, where `MAX_NODES` ends the work here. Its resolvers are global: those of Modalities have the same
names, so that a program that uses both would have one replaced by the other.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Hashable, Mapping
from typing import Any, TypeAlias

import yaml

from fastpack.errors import spoken
from fastpack.io import PathLike, read_start
from fastpack.io.parsing import LimitedLoader, ParseError, parse_yaml

MAX_BYTES = 1 << 20
MAX_NODES = 10_000  # aliases count as often as they are used, which limits alias bombs
MAX_DEPTH = 50
INTEGER_VARIABLES = ("LOCAL_RANK", "RANK", "WORLD_SIZE")

Path: TypeAlias = tuple[Hashable, ...]


class _Loader(LimitedLoader):
    """Reject duplicate keys; 1e5 is a number and 2024-01-01 a string, as in OmegaConf."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Hashable] = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, Hashable) and key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"key {key!r} occurs twice", node.start_mark)
            if isinstance(key, Hashable):  # otherwise rejected below
                seen.add(key)
        return super().construct_mapping(node, deep=deep)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?[0-9]+(_[0-9]+)*(\.[0-9_]*)?[eE][-+]?[0-9]+$"),  # PyYAML alone requires a point and a sign
    list("-+0123456789"),
)
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in _Loader.yaml_implicit_resolvers.items()
}


def load_yaml(path: PathLike, known_as: PathLike | None = None) -> dict[str, Any]:
    """Return the mapping in a YAML file with all interpolations resolved.

    known_as: the path that interpolations of the file's own path give (default: `path`).

    Raises FileNotFoundError, and ValueError with the file's name for a file that is not a mapping, is over 1 MiB,
    expands to more than 10,000 values, or refers to a missing value.
    """
    text = read_start(path, MAX_BYTES + 1)
    if len(text) > MAX_BYTES:
        raise ValueError(f"{os.fspath(path)}: a configuration must not exceed {MAX_BYTES} bytes")
    try:
        tree = parse_yaml(text, _Loader)
    except ParseError as error:
        raise ValueError(f"{os.fspath(path)}: not a valid YAML file: {error}") from error
    if not isinstance(tree, dict):
        raise ValueError(f"{os.fspath(path)}: found {type(tree).__name__}, expected a mapping with settings")
    try:
        return resolve(tree, config_path=os.fspath(path if known_as is None else known_as))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{os.fspath(path)}: {error}") from error


def resolve(tree: Mapping[str, Any], config_path: str | None = None) -> dict[str, Any]:
    """Return a copy of `tree` with every interpolation replaced by its value."""
    resolver = _Resolver(tree, config_path)
    return {key: resolver.value(child, (key,), 1) for key, child in tree.items()}


class _Resolver:
    def __init__(self, tree: Mapping[str, Any], config_path: str | None) -> None:
        self.tree = tree
        self.config_path = config_path
        self.n_nodes = 0

    def value(self, node: Any, path: Path, depth: int) -> Any:
        self.n_nodes += 1
        if self.n_nodes > MAX_NODES or depth > MAX_DEPTH:
            raise ValueError(f"the configuration expands to more than {MAX_NODES} values or {MAX_DEPTH} levels")
        if isinstance(node, Mapping):
            return {key: self.value(child, (*path, key), depth + 1) for key, child in node.items()}
        if isinstance(node, list):
            return [self.value(child, (*path, i), depth + 1) for i, child in enumerate(node)]
        if isinstance(node, str) and "${" in node:
            return self._expand(node, path, depth)
        return node

    def _expand(self, text: str, path: Path, depth: int) -> Any:
        """Replace each `${...}` in `text`; an interpolation that is the whole text keeps its type."""
        parts: list[Any] = []
        position = 0
        while (start := text.find("${", position)) >= 0:
            if text[:start].endswith("\\"):
                parts.append(text[position : start - 1] + "${")
                position = start + 2
                continue
            end = _closing(text, start)
            if start > position:
                parts.append(text[position:start])
            parts.append(self._evaluate(text[start + 2 : end], path, depth + 1))
            position = end + 1
        if position < len(text):
            parts.append(text[position:])
        return parts[0] if len(parts) == 1 else "".join(map(str, parts))

    def _evaluate(self, inner: str, path: Path, depth: int) -> Any:
        expression = str(self._expand(inner, path, depth)) if "${" in inner else inner
        name, colon, argument = expression.partition(":")
        if not colon:
            return self._reference(expression.strip(), path, depth)
        resolvers: dict[str, Callable[[str], Any]] = {
            "oc.env": _environment,
            "node_env": _node,
            "cuda_env": _cuda,
            "modalities_env": self._modalities,
        }
        if name.strip() not in resolvers:
            raise ValueError(f"${{{inner}}}: unknown resolver {name!r} (known: {', '.join(resolvers)})")
        return resolvers[name.strip()](argument.strip())

    def _reference(self, expression: str, path: Path, depth: int) -> Any:
        up = len(expression) - len(expression.lstrip("."))
        keys: Path = path[:-up] if 0 < up <= len(path) else ()
        node: Any = self.tree
        target = (*keys, *re.findall(r"[^.\[\]]+", expression))
        for key in target:
            if isinstance(node, list) and str(key).isdigit() and int(str(key)) < len(node):
                node = node[int(str(key))]
            elif isinstance(node, Mapping) and key in node:
                node = node[key]
            else:
                raise ValueError(f"${{{expression}}}: the configuration has no {key!r}")
        return self.value(node, target, depth)

    def _modalities(self, name: str) -> str:
        if self.config_path is None:
            raise ValueError(f"${{modalities_env:{name}}}: unknown name (known: none without a file)")
        if name == "config_file_path":
            return self.config_path
        if name == "config_folder_path":
            return os.path.dirname(self.config_path) or "."
        raise ValueError(f"${{modalities_env:{name}}}: unknown name (known: config_file_path, config_folder_path)")


def mapping_at(tree: Mapping[str, Any], key: str, prefix: str = "") -> Mapping[str, Any]:
    """Return the mapping under `key`; prefix: of the key in messages."""
    value = tree.get(key)
    if not isinstance(value, Mapping):
        raise wrong_value(f"{prefix}{key}", value, "a mapping")
    return value


def text_at(tree: Mapping[str, Any], key: str, prefix: str = "") -> str:
    """Return the string under `key`; prefix: of the key in messages."""
    value = tree.get(key)
    if not isinstance(value, str):
        raise wrong_value(f"{prefix}{key}", value, "a string")
    return value


def wrong_value(name: str, value: object, expected: str) -> ValueError:
    """Return the error for a value that is missing or wrong."""
    found = "nothing" if value is None else repr(value)[:200]
    return ValueError(f"{spoken(name)}: found {found}, expected {expected}")


def _closing(text: str, start: int) -> int:
    depth = 0
    for i in range(start, len(text)):
        if text.startswith("${", i):
            depth += 1
        elif text[i] == "}":
            depth -= 1
            if depth == 0:
                return i
    raise ValueError(f"{text!r}: an unterminated interpolation")


def _environment(argument: str) -> str | None:
    name, comma, default = argument.partition(",")
    if name.strip() in os.environ:
        return os.environ[name.strip()]
    if not comma:
        raise ValueError(f"${{oc.env:{argument}}}: the environment variable {name.strip()} is not set")
    default = default.strip()
    if len(default) >= 2 and default[0] == default[-1] and default[0] in "'\"":
        return default[1:-1]
    return None if default == "null" else default


def _node(name: str) -> int:
    if name != "num_cpus":
        raise ValueError(f"${{node_env:{name}}}: only num_cpus is known")
    return os.cpu_count() or 1


def _cuda(name: str) -> int | str | None:
    value = os.environ.get(name)
    if name not in INTEGER_VARIABLES:
        return value
    try:
        return int(value or "")
    except ValueError:
        raise ValueError(f"${{cuda_env:{name}}}: the environment variable holds {value!r}, expected an int") from None
