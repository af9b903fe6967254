"""Resolves the paths, directories and patterns that a user gives to files."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from fastpack.documents.compressed import SUFFIXES
from fastpack.io import PathLike, RemotePath, as_path, is_file, is_folder, is_remote, real_path

Sources: TypeAlias = PathLike | Sequence[PathLike]

PLAIN_SUFFIXES = (".jsonl", ".ndjson")
WILDCARDS = frozenset("*?[")


class InputNotFound(FileNotFoundError, ValueError):
    """An input file does not exist (a FileNotFoundError; Modalities raises a ValueError)."""


def find_sources(given: Sources, *, compressed: bool = True) -> list[str]:
    """Return the JSON Lines files that `given` names, one path or several.

    A directory stands for all .jsonl and .ndjson files below it, compressed ones (.gz, .zst) included. A pattern (`*`,
    `?`, `[...]`, `**` for any folders) stands for its matches. Both are sorted by path, without hidden files.
    `compressed=False` leaves compressed files out of directories and patterns. Raises InputNotFound if there is no
    file, ValueError for a file that is named twice.
    """
    paths = [given] if isinstance(given, (str, os.PathLike)) else list(given)
    if not paths:
        raise ValueError("no source is given: pass a file, a directory or a pattern")
    found: dict[str, str] = {}  # real path -> path
    for path in [os.fspath(path) for path in paths]:
        one = is_file(path)
        for file in [path] if one else _expand(path, compressed):
            real = real_path(file)
            if one and real in found:
                raise ValueError(f"{path} is named twice: its documents would be used twice")
            found.setdefault(real, file)
    return list(found.values())


def is_one_file(given: Sources) -> bool:
    """Return whether a single path is given that is neither a directory nor a pattern."""
    if not isinstance(given, (str, os.PathLike)):
        return False
    path = os.fspath(given)
    return is_file(path) or not (is_folder(path) or WILDCARDS.intersection(path))


def _expand(path: str, compressed: bool) -> list[str]:
    endings = tuple(s + c for s in PLAIN_SUFFIXES for c in ("", *(SUFFIXES if compressed else ())))
    if is_folder(path):
        files = [file for file in _files_below(path) if file.endswith(endings)]
        expected = f"{', '.join(PLAIN_SUFFIXES)}{' (.gz, .zst)' if compressed else ''} files"
    elif WILDCARDS.intersection(path):
        files = _matching(path)
        files = files if compressed else [file for file in files if not file.endswith(SUFFIXES)]
        expected = "matching files"
    else:
        raise InputNotFound(f"{path} does not exist (or is not a file)")
    if not files:
        raise InputNotFound(f"{path}: no {expected} found")
    return sorted(files)


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
