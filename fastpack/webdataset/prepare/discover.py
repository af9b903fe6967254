"""The shards of a WebDataset's folder, in the order in which they are numbered."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator

from fastpack.errors import JobError
from fastpack.io import PathLike, RemotePath, is_remote

SUFFIXES = (".tar", ".tgz")


def find_shards(folder: PathLike, exclude: str | None = None) -> list[str]:
    """The paths of all `.tar` and `.tgz` files below `folder`, relative to it, sorted folder by folder.

    Names that begin with a dot are left out, links are followed. exclude: a regular expression; paths in which it is
    found anywhere are left out. Raises FileNotFoundError, NotADirectoryError, ValueError for a bad expression, JobError
    for a path that is not UTF-8.
    """
    try:
        excluded = None if exclude is None else re.compile(exclude)
    except re.error as error:
        raise ValueError(f"exclude is no regular expression: {exclude!r}: {error}") from None
    found = _below_url(folder) if is_remote(folder) else _below(os.fspath(folder), "", ())
    names = [name for name in found if not (excluded and excluded.search(name))]
    for name in names:
        try:
            name.encode()
        except UnicodeEncodeError:
            raise JobError(f"the path of a shard is not UTF-8, so no list can hold it: {name!r}; rename it") from None
    return sorted(names, key=lambda name: name.split("/"))


def _below_url(folder: PathLike) -> Iterator[str]:
    """Paths of shards in a store. FileNotFoundError where nothing begins with this name."""
    here = RemotePath(folder)
    ways = [str(path.relative_to(here)) for path in here.rglob("*")]
    if not ways:
        raise FileNotFoundError(errno.ENOENT, "No such folder", os.fspath(folder))
    return (way for way in ways if way.endswith(SUFFIXES) and not any(part.startswith(".") for part in way.split("/")))


def _below(root: str, prefix: str, ancestors: tuple[tuple[int, int], ...]) -> Iterator[str]:
    """Paths of shards; a folder that is its own ancestor through a link is not entered again."""
    folder = os.path.join(root, prefix)
    status = os.stat(folder)
    here = (status.st_dev, status.st_ino)
    if here in ancestors:
        return
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if entry.is_dir():
                yield from _below(root, f"{prefix}{entry.name}/", (*ancestors, here))
            elif entry.name.endswith(SUFFIXES):
                yield f"{prefix}{entry.name}"
