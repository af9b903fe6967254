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
from collections.abc import Hashable
from typing import Any

import yaml

from fastpack.io import PathLike, read_start
from fastpack.io.parsing import LimitedLoader, ParseError, parse_yaml
from fastpack.packing.interpolation import resolve

MAX_BYTES = 1 << 20


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
