"""The folder `.nv-meta` of a WebDataset that Megatron-Energon reads: counts, splits, sample type, index, uuid.

`.info.json` holds the samples of each shard, in the order of their numbers; `split.yaml` which shards belong to which
part; `dataset.yaml` what a sample is; `index.sqlite` (see `nvmeta_sqlite`) where each sample and each of its parts is.
Folders are given as the dataset's own, the one `.nv-meta` is in.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import yaml

from fastpack.errors import FormatError, JobError
from fastpack.io import AnyPath, AtomicFile, PathLike, as_path, read_start
from fastpack.io.parsing import ParseError, TextLoader, ValueLoader, parse_json, parse_yaml
from fastpack.webdataset import braces
from fastpack.webdataset.metadata_paths import FOLDER, index_path, meta_path
from fastpack.webdataset.sample_index.reader import SampleIndex, SampleRow
from fastpack.webdataset.sample_index.sqlite_writer import DuplicateKeys, IndexWriter, write_sample_index
from fastpack.webdataset.sample_index.staging import WalkedShard

__all__ = [
    "DATASET_CONFIG",
    "ENERGON_VERSION",
    "FOLDER",
    "SPLIT_CONFIG",
    "DuplicateKeys",
    "IndexWriter",
    "NotPrepared",
    "SampleIndex",
    "SampleRow",
    "Split",
    "WalkedShard",
    "check_folder",
    "index_path",
    "is_prepared",
    "make_folder",
    "meta_path",
    "read_dataset_yaml",
    "read_info",
    "read_split",
    "read_version",
    "read_yaml",
    "select_splits",
    "write_dataset_yaml",
    "write_info",
    "write_sample_index",
    "write_split",
    "write_uuid",
]

ENERGON_VERSION = "7.4.1"  # whose files these are
MAX_BYTES = 1 << 28  # .info.json of some million shards
_INFO, _LEGACY_INFO = ".info.json", ".info.yaml"
SPLIT_CONFIG, DATASET_CONFIG = "split.yaml", "dataset.yaml"  # default names in `.nv-meta`
_SPLIT, _SPLIT_JSON = SPLIT_CONFIG, "split.json"


class NotPrepared(FileNotFoundError, ValueError):
    """The folder has no `.info.json` (Energon raises a ValueError here)."""


class Split(NamedTuple):
    """Which shards belong to which part, and what is left out: shards, and samples as `<shard>/<key>`."""

    parts: dict[str, list[str]]
    exclude: list[str]


def make_folder(folder: PathLike) -> AnyPath:
    """Make `.nv-meta`, if it is not there, and return it. JobError for a link: what it leads to is somebody else's."""
    path = meta_path(folder)
    check_folder(path)
    path.mkdir(exist_ok=True)
    return path


def check_folder(path: AnyPath) -> None:
    """JobError where `.nv-meta`, or another folder that fastpack makes, is a link: nothing is written through it."""
    if path.is_symlink():
        target = os.readlink(os.fspath(path))
        raise JobError(f"{path} is a link to {target}, through which nothing is written: put the folder in its place")


def is_prepared(folder: PathLike) -> bool:
    """Whether the folder has the counts of its shards, of today or in YAML as before Energon 7."""
    return meta_path(folder, _INFO).is_file() or meta_path(folder, _LEGACY_INFO).is_file()


def read_info(folder: PathLike) -> dict[str, int]:
    """Samples of each shard, by its path relative to the folder; the position in the dict is its tar_file_id.

    Reads `.info.json`, else the older `.info.yaml`. Raises NotPrepared (a FileNotFoundError and ValueError) where there
    is neither, FormatError for a file that does not hold counts.
    """
    for name in (_INFO, _LEGACY_INFO):
        path = meta_path(folder, name)
        if path.is_file():
            tree = _load(path)
            counts = tree.get("shard_counts") if isinstance(tree, dict) else None
            if not isinstance(counts, dict):
                raise FormatError(path, 0, _kind(counts), "a mapping shard_counts of shards to numbers of samples")
            return {_shard_name(path, shard): _count(path, shard, count) for shard, count in counts.items()}
    raise NotPrepared(f"{os.fspath(folder)} is not prepared: no {FOLDER}/{_INFO} there (`fastpack prepare` writes it)")


def read_version(folder: PathLike) -> str | None:
    """The version of Energon that `.info.json` or `.info.yaml` names; None where it names none. FormatError."""
    path = next((path for path in (meta_path(folder, _INFO), meta_path(folder, _LEGACY_INFO)) if path.is_file()), None)
    tree = None if path is None else _load(path)
    version = tree.get("energon_version") if isinstance(tree, dict) else None
    return None if version is None else str(version)


def read_split(folder: PathLike, name: str = _SPLIT) -> Split:
    """The parts of the split file `name` (`.yaml` or `.json`), braces expanded, and the exclusions.

    `split.yaml` that is not there is looked for as `split.json`. Raises FileNotFoundError, FormatError.
    """
    path = meta_path(folder, name)
    if name == _SPLIT and not path.exists():
        older = meta_path(folder, _SPLIT_JSON)
        path = older if older.exists() else path
    tree = _load(path, texts_only=True)
    parts = tree.get("split_parts") if isinstance(tree, dict) else None
    if not isinstance(parts, dict):
        raise FormatError(path, 0, _kind(parts), "a mapping split_parts of parts to lists of shards")
    exclude = _expanded(path, "exclude", tree.get("exclude"))
    return Split({part: _expanded(path, part, shards) for part, shards in parts.items()}, exclude)


def select_splits(path: PathLike, splits: Mapping[str, list[str]], names: Sequence[str] | None) -> dict[str, list[str]]:
    """The splits with these names (None: all) of the split file `path`; ValueError for a name that it lacks."""
    unknown = next((name for name in names or () if name not in splits), None)
    if unknown is not None:
        known = ", ".join(map(repr, splits)) or "none"
        raise ValueError(f"{os.fspath(path)} has no split {unknown!r}, only {known}")
    return {name: splits[name] for name in (splits if names is None else names)}


def read_dataset_yaml(folder: PathLike, name: str = "dataset.yaml") -> dict[str, Any]:
    """The mapping that says what a sample is: sample_type, field_map or sample_loader and part_filter, or a class.

    Raises FileNotFoundError, FormatError.
    """
    return read_yaml(meta_path(folder, name))


def read_yaml(path: PathLike) -> dict[str, Any]:
    """The mapping that a YAML file of a user holds, nothing in it run; FileNotFoundError, FormatError."""
    tree = _load(as_path(path))
    if not isinstance(tree, dict) or not all(isinstance(key, str) for key in tree):
        raise FormatError(path, 0, _kind(tree), "a mapping")
    return tree


def write_info(folder: PathLike, counts: Mapping[str, int], mode: int | None = None) -> None:
    """Write `.info.json`, and `.info.yaml` anew where there is one, byte for byte as Energon does."""
    tree = {"energon_version": ENERGON_VERSION, "shard_counts": dict(counts)}
    _write(meta_path(folder, _INFO), json.dumps(tree, indent=2), mode)
    legacy = meta_path(folder, _LEGACY_INFO)
    if legacy.is_file():
        _write(legacy, yaml.dump(tree), mode)


def write_split(
    folder: PathLike,
    parts: Mapping[str, Sequence[str]],
    exclude: Sequence[str] = (),
    name: str = _SPLIT,
    mode: int | None = None,
) -> None:
    """Write a split file from lists of shards, runs of which are written as one expression each."""
    tree = {
        "split_parts": {part: braces.collapse(shards) for part, shards in parts.items()},
        "exclude": braces.collapse(exclude),
    }
    text = json.dumps(tree, indent=2) if name.endswith(".json") else yaml.dump(tree, sort_keys=False)
    _write(meta_path(folder, name), text, mode)


def write_dataset_yaml(
    folder: PathLike, definition: Mapping[str, Any], name: str = "dataset.yaml", mode: int | None = None
) -> None:
    """Write what a sample is."""
    _write(meta_path(folder, name), yaml.dump(dict(definition), sort_keys=False), mode)


def write_uuid(folder: PathLike, mode: int | None = None) -> None:
    """Write a new random `index.uuid`: what was made from an older index (join caches) is then not used again."""
    _write(meta_path(folder, "index.uuid"), str(uuid.uuid4()), mode)


def _load(path: AnyPath, texts_only: bool = False) -> Any:
    data = read_start(path, MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise FormatError(path, MAX_BYTES, "more bytes", f"at most {MAX_BYTES}")
    try:
        if path.suffix == ".json":
            return parse_json(data)
        return parse_yaml(data, TextLoader if texts_only else ValueLoader)
    except ParseError as error:
        raise FormatError(path, error.offset, str(error), "a file that can be parsed") from error


def _expanded(path: AnyPath, part: str, shards: Any) -> list[str]:
    if shards in (None, ""):
        return []
    if not isinstance(shards, list) or not all(isinstance(shard, str) for shard in shards):
        raise FormatError(path, 0, f"{_kind(shards)} under {part}", "a list of shards")
    try:
        return braces.expand_all(shards)
    except ValueError as error:
        raise FormatError(path, 0, f"{error} under {part}", "brace expressions") from error


def _shard_name(path: AnyPath, shard: Any) -> str:
    if not isinstance(shard, str):
        raise FormatError(path, 0, repr(shard), "the path of a shard")
    return shard


def _count(path: AnyPath, shard: str, count: Any) -> int:
    if not isinstance(count, int) or isinstance(count, bool) or count < 0:
        raise FormatError(path, 0, f"{count!r} for {shard}", "a number of samples")
    return count


def _kind(value: Any) -> str:
    return "nothing" if value is None else type(value).__name__


def _write(path: AnyPath, text: str, mode: int | None) -> None:
    check_folder(path.parent)
    with AtomicFile(path, follow=False) as file:
        file.write(text.encode())
        if mode is not None:
            file.set_mode(mode)
