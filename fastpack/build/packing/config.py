"""The configuration of a pack run, in the shape Modalities gives it, checked and typed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fastpack.build.packing import yaml_config
from fastpack.files import PathLike
from fastpack.formats.jsonl import default_index_path

# They size the peer's queues. fastpack splits its work by bytes, so it checks them and has no other use for them.
QUEUE_SETTINGS = ("processing_batch_size", "raw_samples_queue_size", "processed_samples_queue_size")


class InputNotFound(FileNotFoundError, ValueError):
    """A file the configuration names is not there (FileNotFoundError; Modalities' check raises a ValueError)."""


@dataclass(frozen=True)
class TokenizerConfig:
    """Which tokenizer (`variant_key`) and its options (`config`, checked by the tokenizer itself)."""

    variant_key: str
    config: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class PackSettings:
    """Paths are relative to the working directory; `num_cpus` is a number of tokenising processes."""

    src_path: str
    dst_path: str
    index_path: str
    jq_pattern: str
    num_cpus: int
    eod_token: str


@dataclass(frozen=True)
class PackConfig:
    settings: PackSettings
    tokenizer: TokenizerConfig


def load_pack_config(config: PathLike | Mapping[str, Any]) -> PackConfig:
    """The checked configuration in a YAML file, or in a mapping of the same shape.

    Unknown keys at the top and under `settings` are ignored, as Modalities does. A mapping may leave out the three
    queue sizes, which have no effect here; a file that is to run in both systems may not.

    Raises ValueError naming the key for a value that is missing or wrong; InputNotFound (a FileNotFoundError and a
    ValueError) for a source or an index that is not there.
    """
    if isinstance(config, Mapping):
        tree, is_file = yaml_config.resolve(config), False
    else:
        tree, is_file = yaml_config.load_yaml(config), True
    settings = _mapping(tree, "settings")
    for name in QUEUE_SETTINGS:
        if is_file or name in settings:
            _positive(settings, name)
    return PackConfig(_settings(settings), _tokenizer(_mapping(tree, "tokenizer")))


def _settings(settings: Mapping[str, Any]) -> PackSettings:
    src_path = _path(settings, "src_path")
    if not os.path.isfile(src_path):
        raise InputNotFound(f"settings.src_path: {src_path} is not there (or is not a file)")
    if settings.get("dst_path") is None:
        raise ValueError("settings.dst_path is missing: it names the packed file to write")
    given = settings.get("index_path") is not None
    index_path = _path(settings, "index_path") if given else str(default_index_path(src_path))
    if not os.path.isfile(index_path):
        raise InputNotFound(
            f"Index file does not exist: {index_path}. Create it with `fastpack index {src_path}"
            + (f" --index-path {index_path}`" if given else "`")
        )
    return PackSettings(
        src_path=src_path,
        dst_path=_path(settings, "dst_path"),
        index_path=index_path,
        jq_pattern=_text(settings, "jq_pattern"),
        num_cpus=_positive(settings, "num_cpus") if "num_cpus" in settings else os.cpu_count() or 1,
        eod_token=_text(settings, "eod_token"),
    )


def _tokenizer(tokenizer: Mapping[str, Any]) -> TokenizerConfig:
    if tokenizer.get("component_key", "tokenizer") != "tokenizer":
        raise ValueError(f"tokenizer.component_key: found {tokenizer['component_key']!r}, expected 'tokenizer'")
    options = tokenizer.get("config")
    if options is not None and not isinstance(options, Mapping):
        raise ValueError(f"tokenizer.config: found {type(options).__name__}, expected a mapping")
    variant_key = tokenizer.get("variant_key")
    if not isinstance(variant_key, str):
        raise ValueError(f"tokenizer.variant_key: found {variant_key!r}, expected the name of a tokenizer")
    return TokenizerConfig(variant_key, dict(options or {}))


def _mapping(tree: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = tree.get(key)
    if not isinstance(value, Mapping):
        raise ValueError(f"{key}: found {'nothing' if value is None else type(value).__name__}, expected a mapping")
    return value


def _text(settings: Mapping[str, Any], key: str) -> str:
    value = settings.get(key)
    if not isinstance(value, str):
        raise ValueError(f"settings.{key}: found {'nothing' if value is None else repr(value)}, expected a string")
    return value


def _path(settings: Mapping[str, Any], key: str) -> str:
    value = settings.get(key)
    path = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(path, str) or not path:
        raise ValueError(f"settings.{key}: found {'nothing' if value is None else repr(value)}, expected a path")
    return path


def _positive(settings: Mapping[str, Any], key: str) -> int:
    value = settings.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        found = "nothing" if value is None else repr(value)
        raise ValueError(f"settings.{key}: found {found}, expected an int of at least 1")
    return value
