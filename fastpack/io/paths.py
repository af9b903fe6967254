"""Paths and URLs with one interface: `as_path` returns pathlib's Path, or a RemotePath for an object in a store."""

from __future__ import annotations

import errno
import fnmatch
import functools
import os
import posixpath
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, TypeAlias, TypeVar, cast

from fastpack.errors import JobError
from fastpack.io import stores as remote
from fastpack.io.if_exists import PathLike
from fastpack.io.store_listings import note_listing
from fastpack.io.stores import Status

_F = TypeVar("_F", bound=Callable[..., Any])

_URL = re.compile(r"([a-z][a-z0-9+.-]+)://(?=.)", re.IGNORECASE)
_LOCAL = re.compile(r"(?:file|local)://(?:localhost)?(?=/)", re.IGNORECASE)
_CHAINED = re.compile(r"([a-z0-9]+)(?:://[^:]*)?::(?:[a-z0-9]+(?:://[^:]*)?::)*([a-z0-9+.-]+://.*)", re.IGNORECASE)
_CACHES = ("simplecache", "filecache", "blockcache", "cached")


def with_filename(function: _F) -> _F:
    """Decorate a function of a path, or of an object with one: an OSError from a descriptor then names the file."""

    @functools.wraps(function)
    def call(first: Any, *others: Any) -> Any:
        try:
            return function(first, *others)
        except OSError as error:
            if error.errno is not None and error.filename is None:
                error.filename = os.fspath(getattr(first, "path", first))
            raise

    return cast(_F, call)


def is_remote(path: PathLike) -> bool:
    """Return whether a path is the URL of an object in a store, not `file://`; JobError for fsspec's chained URLs."""
    text = os.fspath(path)
    if "::" in text and (chained := _CHAINED.match(text)):
        raise _no_chain(text, *chained.groups())
    return bool(_URL.match(text)) and not _LOCAL.match(text)


def is_read_only(path: PathLike) -> bool:
    """Return whether a path is a URL of a store that cannot be written: plain HTTP, and the Hugging Face Hub."""
    return is_remote(path) and remote.is_read_only(plain_path(path))


def _no_chain(text: str, first: str, last: str) -> JobError:
    if first.lower() in _CACHES:
        return JobError(f"{text}: write {last}: data from a store is always cached")
    return JobError(f"{text}: {last} is not opened as {first}: unpack it, and give the URL of the files")


def as_path(path: PathLike) -> AnyPath:
    """Return pathlib's Path, or a RemotePath for the URL of an object or folder in a store; `file:///x` is `/x`."""
    if isinstance(path, (Path, RemotePath)):
        return path
    return RemotePath(path) if is_remote(path) else Path(_LOCAL.sub("", os.fspath(path)))


def plain_path(path: PathLike) -> str:
    """Return the path as a string: `file:///x` as `/x`, URLs of stores in the form of `RemotePath`."""
    return os.fspath(as_path(path)) if "::" in (text := os.fspath(path)) or _URL.match(text) else text


def stat_of(path: PathLike) -> os.stat_result | Status:
    """Return the status of a file or object: st_size, st_mtime_ns, st_ino, st_mode, st_dev."""
    return as_path(path).stat() if is_remote(path) else os.stat(path)


def size_of(path: PathLike) -> int:
    """Return the size of a file or object in bytes."""
    return stat_of(path).st_size


def exists(path: PathLike) -> bool:
    """os.path.exists, also for objects and folders in stores."""
    return as_path(path).exists() if is_remote(path) else os.path.exists(path)


def check_exists(path: PathLike) -> None:
    """Raise FileNotFoundError, or another OSError, if a file or folder cannot be found."""
    if not is_remote(path):
        os.stat(path)
    elif not exists(path):
        raise FileNotFoundError(errno.ENOENT, "No such object or folder", plain_path(path))


def is_file(path: PathLike) -> bool:
    """os.path.isfile, also for objects in stores."""
    return as_path(path).is_file() if is_remote(path) else os.path.isfile(path)


def is_folder(path: PathLike) -> bool:
    """os.path.isdir, also for stores, in which a folder exists as long as it contains an object."""
    return as_path(path).is_dir() if is_remote(path) else os.path.isdir(path)


def real_path(path: PathLike) -> str:
    """os.path.realpath; for an object in a store, its URL."""
    return plain_path(path) if is_remote(path) else os.path.realpath(plain_path(path))


def absolute(path: PathLike) -> str:
    """os.path.abspath; for an object in a store, its URL."""
    return plain_path(path) if is_remote(path) else os.path.abspath(plain_path(path))


def same_file(one: PathLike, other: PathLike) -> bool:
    """Return whether two paths name the same file; a missing file is the same only under the same name."""
    if real_path(one) == real_path(other):
        return True
    if is_remote(one) or is_remote(other) or not os.path.exists(other):
        return False
    return os.path.samefile(one, other)


def names_in(folder: PathLike) -> list[str]:
    """os.listdir, also for stores."""
    return [path.name for path in as_path(folder).iterdir()] if is_remote(folder) else os.listdir(folder)


class RemotePath(os.PathLike[str]):
    """The URL of an object or of a folder (all objects whose names start with it and a slash), with Path's methods.

    listed: status of the object if it comes from a listing; else None, and for folders.
    Methods raise as `fastpack.io.stores`: FileNotFoundError, PermissionError, OSError with the URL.
    """

    __slots__ = ("_root", "_url", "_way", "listed")

    def __init__(self, url: PathLike, listed: Status | None = None) -> None:
        text = os.fspath(url)
        match = _URL.match(text)
        if match is None:
            raise ValueError(f"{text!r} is not the URL of an object")
        rest = text[match.end() :]
        store, _, way = rest.partition("/")
        self._root = f"{match[1].lower()}://{store}"
        self._way = posixpath.normpath(way).strip("/") if way.strip("/") else ""
        if self._way.split("/")[0] == "..":
            raise ValueError(f"{text!r} leads out of its store")
        self._url = f"{self._root}/{self._way}" if self._way else self._root
        self.listed = listed

    def __fspath__(self) -> str:
        return self._url

    __str__ = __fspath__

    def __repr__(self) -> str:
        return f"RemotePath({self._url!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RemotePath) and self._url == other._url

    def __hash__(self) -> int:
        return hash(self._url)

    def __lt__(self, other: RemotePath) -> bool:
        return self.parts < other.parts

    def __reduce__(self) -> tuple[type[RemotePath], tuple[str]]:
        return RemotePath, (self._url,)

    def __truediv__(self, name: PathLike) -> AnyPath:
        text = os.fspath(name)
        return as_path(text) if is_remote(text) else RemotePath(f"{self._url}/{text}")

    @property
    def name(self) -> str:
        return posixpath.basename(self._way)

    @property
    def stem(self) -> str:
        return PurePosixPath(self._way).stem

    @property
    def suffix(self) -> str:
        return PurePosixPath(self._way).suffix

    @property
    def parts(self) -> tuple[str, ...]:
        return (self._root, *filter(None, self._way.split("/")))

    @property
    def parent(self) -> RemotePath:
        return RemotePath(f"{self._root}/{posixpath.dirname(self._way)}")

    def with_name(self, name: str) -> RemotePath:
        return RemotePath(f"{self._root}/{posixpath.join(posixpath.dirname(self._way), name)}")

    def with_suffix(self, suffix: str) -> RemotePath:
        return RemotePath(f"{self._root}/{PurePosixPath(self._way).with_suffix(suffix)}")

    def resolve(self) -> RemotePath:
        return self

    def relative_to(self, other: RemotePath) -> Path:
        """Return the path relative to a folder; ValueError if it is not in the folder."""
        if self._url != other._url and not self._url.startswith(f"{other._url}/"):
            raise ValueError(f"{self} is not in {other}")
        return Path(self._url[len(other._url) + 1 :])

    def stat(self) -> Status:
        """Request size, time and tag of an object."""
        return remote.status(self._url)

    def is_file(self) -> bool:
        try:
            self.stat()
        except FileNotFoundError:
            return False
        return True

    def is_dir(self) -> bool:
        return self.listed is None and remote.has_objects(self._url)

    def exists(self) -> bool:
        return self.is_file() or self.is_dir()

    def is_symlink(self) -> bool:
        return False

    def iterdir(self) -> Iterator[RemotePath]:
        """Iterate over the objects and folders in a folder, sorted by name; FileNotFoundError if there are none."""
        names = remote.names(self._url)
        note_listing(self._url, names)
        if not names:
            raise FileNotFoundError(errno.ENOENT, "No such object or folder", self._url)
        return (RemotePath(f"{self._url}/{name}", status) for name, status in names.items())

    def glob(self, pattern: str) -> Iterator[RemotePath]:
        """Iterate over the objects below this folder that match a pattern, as Path.glob (`*`, `?`, `[...]`, `**`)."""
        patterns = pattern.split("/")
        flat = len(patterns) == 1 and pattern != "**"  # one listing with a delimiter, regardless of the objects below
        ways = remote.names(self._url) if flat else remote.all_names(self._url)
        note_listing(self._url, ways)
        found = ((way, status) for way, status in ways.items() if matches_parts(way.split("/"), patterns))
        return (RemotePath(f"{self._url}/{way}", status) for way, status in found)

    def rglob(self, pattern: str) -> Iterator[RemotePath]:
        return self.glob(f"**/{pattern}")

    def mkdir(self, *, parents: bool = False, exist_ok: bool = False) -> None:
        """Do nothing: a folder of a store exists as soon as it contains an object."""

    def read_bytes(self) -> bytes:
        return remote.read(self._url)

    def read_text(self, encoding: str = "utf-8") -> str:
        return self.read_bytes().decode(encoding)


AnyPath: TypeAlias = Path | RemotePath


def matches_parts(parts: Sequence[str], patterns: Sequence[str]) -> bool:
    """Return whether Path.glob matches the components of a path with those of a pattern."""
    if not patterns:
        return not parts
    if patterns[0] == "**":  # any number of folders
        return any(matches_parts(parts[n:], patterns[1:]) for n in range(len(parts) + 1))
    return bool(parts) and fnmatch.fnmatchcase(parts[0], patterns[0]) and matches_parts(parts[1:], patterns[1:])
