"""Modalities' configuration of a pack job, a YAML file or a mapping of the same shape, as `PackSettings`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from fastpack.errors import spoken
from fastpack.io import PathLike
from fastpack.packing import yaml_config
from fastpack.packing.settings import PackSettings, find_pack_sources, pack_format
from fastpack.tokenizers.tokenizer_spec import TokenizerSpec

Config: TypeAlias = PathLike | Mapping[str, Any]

# They size Modalities' queues. fastpack divides its work by bytes: it checks these values and does not use them.
QUEUE_SETTINGS = ("processing_batch_size", "raw_samples_queue_size", "processed_samples_queue_size")


@dataclass(frozen=True, kw_only=True)
class ConfigOverrides:
    """Values that replace those of a configuration; None keeps the configuration's value."""

    output: str | None = None
    index_path: str | None = None
    text_pattern: str | None = None
    num_workers: int | None = None
    eos_token: str | None = None
    eos_token_id: int | None = None
    tokenizer: TokenizerSpec | None = None
    split_on: str | None = None


def load_pack_settings(
    config: Config, *, per_source: bool = False, overrides: ConfigOverrides = ConfigOverrides()
) -> PackSettings:
    """Return the validated settings of a YAML file, or of a mapping of the same shape.

    Unknown keys at the top and under `settings` are ignored, as in Modalities. A mapping may omit the three queue
    sizes, which have no effect here; a file may not, so that it also works in Modalities. Beyond Modalities, `src_path`
    may be a list, a directory or a pattern, or compressed; of those, only files with an index next to them are read by
    their index. `dst_path` may be missing with `per_source`.

    Raises ValueError with the key for a value that is missing or wrong, InputNotFound (a FileNotFoundError and a
    ValueError) for a source or an index that does not exist.
    """
    is_mapping = isinstance(config, Mapping)
    tree = yaml_config.resolve(config) if isinstance(config, Mapping) else yaml_config.load_yaml(config)
    settings = _mapping(tree, "settings")
    for name in QUEUE_SETTINGS:
        if not is_mapping or name in settings:
            _positive(settings, name)
    output = overrides.output or (None if settings.get("dst_path") is None else _path(settings, "dst_path"))
    if output is None and not per_source:
        raise ValueError(f"{spoken('settings.dst_path')} is missing: it names the packed file to write")
    index_path = overrides.index_path
    if index_path is None and settings.get("index_path") is not None:
        index_path = _path(settings, "index_path")
    text_pattern = overrides.text_pattern or _text(settings, "jq_pattern")
    has_eos = overrides.eos_token is not None or overrides.eos_token_id is not None
    return PackSettings(
        sources=find_pack_sources(
            _sources(settings), index_path, "require", text_pattern=text_pattern, split_on=overrides.split_on
        ),
        output=output,
        format=pack_format(None if per_source else output),
        per_source=per_source,
        text_pattern=text_pattern,
        num_workers=_num_workers(settings, overrides.num_workers),
        eos_token=overrides.eos_token if has_eos else _text(settings, "eod_token"),
        eos_token_id=overrides.eos_token_id,
        tokenizer=overrides.tokenizer or _tokenizer(_mapping(tree, "tokenizer")),
    )


def _sources(settings: Mapping[str, Any]) -> str | list[str]:
    given = settings.get("src_path")
    if isinstance(given, (list, tuple)):
        return [_path({"src_path": path}, "src_path") for path in given]
    return _path(settings, "src_path")


def _num_workers(settings: Mapping[str, Any], override: int | None) -> int:
    if override is not None:
        return override
    return _positive(settings, "num_cpus") if "num_cpus" in settings else os.cpu_count() or 1


def _tokenizer(tokenizer: Mapping[str, Any]) -> TokenizerSpec:
    if tokenizer.get("component_key", "tokenizer") != "tokenizer":
        raise ValueError(f"tokenizer.component_key: found {tokenizer['component_key']!r}, expected 'tokenizer'")
    options = tokenizer.get("config")
    if options is not None and not isinstance(options, Mapping):
        raise ValueError(f"tokenizer.config: found {type(options).__name__}, expected a mapping")
    variant_key = tokenizer.get("variant_key")
    if not isinstance(variant_key, str):
        raise ValueError(f"tokenizer.variant_key: found {variant_key!r}, expected the name of a tokenizer")
    return TokenizerSpec(variant_key, dict(options or {}))


def _mapping(tree: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = tree.get(key)
    if not isinstance(value, Mapping):
        raise ValueError(f"{key}: found {'nothing' if value is None else type(value).__name__}, expected a mapping")
    return value


def _text(settings: Mapping[str, Any], key: str) -> str:
    value = settings.get(key)
    if not isinstance(value, str):
        raise _wrong(key, value, "a string")
    return value


def _path(settings: Mapping[str, Any], key: str) -> str:
    value = settings.get(key)
    path = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(path, str) or not path:
        raise _wrong(key, value, "a path")
    return path


def _positive(settings: Mapping[str, Any], key: str) -> int:
    value = settings.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise _wrong(key, value, "an int of at least 1")
    return value


def _wrong(key: str, value: object, expected: str) -> ValueError:
    found = "nothing" if value is None else repr(value)
    return ValueError(f"{spoken(f'settings.{key}')}: found {found}, expected {expected}")
