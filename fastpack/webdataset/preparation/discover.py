"""Find the shards of a WebDataset, in tar_file_id order."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator

from fastpack.errors import JobError
from fastpack.io import PathLike, RemotePath, is_remote

SUFFIXES = (".tar", ".tgz")


def find_shards(folder: PathLike, exclude: str | None = None) -> list[str]:
    """Return the relative paths of all `.tar` and `.tgz` files in `folder`, recursively, sorted folder by folder.

    Hidden files and folders are left out, links are followed. exclude: a regular expression; paths in which it is found
    are left out. Raises FileNotFoundError, NotADirectoryError, ValueError for an invalid expression, JobError for a
    path that is not UTF-8.
    """
    try:
        excluded = None if exclude is None else re.compile(exclude)
    except re.error as error:
        raise ValueError(f"exclude is not a regular expression: {exclude!r}: {error}") from None
    found = _below_url(folder) if is_remote(folder) else _below(os.fspath(folder), "", ())
    names = [name for name in found if not (excluded and excluded.search(name))]
    for name in names:
        try:
            name.encode()
        except UnicodeEncodeError:
            raise JobError(f"the path of a shard is not UTF-8: {name!r}. Rename the file.") from None
    return sorted(names, key=lambda name: name.split("/"))


def _below_url(folder: PathLike) -> Iterator[str]:
    """Yield the shards in an object store. FileNotFoundError if no object has this prefix."""
    here = RemotePath(folder)
    paths = [str(path.relative_to(here)) for path in here.rglob("*")]
    if not paths:
        raise FileNotFoundError(errno.ENOENT, "No such folder", os.fspath(folder))
    return (path for path in paths if path.endswith(SUFFIXES) and not any(map(_is_hidden, path.split("/"))))


def _is_hidden(name: str) -> bool:
    return name.startswith(".")


def _below(root: str, prefix: str, ancestors: tuple[tuple[int, int], ...]) -> Iterator[str]:
    """Yield the shards of a folder. A folder that is its own ancestor (through a link) is not entered again."""
    folder = os.path.join(root, prefix)
    status = os.stat(folder)
    here = (status.st_dev, status.st_ino)
    if here in ancestors:
        return
    with os.scandir(folder) as entries:
        for entry in entries:
            if _is_hidden(entry.name):
                continue
            if entry.is_dir():
                yield from _below(root, f"{prefix}{entry.name}/", (*ancestors, here))
            elif entry.name.endswith(SUFFIXES):
                yield f"{prefix}{entry.name}"
