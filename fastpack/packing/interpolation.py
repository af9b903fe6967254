"""OmegaConf's interpolation in the settings of a configuration, and typed access to them: no YAML is read here."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Hashable, Mapping
from typing import Any, TypeAlias

from fastpack.errors import spoken

MAX_NODES = 10_000  # aliases count as often as they are used, which limits alias bombs
MAX_DEPTH = 50
INTEGER_VARIABLES = ("LOCAL_RANK", "RANK", "WORLD_SIZE")

Path: TypeAlias = tuple[Hashable, ...]


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
