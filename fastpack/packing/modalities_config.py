"""Modalities' configuration of a pack job, a YAML file or a mapping of the same shape, as `PackSettings`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, TypeAlias

from fastpack.errors import spoken
from fastpack.io import PathLike
from fastpack.packing.interpolation import mapping_at, resolve, text_at, wrong_value
from fastpack.packing.output_formats import PackFormat, pack_format
from fastpack.packing.settings import PackSettings, find_pack_sources, output_of
from fastpack.tokenizers.tokenizer_spec import TokenizerSpec

Config: TypeAlias = PathLike | Mapping[str, Any]

# They size Modalities' queues. fastpack divides its work by bytes: it checks these values and does not use them.
QUEUE_SETTINGS = ("processing_batch_size", "raw_samples_queue_size", "processed_samples_queue_size")


def load_pack_settings(
    config: Config,
    *,
    output: PathLike | None = None,
    format: PackFormat | None = None,
    index_path: PathLike | None = None,
    per_source: bool = False,
    split_on: str | None = None,
    **fields: Any,
) -> PackSettings:
    """Return the validated settings of a YAML file, or of a mapping of the same shape.

    output, format, index_path, fields (of `PackSettings`): replace values of the configuration, and set what it does
    not have.

    Unknown keys at the top and under `settings` are ignored, as in Modalities. A mapping may omit the three queue
    sizes, which have no effect here; a file may not, so that it also works in Modalities. Beyond Modalities, `src_path`
    may be a list, a directory or a pattern, or compressed; of those, only files with an index next to them are read by
    their index. `dst_path` may be missing with `per_source`.

    Raises ValueError with the key for a value that is missing or wrong, InputNotFound (a FileNotFoundError and a
    ValueError) for a source or an index that does not exist.
    """
    is_mapping = isinstance(config, Mapping)
    if isinstance(config, Mapping):
        tree = resolve(config)
    else:
        from fastpack.packing.yaml_config import load_yaml  # it imports yaml, in 9 ms

        tree = load_yaml(config)
    settings = mapping_at(tree, "settings")
    for name in QUEUE_SETTINGS:
        if not is_mapping or name in settings:
            _positive(settings, name)
    output = output or _optional_path(settings, "dst_path")
    if output is None and not per_source:
        raise ValueError(f"{spoken('settings.dst_path')} is missing: it names the packed file to write")
    index_path = index_path or _optional_path(settings, "index_path")
    if "text_pattern" not in fields:
        fields["text_pattern"] = text_at(settings, "jq_pattern", "settings.")
    sources = find_pack_sources(
        _sources(settings), index_path, "require", text_pattern=fields["text_pattern"], split_on=split_on
    )
    if "num_workers" not in fields and "num_cpus" in settings:
        fields["num_workers"] = _positive(settings, "num_cpus")
    if "eos_token" not in fields and "eos_token_id" not in fields:
        fields["eos_token"] = text_at(settings, "eod_token", "settings.")
    if "tokenizer" not in fields:
        fields["tokenizer"] = _tokenizer(mapping_at(tree, "tokenizer"))
    written = pack_format(None if per_source else output, format)
    return PackSettings(
        sources=sources,
        output=output_of(output, written, per_source),
        format=written,
        per_source=per_source,
        **fields,
    )


def _sources(settings: Mapping[str, Any]) -> str | list[str]:
    given = settings.get("src_path")
    if isinstance(given, (list, tuple)):
        return [_path({"src_path": path}, "src_path") for path in given]
    return _path(settings, "src_path")


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


def _optional_path(settings: Mapping[str, Any], key: str) -> str | None:
    return None if settings.get(key) is None else _path(settings, key)


def _path(settings: Mapping[str, Any], key: str) -> str:
    value = settings.get(key)
    path = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(path, str) or not path:
        raise wrong_value(f"settings.{key}", value, "a path")
    return path


def _positive(settings: Mapping[str, Any], key: str) -> int:
    value = settings.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise wrong_value(f"settings.{key}", value, "an int of at least 1")
    return value
