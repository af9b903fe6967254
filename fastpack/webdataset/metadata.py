"""The `.nv-meta` folder of a WebDataset, which Megatron-Energon reads: counts, splits, sample type, uuid.

`.info.json` holds the number of samples of each shard, in tar_file_id order. `split.yaml` assigns shards to splits.
`dataset.yaml` describes the sample type. `index.sqlite` (see `sample_index`) locates each sample and each of its
fields. Every function takes the dataset's own folder, which contains `.nv-meta`.

Importing this module takes under 1 ms: YAML (30 ms) is imported when a file is read.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from fastpack.errors import FormatError, JobError
from fastpack.io import AnyPath, AtomicFile, PathLike, RemotePath, as_path, read_start

FOLDER = ".nv-meta"
ENERGON_VERSION = "7.4.1"  # the version whose files are written
MAX_BYTES = 1 << 28  # holds .info.json of several million shards
_INFO, _LEGACY_INFO = ".info.json", ".info.yaml"  # the second was written before Energon 7
SPLIT_CONFIG, DATASET_CONFIG = "split.yaml", "dataset.yaml"  # default names in `.nv-meta`


class NotPrepared(FileNotFoundError, ValueError):
    """The dataset has no ``.info.json`` (Energon raises a ValueError here)."""


class Split(NamedTuple):
    """The shards of each split, and the exclusions: shards, and samples as `<shard>/<key>`."""

    shards: dict[str, list[str]]
    exclude: list[str]


def meta_path(folder: PathLike, name: str = "") -> AnyPath:
    """Return the path of a file in `.nv-meta`, or of `.nv-meta` itself."""
    return as_path(folder) / FOLDER / name if name else as_path(folder) / FOLDER


def index_path(folder: PathLike) -> AnyPath:
    """Return the path of the dataset's `index.sqlite`."""
    return meta_path(folder, "index.sqlite")


def make_folder(folder: PathLike) -> AnyPath:
    """Make `.nv-meta` with the permissions of its parent, and return its path. Raises JobError if it is a link."""
    path = meta_path(folder)
    check_folder(path)
    path.mkdir(exist_ok=True)
    if not isinstance(path, RemotePath):
        with suppress(OSError):  # another user's folder
            path.chmod((os.stat(folder).st_mode | 0o700) & 0o7777)
    return path


def check_folder(path: AnyPath) -> None:
    """Raise JobError if a folder that fastpack writes to is a link, whose target may belong to someone else."""
    if path.is_symlink():
        target = os.readlink(os.fspath(path))
        raise JobError(f"{path} is a link to {target}; nothing is written through it. Use a folder.")


def is_prepared(folder: PathLike) -> bool:
    """Return whether the folder has `.info.json`, or `.info.yaml` as written before Energon 7."""
    return _info_path(folder) is not None


def _info_path(folder: PathLike) -> AnyPath | None:
    paths = (meta_path(folder, name) for name in (_INFO, _LEGACY_INFO))
    return next((path for path in paths if path.is_file()), None)


def read_info(folder: PathLike) -> dict[str, int]:
    """Return the number of samples by shard path (relative to the folder), in tar_file_id order.

    Reads `.info.json`, else the older `.info.yaml`. Raises NotPrepared (a FileNotFoundError and ValueError) if neither
    exists, FormatError for a file without counts.
    """
    path = _info_path(folder)
    if path is None:
        raise NotPrepared(f"{os.fspath(folder)} is not prepared: it has no {FOLDER}/{_INFO}. Run `fastpack prepare`.")
    counts: dict[str, int] = _mapping_in(path, _load(path), "shard_counts", "of shards to numbers of samples")
    for shard, count in counts.items():
        if not isinstance(shard, str):
            raise FormatError(path, 0, repr(shard), "the path of a shard")
        if not isinstance(count, int) or isinstance(count, bool) or count < 0:
            raise FormatError(path, 0, f"{count!r} for {shard}", "a number of samples")
    return counts


def read_version(folder: PathLike) -> str | None:
    """Return the Energon version in `.info.json` or `.info.yaml`, or None. Raises FormatError."""
    path = _info_path(folder)
    tree = None if path is None else _load(path)
    version = tree.get("energon_version") if isinstance(tree, dict) else None
    return None if version is None else str(version)


def read_split(folder: PathLike, name: str = SPLIT_CONFIG) -> Split:
    """Read the split file `name` (`.yaml` or `.json`), with braces expanded.

    If `split.yaml` does not exist, `split.json` is read. Raises FileNotFoundError, FormatError.
    """
    path = meta_path(folder, name)
    if name == SPLIT_CONFIG and not path.exists():
        older = meta_path(folder, "split.json")
        path = older if older.exists() else path
    tree = _load(path, texts_only=True)
    splits = _mapping_in(path, tree, "split_parts", "of splits to lists of shards")
    exclude = _expanded(path, "exclude", tree.get("exclude"))
    return Split({name: _expanded(path, name, shards) for name, shards in splits.items()}, exclude)


def select_splits(path: PathLike, splits: Mapping[str, list[str]], names: Sequence[str] | None) -> dict[str, list[str]]:
    """Return the splits with these names (None: all); ValueError for a name that the split file `path` lacks."""
    unknown = next((name for name in names or () if name not in splits), None)
    if unknown is not None:
        known = ", ".join(map(repr, splits)) or "none"
        raise ValueError(f"{os.fspath(path)} has no split {unknown!r}, only {known}")
    return {name: splits[name] for name in (splits if names is None else names)}


def read_dataset_yaml(folder: PathLike, name: str = DATASET_CONFIG) -> dict[str, Any]:
    """Return the contents of `dataset.yaml`. Raises FileNotFoundError, FormatError."""
    return read_yaml(meta_path(folder, name))


def read_yaml(path: PathLike) -> dict[str, Any]:
    """Return the mapping in a YAML file, without executing any tags. Raises FileNotFoundError, FormatError."""
    tree = _load(as_path(path))
    if not isinstance(tree, dict) or not all(isinstance(key, str) for key in tree):
        raise FormatError(path, 0, _kind(tree), "a mapping")
    return tree


def write_info(folder: PathLike, counts: Mapping[str, int], mode: int | None = None) -> None:
    """Write `.info.json`, and update `.info.yaml` if it exists, byte for byte as Energon does."""
    import yaml

    tree = {"energon_version": ENERGON_VERSION, "shard_counts": dict(counts)}
    write_text(meta_path(folder, _INFO), json.dumps(tree, indent=2), mode)
    legacy = meta_path(folder, _LEGACY_INFO)
    if legacy.is_file():
        write_text(legacy, yaml.dump(tree), mode)


def write_split(
    folder: PathLike,
    splits: Mapping[str, Sequence[str]],
    exclude: Sequence[str] = (),
    name: str = SPLIT_CONFIG,
    mode: int | None = None,
) -> None:
    """Write a split file. Consecutive shards are written as one brace expression."""
    import yaml

    from fastpack.webdataset import braces

    tree = {
        "split_parts": {split: braces.collapse(shards) for split, shards in splits.items()},
        "exclude": braces.collapse(exclude),
    }
    text = json.dumps(tree, indent=2) if name.endswith(".json") else yaml.dump(tree, sort_keys=False)
    write_text(meta_path(folder, name), text, mode)


def write_dataset_yaml(
    folder: PathLike, definition: Mapping[str, Any], name: str = DATASET_CONFIG, mode: int | None = None
) -> None:
    """Write `dataset.yaml`."""
    import yaml

    write_text(meta_path(folder, name), yaml.dump(dict(definition), sort_keys=False), mode)


def write_uuid(folder: PathLike, mode: int | None = None) -> None:
    """Write a new random `index.uuid`, which invalidates caches made from an older index (joins)."""
    import uuid  # takes 2 ms

    write_text(meta_path(folder, "index.uuid"), str(uuid.uuid4()), mode)


def _load(path: AnyPath, texts_only: bool = False) -> Any:
    from fastpack.io.parsing import ParseError, TextLoader, ValueLoader, parse_json, parse_yaml

    data = read_start(path, MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise FormatError(path, MAX_BYTES, "more bytes", f"at most {MAX_BYTES}")
    try:
        if path.suffix == ".json":
            return parse_json(data)
        return parse_yaml(data, TextLoader if texts_only else ValueLoader)
    except ParseError as error:
        raise FormatError(path, error.offset, str(error), "a file that can be parsed") from error


def _expanded(path: AnyPath, key: str, shards: Any) -> list[str]:
    from fastpack.webdataset import braces

    if shards in (None, ""):
        return []
    if not isinstance(shards, list) or not all(isinstance(shard, str) for shard in shards):
        raise FormatError(path, 0, f"{_kind(shards)} under {key}", "a list of shards")
    try:
        return braces.expand_all(shards)
    except ValueError as error:
        raise FormatError(path, 0, f"{error} under {key}", "brace expressions") from error


def _mapping_in(path: AnyPath, tree: Any, key: str, meaning: str) -> dict[Any, Any]:
    """Return the mapping under `key` of a file."""
    found = tree.get(key) if isinstance(tree, dict) else None
    if not isinstance(found, dict):
        raise FormatError(path, 0, _kind(found), f"a mapping {key} {meaning}")
    return found


def _kind(value: Any) -> str:
    return "nothing" if value is None else type(value).__name__


def write_text(path: AnyPath, text: str, mode: int | None) -> None:
    """Write a file in a folder that is not a link, and set its permissions unless `mode` is None."""
    check_folder(path.parent)
    with AtomicFile(path, follow=False) as file:
        file.write(text.encode())
        if mode is not None:
            file.set_mode(mode)
