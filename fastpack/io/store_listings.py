"""Which side files the objects of a store have, as far as this process has listed their folders.

A side file that a listing does not show is not requested: of a folder of shards, this saves requests for each of them.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable

from fastpack.io.if_exists import CHECKSUMS, LOSS, SIDES

_SUFFIXES = (CHECKSUMS, LOSS, *SIDES)
_MOST_LISTED = 10_000
_listed: dict[str, set[str]] = {}  # folder -> names of its side files


def note_listing(folder: str, names: Iterable[str]) -> None:
    """Remember the side files of a folder.

    names: relative paths of all objects in the folder, or in and below it.
    """
    if len(_listed) > _MOST_LISTED:
        _listed.clear()
    found: dict[str, set[str]] = {folder: set()}
    for name in names:
        inside = found.setdefault(posixpath.dirname(f"{folder}/{name}"), set())
        if name.endswith(_SUFFIXES):
            inside.add(posixpath.basename(name))
    _listed.update(found)


def forget_listing(url: str) -> None:
    """Forget the listing of the folder of an object."""
    _listed.pop(posixpath.dirname(url), None)


def is_listed(side: str) -> bool | None:
    """Return whether a listing by this process found a side file; None without a listing of its folder."""
    names = _listed.get(posixpath.dirname(side))
    return None if names is None else posixpath.basename(side) in names


def has_listed(folder: str, suffixes: tuple[str, ...]) -> bool:
    """Return whether a folder has side files of these suffixes; True without a listing."""
    return any(name.endswith(suffixes) for name in _listed.get(folder, suffixes))
