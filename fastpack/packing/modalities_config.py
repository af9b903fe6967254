"""The configuration of a pack run, in the shape Modalities gives it, checked and typed."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from fastpack.documents.compressed import is_compressed
from fastpack.documents.raw_index_check import default_index_path, read_raw_index_of
from fastpack.documents.source_paths import InputNotFound, find_sources, is_one_file
from fastpack.errors import DataWarning, StaleIndex, spoken
from fastpack.io import PathLike, is_file
from fastpack.packing import yaml_config

# They size the peer's queues. fastpack splits its work by bytes, so it checks them and has no other use for them.
QUEUE_SETTINGS = ("processing_batch_size", "raw_samples_queue_size", "processed_samples_queue_size")


@dataclass(frozen=True)
class TokenizerConfig:
    """Which tokenizer (`variant_key`) and its options (`config`, checked by the tokenizer itself)."""

    variant_key: str
    config: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Source:
    """A JSON lines file to pack, and its index; None: its lines are found by reading it.

    needs_index: packing fails where the index does not belong to the file as it is now; else it is not used.
    """

    path: str
    index_path: str | None
    needs_index: bool = field(default=False, compare=False)


@dataclass(frozen=True)
class PackSettings:
    """Paths are relative to the working directory; `num_cpus` is a number of tokenising processes.

    dst_path: of the packed file; where each source is packed into a file of its own, the folder of those, or None.
    """

    sources: tuple[Source, ...]
    dst_path: str | None
    jq_pattern: str
    num_cpus: int
    eod_token: str


@dataclass(frozen=True)
class PackConfig:
    settings: PackSettings
    tokenizer: TokenizerConfig


def load_pack_config(config: PathLike | Mapping[str, Any], *, one_output: bool = True) -> PackConfig:
    """The checked configuration in a YAML file, or in a mapping of the same shape.

    Unknown keys at the top and under `settings` are ignored, as Modalities does. A mapping may leave out the three
    queue sizes, which have no effect here; a file that is to run in both systems may not. Beyond Modalities, `src_path`
    may be a list, a directory or a pattern, or compressed (`build.sources`); of those, only files with an index beside
    them are read by it. one_output: `dst_path` must be there.

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
    if one_output and settings.get("dst_path") is None:
        raise ValueError(f"{spoken('settings.dst_path')} is missing: it names the packed file to write")
    return PackConfig(_settings(settings), _tokenizer(_mapping(tree, "tokenizer")))


def _settings(settings: Mapping[str, Any]) -> PackSettings:
    return PackSettings(
        sources=_sources(settings),
        dst_path=None if settings.get("dst_path") is None else _path(settings, "dst_path"),
        jq_pattern=_text(settings, "jq_pattern"),
        num_cpus=_positive(settings, "num_cpus") if "num_cpus" in settings else os.cpu_count() or 1,
        eod_token=_text(settings, "eod_token"),
    )


def _sources(settings: Mapping[str, Any]) -> tuple[Source, ...]:
    given = settings.get("src_path")
    if isinstance(given, (list, tuple)):
        given = [_path({"src_path": path}, "src_path") for path in given]
    else:
        given = _path(settings, "src_path")
    try:
        paths = find_sources(given)
    except InputNotFound as error:
        name = spoken("settings.src_path")
        raise InputNotFound(f"{name}: {error}" if name else str(error)) from None
    named = settings.get("index_path") is not None
    if is_one_file(given) and not is_compressed(paths[0]):
        index_path = _index_of(paths[0], _path(settings, "index_path") if named else None)
        return (Source(paths[0], index_path, needs_index=True),)
    if named:
        raise ValueError(
            f"{spoken('settings.index_path')}: only one source that is not compressed can have its index named"
        )
    return tuple(Source(path, _index_beside(path)) for path in paths)


def check_indexes(config: PackConfig) -> PackConfig:
    """The configuration without the indexes that do not belong to their sources as they are now; warns of each.

    Raises StaleIndex where such an index is needed.
    """
    sources = tuple(map(_with_current_index, config.settings.sources))
    return replace(config, settings=replace(config.settings, sources=sources))


def _with_current_index(source: Source) -> Source:
    if source.index_path is None:
        return source
    try:
        read_raw_index_of(source.path, source.index_path)
    except StaleIndex as error:
        if source.needs_index:
            raise
        warnings.warn(f"{error}; the lines of {source.path} are read without it", DataWarning, stacklevel=4)
        return replace(source, index_path=None)
    return source


def _index_of(path: str, named: str | None) -> str:
    index_path = named or str(default_index_path(path))
    if not is_file(index_path):
        raise InputNotFound(
            f"Index file does not exist: {index_path}. Create it with `fastpack index {path}"
            + (f" --index-path {index_path}`" if named else "`")
        )
    return index_path


def _index_beside(path: str) -> str | None:
    index_path = str(default_index_path(path))
    return index_path if not is_compressed(path) and is_file(index_path) else None


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
        raise ValueError(
            f"{spoken(f'settings.{key}')}: found {'nothing' if value is None else repr(value)}, expected a string"
        )
    return value


def _path(settings: Mapping[str, Any], key: str) -> str:
    value = settings.get(key)
    path = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(path, str) or not path:
        raise ValueError(
            f"{spoken(f'settings.{key}')}: found {'nothing' if value is None else repr(value)}, expected a path"
        )
    return path


def _positive(settings: Mapping[str, Any], key: str) -> int:
    value = settings.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise _wrong(key, value, "an int of at least 1")
    return value


def _wrong(key: str, value: object, expected: str) -> ValueError:
    found = "nothing" if value is None else repr(value)
    return ValueError(f"{spoken(f'settings.{key}')}: found {found}, expected {expected}")
