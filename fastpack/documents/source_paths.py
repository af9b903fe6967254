"""Resolves the paths, directories and patterns that a user gives to files."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from fastpack.documents.compressed import SUFFIXES
from fastpack.documents.source_formats import BY_SUFFIX, COMPRESSIBLE, format_of_content, format_of_name
from fastpack.errors import FormatError
from fastpack.io import PathLike, RemotePath, as_path, is_file, is_folder, is_remote, read_start, real_path

Sources: TypeAlias = PathLike | Sequence[PathLike]

PLAIN_SUFFIXES = (".jsonl", ".ndjson")
STATE, SPLITS = "state.json", "dataset_dict.json"  # of a directory that `datasets.save_to_disk` writes
_INDICES = "_indices_data_files", "_indices_files"  # in STATE, of old versions: their rows are not in order of the data
WILDCARDS = frozenset("*?[")


class InputNotFound(FileNotFoundError, ValueError):
    """An input file does not exist (a FileNotFoundError; Modalities raises a ValueError)."""


def find_sources(given: Sources) -> list[str]:
    """Return the files of documents that `given` names, one path or several.

    A directory stands for all files below it of one format, compressed ones (.gz, .zst) included: JSON Lines (.jsonl,
    .ndjson), Parquet, Arrow or CSV, or else plain text (.txt). One that `datasets.save_to_disk` wrote stands for its
    data files. A pattern (`*`, `?`, `[...]`, `**` for any folders) stands for its matches. Both are sorted by path,
    without hidden files. Raises InputNotFound if there is no file, ValueError for a file that is named twice, for a
    directory with several formats, and for a saved dataset with several splits.
    """
    return _find(given, _expand)


def find_json_lines(given: Sources) -> list[str]:
    """Return the JSON Lines files that `given` names, as `find_sources`, without compressed files."""
    return _find(given, _expand_plain)


def _find(given: Sources, expand: Callable[[str], list[str]]) -> list[str]:
    paths = [given] if isinstance(given, (str, os.PathLike)) else list(given)
    if not paths:
        raise ValueError("no source is given: pass a file, a directory or a pattern")
    found: dict[str, str] = {}  # real path -> path
    for path in [os.fspath(path) for path in paths]:
        one = is_file(path)
        for file in [path] if one else expand(path):
            real = real_path(file)
            if one and real in found:
                raise ValueError(f"{path} is named twice: its documents would be used twice")
            found.setdefault(real, file)
    return list(found.values())


def find_tables(path: PathLike) -> list[str]:
    """Return the files of a source that is not JSON Lines: a file, a directory or a pattern; none for other paths.

    Such a source is Parquet, Arrow, CSV, TSV or plain text. Raises as `find_sources` for a directory with several
    formats, and for a saved dataset with several splits.
    """
    given = os.fspath(path)
    if is_file(given):
        kind = format_of_name(given) or format_of_content(given)
        return [given] if kind not in (None, "jsonl") else []
    try:
        files = find_sources(given) if is_folder(given) or is_pattern(given) else []
    except InputNotFound:
        return []
    return [] if any(format_of_name(file) in (None, "jsonl") for file in files) else files


def is_pattern(path: PathLike) -> bool:
    """Return whether a path is a pattern: it has a wildcard, and no file or directory has this name."""
    given = os.fspath(path)
    return bool(WILDCARDS.intersection(given)) and not (is_file(given) or is_folder(given))


def is_one_file(given: Sources) -> bool:
    """Return whether a single path is given that is neither a directory nor a pattern."""
    if not isinstance(given, (str, os.PathLike)):
        return False
    path = os.fspath(given)
    return is_file(path) or not (is_folder(path) or WILDCARDS.intersection(path))


def _expand(path: str) -> list[str]:
    if is_folder(path):
        return _saved_dataset(path) or _files_of_one_format(path)
    if WILDCARDS.intersection(path) and (files := _matching(path)):
        return sorted(files)
    raise _nothing_at(path, "matching files")


def _expand_plain(path: str) -> list[str]:
    if is_folder(path):
        files = [file for file in _files_below(path) if file.endswith(PLAIN_SUFFIXES)]
    else:
        files = (
            [file for file in _matching(path) if not file.endswith(SUFFIXES)] if WILDCARDS.intersection(path) else []
        )
    if not files:
        raise _nothing_at(path, f"{', '.join(PLAIN_SUFFIXES)} files" if is_folder(path) else "matching files")
    return sorted(files)


def _nothing_at(path: str, expected: str) -> InputNotFound:
    if is_folder(path) or WILDCARDS.intersection(path):
        return InputNotFound(f"{path}: no {expected} found")
    return InputNotFound(f"{path} does not exist (or is not a file)")


def _files_of_one_format(folder: str) -> list[str]:
    """Return the files of documents below a folder, sorted; ValueError for several formats besides plain text."""
    by_format: dict[str, list[str]] = {}
    for path in _files_below(folder):
        if (kind := format_of_name(path)) is not None and not (path.endswith(SUFFIXES) and kind not in COMPRESSIBLE):
            by_format.setdefault(kind, []).append(path)
    texts = by_format.pop("text", [])
    if len(by_format) > 1:
        kinds = ", ".join(sorted(by_format))
        raise ValueError(f"{folder} contains files of several formats ({kinds}): pass a pattern for one of them")
    files = next(iter(by_format.values()), texts)
    if not files:
        raise _nothing_at(folder, f"{', '.join(BY_SUFFIX)} files")
    return sorted(files)


def _saved_dataset(folder: str) -> list[str]:
    """Return the data files of a directory that `datasets.save_to_disk` wrote, in order; none for another directory."""
    splits, state = (os.path.join(folder, name) for name in (SPLITS, STATE))
    if is_file(splits):
        names = _json_list(splits, "splits")
        if len(names) == 1:
            return _saved_dataset(os.path.join(folder, names[0]))
        raise ValueError(f"{folder} contains the splits {', '.join(names)}: pass the directory of one of them")
    if not is_file(state):
        return []
    if any(_json_list(state, key, "filename", optional=True) for key in _INDICES):
        expected = "one saved after `flatten_indices()`"
        raise FormatError(state, 0, "a dataset whose rows are selected by a file of indices", expected)
    return [os.path.join(folder, name) for name in _json_list(state, "_data_files", "filename")]


def _json_list(path: str, key: str, inner: str | None = None, optional: bool = False) -> list[str]:
    """Return a list of file names in a JSON file; FormatError if there is none and it is not optional."""
    import orjson  # takes 5 ms

    content = read_start(path, 16 << 20)
    try:
        names = orjson.loads(content)
        names = (names.get(key) or []) if optional else names[key]
        names = names if inner is None else [entry[inner] for entry in names]
    except (orjson.JSONDecodeError, AttributeError, KeyError, TypeError):
        names = None
    if not isinstance(names, list) or not all(
        isinstance(name, str) and name == os.path.basename(name) for name in names
    ):
        raise FormatError(path, 0, f"no list of names under {key!r}", "the JSON that `datasets.save_to_disk` writes")
    return names


def _matching(pattern: str) -> list[str]:
    if is_remote(pattern):
        folder, rest = _split_pattern(pattern)
        return [os.fspath(path) for path in as_path(folder).glob(rest) if path.is_file()]
    return [file for file in glob.iglob(pattern, recursive=True) if os.path.isfile(file)]


def _split_pattern(url: str) -> tuple[str, str]:
    """Split a pattern into the folder before the first path component with a wildcard, and the rest."""
    names = url.split("/")
    first = next(k for k, name in enumerate(names) if WILDCARDS.intersection(name))
    return "/".join(names[:first]), "/".join(names[first:])


def _files_below(folder: str) -> Iterable[str]:
    if is_remote(folder):
        found = ((path.relative_to(RemotePath(folder)), path) for path in RemotePath(folder).rglob("*"))
        yield from (str(path) for relative, path in found if not any(name.startswith(".") for name in relative.parts))
        return
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (os.path.join(parent, name) for name in names if not name.startswith("."))
