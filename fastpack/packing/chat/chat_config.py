"""Modalities' configuration of instruction tuning, validated and typed."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastpack.documents.compressed import SUFFIXES
from fastpack.documents.source_paths import InputNotFound
from fastpack.io import PathLike, map_bytes
from fastpack.packing.interpolation import mapping_at, text_at, wrong_value
from fastpack.packing.yaml_config import load_yaml

PARTITIONS = ("train", "val", "test")
HASH_DIGITS = 7


@dataclass(frozen=True)
class ChatConfig:
    """A configuration of instruction tuning. Paths are relative to the working directory.

    weights: percent of the rows for train, val and test, together 100. digest: the first 7 hexadecimal digits of the
    SHA-256 of the configuration's bytes, which is in every file name.
    """

    path: str
    content: bytes
    src_path: Path
    dst_path: Path
    messages_key: str
    weights: tuple[int, int, int]
    seed: int
    pbin_config_path: Path
    role_mapping: Mapping[str, str]
    template: str
    template_data: Mapping[str, Any]

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.content).hexdigest()[:HASH_DIGITS]


def load_chat_config(path: PathLike) -> ChatConfig:
    """Return the validated configuration of a YAML file.

    Unknown keys are ignored, as in Modalities. Raises FileNotFoundError for a missing file, ValueError with file and
    key for a value that is missing or wrong, InputNotFound (both of them) for a missing file that it names.
    """
    tree = load_yaml(path)
    try:
        return _checked(os.fspath(path), tree)
    except InputNotFound:
        raise
    except ValueError as error:
        raise ValueError(f"{os.fspath(path)}: {error}") from None


def _checked(path: str, tree: Mapping[str, Any]) -> ChatConfig:
    settings = mapping_at(tree, "settings")
    split = mapping_at(settings, "split_config", "settings.")
    roles = _roles(mapping_at(tree, "instruction_data_transformation"))
    return ChatConfig(
        path=path,
        content=map_bytes(path).tobytes(),
        src_path=_existing(settings, "src_path"),
        dst_path=_target(settings),
        messages_key=text_at(settings, "messages_key", "settings."),
        weights=_weights(mapping_at(split, "splitting", "settings.split_config.")),
        seed=_integer(split, "seed", "settings.split_config."),
        pbin_config_path=_existing(settings, "pbin_creation_config_file_path"),
        role_mapping=roles,
        template=text_at(tree, "jinja2_chat_template"),
        template_data=_template_data(tree),
    )


def _roles(transformation: Mapping[str, Any]) -> Mapping[str, str]:
    roles = mapping_at(transformation, "role_mapping", "instruction_data_transformation.")
    for role, name in roles.items():
        if not isinstance(role, str) or not isinstance(name, str):
            raise ValueError(f"role_mapping: found {role!r}: {name!r}, expected strings (quote them)")
    return roles


def _template_data(tree: Mapping[str, Any]) -> Mapping[str, Any]:
    data = mapping_at(tree, "chat_template_data")
    for key in data:
        if not isinstance(key, str):
            raise ValueError(f"chat_template_data: found the key {key!r}, expected a string (quote it)")
    return data


def _weights(splitting: Mapping[str, Any]) -> tuple[int, int, int]:
    train, val, test = (_integer(splitting, name, "settings.split_config.splitting.") for name in PARTITIONS)
    if train + val + test != 100 or min(train, val, test) < 0:
        raise ValueError(
            f"settings.split_config.splitting: found {train}, {val}, {test}, expected percentages that sum to 100"
        )
    return train, val, test


def _target(settings: Mapping[str, Any]) -> Path:
    path = Path(text_at(settings, "dst_path", "settings."))
    if not path.name or path.suffix in (".idx", ".pbin", *SUFFIXES):
        raise ValueError(f"settings.dst_path: found {os.fspath(path)!r}, expected the name of a JSON Lines file")
    return path


def _existing(settings: Mapping[str, Any], key: str) -> Path:
    path = Path(text_at(settings, key, "settings."))
    if not path.is_file():
        raise InputNotFound(f"settings.{key}: {path} does not exist or is not a file")
    return path


def _integer(tree: Mapping[str, Any], key: str, prefix: str) -> int:
    """Return an integer, also one written as 50.0 or "50", as Modalities' validation accepts."""
    value = tree.get(key)
    try:
        number = int(value) if isinstance(value, (int, float, str)) else None
    except (ValueError, OverflowError):
        number = None
    if number is None or (isinstance(value, float) and number != value):
        raise wrong_value(f"{prefix}{key}", value, "an integer")
    return number
