"""The token files that a folder, a pattern or a path stands for."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterable, Sequence

from fastpack.documents.source_paths import WILDCARDS, is_pattern
from fastpack.errors import FormatError, spoken
from fastpack.io import AnyPath, PathLike, as_path, is_folder, is_remote, names_in
from fastpack.io.atomic_folder import INDEX
from fastpack.tokens.formats import FORMATS, detect_format, formats_of, is_side_file
from fastpack.tokens.interop_formats import FOLDER_FORMATS
from fastpack.tokens.token_corpus import natural_key
from fastpack.tokens.token_file import TokenFile

_ONE_FORMAT = "Pass source_format= or a pattern"


def find_shards(path: PathLike, format: str | None) -> list[PathLike]:
    """Return the token files that a path stands for, in natural order of their names: 9 before 10.

    A folder stands for all token files below it, and a pattern for its matches, without hidden and side files; files
    that are not token files are ignored. Any other path, also of a folder of chunks, stands for itself. format: only
    files of this format. Raises FileNotFoundError if nothing matches, ValueError for files of several formats.
    """
    if is_pattern(path):
        found = _matches(os.fspath(path))
    elif is_folder(path) and not _is_chunks(as_path(path)):
        found = _below(as_path(path))
    else:
        return [path]
    by_format = _by_format(found, format)
    if len(by_format) > 1:
        named = " and ".join(f"{paths[0]} ({name})" for name, paths in by_format.items())
        raise ValueError(f"{os.fspath(path)} contains files of several formats: {named}. {spoken(_ONE_FORMAT)}")
    if not by_format:
        if is_pattern(path):
            raise FileNotFoundError(f"{os.fspath(path)}: no token files match")
        return [path]
    (shards,) = by_format.values()
    return [*sorted(shards, key=natural_key)]


def open_shards(paths: Sequence[PathLike], open_one: Callable[[PathLike], TokenFile]) -> list[TokenFile]:
    """Open the files that one path stands for; raise FormatError unless they have the same dtype."""
    files: list[TokenFile] = []
    try:
        for path in paths:
            files.append(open_one(path))
            if files[-1].dtype != files[0].dtype:
                expected = f"{files[0].dtype}, as {files[0].path}: convert them one by one"
                raise FormatError(files[-1].path, 0, f"the dtype {files[-1].dtype}", expected)
    except BaseException:
        for tokens in files:
            tokens.close()
        raise
    return files


def _by_format(paths: Iterable[AnyPath], format: str | None) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    detected = "bin" if format == "nanogpt" else format  # which is never detected
    for path in paths:
        rows = [row for row in formats_of(path) if row.name != "manifest"]  # it describes other files
        if not rows or is_side_file(path):
            continue
        if format is None and len(rows) > 1:
            detect_format(path)  # raises the error that names the formats
        for row in rows:
            if detected in (None, row.name):
                found.setdefault(row.name, []).append(os.fspath(path))
    return found


def _is_chunks(folder: AnyPath) -> bool:
    """Return whether a folder is a dataset of chunks with an index."""
    names = names_in(folder)
    return INDEX in names and any(row.detect(folder, names) for row in FORMATS if row.name in FOLDER_FORMATS)


def _below(folder: AnyPath) -> list[AnyPath]:
    """Return the files below a folder without hidden ones, and the folders of chunks instead of their files."""
    n_before = len(folder.parts)
    paths = [path for path in folder.rglob("*") if not any(name.startswith(".") for name in path.parts[n_before:])]
    chunks = {path.parent for path in paths if path.name == INDEX and _is_chunks(path.parent)}
    files = (path for path in paths if is_remote(path) or path.is_file())
    return [*chunks, *(path for path in files if path.parent not in chunks)]


def _matches(pattern: str) -> list[AnyPath]:
    if is_remote(pattern):
        names = pattern.split("/")
        first = next(at for at, name in enumerate(names) if WILDCARDS.intersection(name))
        return list(as_path("/".join(names[:first])).glob("/".join(names[first:])))
    return [as_path(path) for path in glob.iglob(pattern, recursive=True)]
