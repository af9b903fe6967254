"""Which files a user means: paths, directories, patterns."""

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
    """A file that is to be read is not there (FileNotFoundError; Modalities' check raises a ValueError)."""


def find_sources(given: Sources, *, compressed: bool = True) -> list[str]:
    """The JSON lines files that `given` names, one path or several.

    A directory stands for all .jsonl and .ndjson files below it, compressed ones (.gz, .zst) among them, a pattern
    (`*`, `?`, `[...]`, `**` for any folders) for what it matches, each sorted by path; hidden files are left out.
    compressed=False leaves those out of directories and patterns. Raises InputNotFound where there is none, ValueError
    for a file that is named twice.
    """
    paths = [given] if isinstance(given, (str, os.PathLike)) else list(given)
    if not paths:
        raise ValueError("no source is given: name a file, a directory or a pattern")
    found: dict[str, str] = {}  # real path -> path
    for path in [os.fspath(path) for path in paths]:
        one = is_file(path)
        for file in [path] if one else _expand(path, compressed):
            real = real_path(file)
            if one and real in found:
                raise ValueError(f"{path} is named twice: its documents would be taken twice")
            found.setdefault(real, file)
    return list(found.values())


def is_one_file(given: Sources) -> bool:
    """Whether one path is given, and it is no directory and no pattern."""
    if not isinstance(given, (str, os.PathLike)):
        return False
    path = os.fspath(given)
    return is_file(path) or not (is_folder(path) or WILDCARDS.intersection(path))


def _expand(path: str, compressed: bool) -> list[str]:
    endings = tuple(s + c for s in PLAIN_SUFFIXES for c in ("", *(SUFFIXES if compressed else ())))
    if is_folder(path):
        files = [file for file in _files_below(path) if file.endswith(endings)]
        wanted = f"{', '.join(PLAIN_SUFFIXES)}{' (.gz, .zst)' if compressed else ''} files"
    elif WILDCARDS.intersection(path):
        files = _matching(path)
        files = files if compressed else [file for file in files if not file.endswith(SUFFIXES)]
        wanted = "matching files"
    else:
        raise InputNotFound(f"{path} is not there (or is not a file)")
    if not files:
        raise InputNotFound(f"{path}: no {wanted} there")
    return sorted(files)


def _matching(pattern: str) -> list[str]:
    if is_remote(pattern):
        folder, way = _split_pattern(pattern)
        return [os.fspath(path) for path in as_path(folder).glob(way) if path.is_file()]
    return [file for file in glob.iglob(pattern, recursive=True) if os.path.isfile(file)]


def _split_pattern(url: str) -> tuple[str, str]:
    """The folder down to the first part with a wildcard, and the rest."""
    parts = url.split("/")
    first = next(k for k, part in enumerate(parts) if WILDCARDS.intersection(part))
    return "/".join(parts[:first]), "/".join(parts[first:])


def _files_below(folder: str) -> Iterable[str]:
    if is_remote(folder):
        found = ((path.relative_to(RemotePath(folder)), path) for path in RemotePath(folder).rglob("*"))
        yield from (str(path) for way, path in found if not any(part.startswith(".") for part in way.parts))
        return
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (os.path.join(parent, name) for name in names if not name.startswith("."))
