"""Objects in stores, through obstore (extra `remote`): S3, Google Cloud Storage, Azure, and HTTP for reading.

Where an object is read in pieces, each piece is asked for under the tag that the object had when it was opened: all of
them are of one version, or there is an error. A piece that comes short, and a store that answers with a fault of its
own (5xx, a broken connection), is asked again, with growing pauses; then OSError names the URL. Settings (endpoint,
keys, region) come from the environment, under the names that each store's own tools use.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import stat as stat_modes
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

from fastpack.errors import JobError, MissingExtra
from fastpack.files.policy import PathLike

TRIES = 6
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 8.0  # seconds
TIMEOUT = "60 seconds"  # of a request: a body that trickles for longer is asked for anew
PART_BYTES = 16 << 20  # of an upload

_SCHEMES = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "azure": "az"}  # fsspec's and Hadoop's names -> obstore's
_GOOGLE_EMULATOR = "STORAGE_EMULATOR_HOST"  # the name that Google's own tools use
_PREFIXES = ("AWS_", "GOOGLE_", "AZURE_", "AZURITE_", _GOOGLE_EMULATOR)  # of the settings in the environment
SCHEMES = ("s3", "gs", "az", "abfs", "abfss", "adl", "http", "https", *_SCHEMES)
_T = TypeVar("_T")
_P = ParamSpec("_P")


@dataclass(frozen=True, slots=True)
class Status:
    """What a store says of an object, by the names of os.stat_result; tag: the store's name of this version."""

    st_size: int
    st_mtime_ns: int
    tag: str | None = None
    st_mode: int = stat_modes.S_IFREG | 0o444
    st_dev: int = 0

    @property
    def st_ino(self) -> int:
        """Another number for another version, as far as the store tells them apart."""
        return hash_of(self.tag or "")

    @property
    def st_mtime(self) -> float:
        return self.st_mtime_ns / 1e9


def hash_of(text: str) -> int:
    """63 bits of a text, the same in every process."""
    import hashlib

    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


def _in_a_process_that_may(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Calls of a process that was forked from one that used obstore are done by its helper process."""

    @functools.wraps(function)
    def call(*arguments: _P.args, **options: _P.kwargs) -> _T:
        if not _is_forked():
            return function(*arguments, **options)
        return _helper().ask(function.__name__, *arguments, **options)  # type: ignore[no-any-return]

    return call


@_in_a_process_that_may
def status(url: PathLike) -> Status:
    """Size, modification time and tag of an object. Raises FileNotFoundError, PermissionError, OSError."""
    text = os.fspath(url)
    store, key = _open(text)
    found = _retried(text, lambda: _obstore().head(store, key))
    return _status(found)


def _status(meta: Any) -> Status:
    """The same from a listing, which may leave out a tag's quotes and tell parts of seconds, as from an answer."""
    tag = meta["e_tag"]
    if tag and not tag.endswith('"'):
        tag = f'"{tag}"'
    return Status(meta["size"], int(meta["last_modified"].timestamp()) * 1_000_000_000, tag or None)


@_in_a_process_that_may
def read_head(url: PathLike, n_bytes: int) -> tuple[bytes, Status]:
    """The first bytes of an object, at most `n_bytes`, and what `status` says, with one request."""
    text = os.fspath(url)
    store, key = _open(text)

    def read() -> tuple[bytes, Status]:
        answer = _obstore().get(store, key, options={"range": (0, n_bytes)})
        found = _status(answer.meta)
        data = bytes(answer.bytes())
        if len(data) != min(n_bytes, found.st_size):
            raise ShortBody(f"{len(data)} bytes instead of {min(n_bytes, found.st_size)}")
        return data, found

    try:
        return _retried(text, read)
    except OSError:
        found = status(text)
        if found.st_size:  # a store refuses any range of an empty object
            raise
        return b"", found


@_in_a_process_that_may
def read_range(url: PathLike, start: int, end: int, tag: str | None = None) -> bytes:
    """Bytes [start, end) of an object, exactly; tag: of the version that is meant.

    Raises JobError when the object is another one by now; else as `status`.
    """
    text = os.fspath(url)
    if start >= end:
        return b""
    store, key = _open(text)
    # A weak tag (W/"...") matches nothing, by the rules of HTTP; the answer's own is compared in any case.
    options: dict[str, Any] = {"range": (start, end)} | ({"if_match": tag} if tag and tag[:2] != "W/" else {})

    def read() -> bytes:
        answer = _obstore().get(store, key, options=options)
        if tag and _status(answer.meta).tag not in (None, tag):
            raise JobError(f"{text} changed while it was read: start again")
        data = bytes(answer.bytes())
        if len(data) != end - start:
            raise ShortBody(f"{len(data)} bytes instead of {end - start}")
        return data

    return _retried(text, read)


def read(url: PathLike) -> bytes:
    """A whole small object."""
    found = status(url)
    return read_range(url, 0, found.st_size, found.tag)


@_in_a_process_that_may
def names(url: PathLike) -> dict[str, Status | None]:
    """What lies directly in a folder, by name, sorted: the status of objects, None for folders; {} for no folder."""
    text = os.fspath(url)
    store, key = _open_folder(text)
    found = _retried(text, lambda: _obstore().list_with_delimiter(store, key or None))
    there: dict[str, Status | None] = {way[len(key) :].strip("/"): None for way in found["common_prefixes"]}
    there |= {entry["path"][len(key) :].lstrip("/"): _status(entry) for entry in found["objects"]}
    return {name: there[name] for name in sorted(there) if name}


@_in_a_process_that_may
def all_names(url: PathLike) -> dict[str, Status]:
    """The ways from a folder to all objects below it, sorted part by part, and the status of each."""
    text = os.fspath(url)
    store, key = _open_folder(text)
    found = _retried(text, lambda: [entry for part in _obstore().list(store, key or None) for entry in part])
    there = {entry["path"][len(key) :].lstrip("/"): _status(entry) for entry in found}
    return {way: there[way] for way in sorted(there, key=lambda way: way.split("/"))}


@_in_a_process_that_may
def has_objects(url: PathLike) -> bool:
    """Whether anything lies below a folder; False where the store cannot tell (plain HTTP)."""
    text = os.fspath(url)
    if text.startswith(("http:", "https:")):
        return False
    store, key = _open_folder(text)
    return _retried(text, lambda: any(part for part in _obstore().list(store, key or None, chunk_size=1)))


@_in_a_process_that_may
def upload(url: PathLike, local_path: str, *, replace: bool = True) -> None:
    """Put a local file into a store: in parts where it is large, and there under its name complete or not at all.

    replace=False: FileExistsError where an object of that name is there (told by the store, as far as it can).
    """
    text = os.fspath(url)
    if text.startswith(("http:", "https:")):
        raise JobError(f"{text}: plain HTTP can be read only")
    store, key = _open(text)
    n_bytes = os.path.getsize(local_path)

    def put() -> None:
        with open(local_path, "rb") as file:
            if n_bytes <= PART_BYTES:
                _obstore().put(store, key, file.read(), mode="overwrite" if replace else "create", use_multipart=False)
            else:
                if not replace and _exists(text):  # parts cannot be put on a condition
                    raise FileExistsError(errno.EEXIST, "The object is there already", text)
                _obstore().put(store, key, file, use_multipart=True, chunk_size=PART_BYTES)

    _retried(text, put)
    if (found := status(text).st_size) != n_bytes:
        raise OSError(errno.EIO, f"the store has {found} bytes of an object of {n_bytes}", text)


@_in_a_process_that_may
def delete(url: PathLike) -> None:
    """Remove an object, if it is there."""
    text = os.fspath(url)
    store, key = _open(text)
    try:
        _retried(text, lambda: _obstore().delete(store, key))
    except FileNotFoundError:
        return


def _exists(url: str) -> bool:
    try:
        status(url)
    except FileNotFoundError:
        return False
    return True


class ShortBody(OSError):
    """An answer with fewer or more bytes than were asked for."""


def _retried(url: str, call: Callable[[], _T]) -> _T:
    import random

    pause = FIRST_PAUSE
    for attempt in range(1, TRIES + 1):
        try:
            return call()
        except Exception as error:
            final = _final(url, error)
            if final is not None:
                raise final from None
            if attempt == TRIES:
                text = f"{type(error).__name__}: {_first_line(error)} (asked {TRIES} times)"
                raise OSError(errno.EIO, text, url) from None
        time.sleep(pause * random.uniform(0.5, 1.5))  # so that many readers do not come back at once
        pause = min(2 * pause, LONGEST_PAUSE)
    raise AssertionError("the last attempt returns or raises")


def _final(url: str, error: Exception) -> Exception | None:
    """The error to raise for one that asking again does not mend; None for one that it may."""
    from obstore import exceptions as kinds

    if isinstance(error, FileNotFoundError):
        return FileNotFoundError(errno.ENOENT, "No such object", url)
    if isinstance(error, (FileExistsError, kinds.AlreadyExistsError)):
        return FileExistsError(errno.EEXIST, "The object is there already", url)
    if isinstance(error, (kinds.PermissionDeniedError, kinds.UnauthenticatedError)):
        return PermissionError(errno.EACCES, f"The store refuses access: {_first_line(error)}", url)
    if isinstance(error, kinds.PreconditionError):
        return JobError(f"{url} changed while it was read: start again")
    if isinstance(error, kinds.NotSupportedError):
        return JobError(f"{url}: the store cannot do this: {_first_line(error)}")
    retryable = (kinds.GenericError, OSError, TimeoutError)
    return None if isinstance(error, retryable) and not isinstance(error, MissingExtra) else error


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [""])[0][:300]


_stores: dict[tuple[Any, ...], Any] = {}  # by root and settings
_lock = threading.Lock()
_owner: int | None = None  # the process whose threads obstore runs in; a fork of it must not use them


def _obstore() -> Any:
    global _owner
    try:
        import obstore
    except ImportError:
        raise MissingExtra("obstore", "remote", "reading and writing objects in a store") from None
    if _owner is None:
        _owner = os.getpid()
    return obstore


def _is_forked() -> bool:
    return _owner is not None and _owner != os.getpid()


def _forget_stores() -> None:
    """In a forked child: leave the parent's stores alone, for good; even to free them would close its connections."""
    global _lock
    _lock = threading.Lock()
    for store in _stores.values():
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(store))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_stores)


def _open(url: str) -> tuple[Any, str]:
    """The store and the object's name in it."""
    root, key = _parts(url)
    if not key:
        raise FileNotFoundError(errno.ENOENT, "This is a store, not an object in it", url)
    return _store(root), key


def _open_folder(url: str) -> tuple[Any, str]:
    root, key = _parts(url)
    return _store(root), f"{key}/" if key else ""


def _parts(url: str) -> tuple[str, str]:
    scheme, _, rest = url.partition("://")
    if scheme.lower() in ("file", "local"):
        raise JobError(f"{url}: the path of a local file is given whole, as in {scheme}:///folder/file")
    if scheme.lower() not in SCHEMES:
        known = ", ".join(f"{name}://" for name in SCHEMES)
        raise JobError(f"{url}: there is no way to {scheme}:// from here; fastpack reads and writes {known}")
    host, _, key = rest.partition("/")
    return f"{_SCHEMES.get(scheme.lower(), scheme.lower())}://{host}", key.strip("/")


def _store(root: str) -> Any:
    _obstore()
    from obstore.store import from_url

    settings = {name: value for name, value in os.environ.items() if name.startswith(_PREFIXES)}
    key = (root, TIMEOUT, *sorted(settings.items()))
    with _lock:
        if key not in _stores:
            emulator = settings.get(_GOOGLE_EMULATOR) if root.startswith("gs:") else None
            # The user's own endpoint may be one without encryption, such as a store on the same machine.
            plain = root.startswith("http:") or any(
                value.startswith("http:") for name, value in settings.items() if "ENDPOINT" in name
            )
            try:
                _stores[key] = from_url(
                    root,
                    config=None if emulator is None else _google_at(emulator),
                    client_options={"timeout": TIMEOUT, "allow_http": plain or emulator is not None},
                    retry_config={"max_retries": 0},  # `_retried` does, and also for bodies that come short
                )
            except Exception as error:
                raise JobError(f"{root}: no store can be reached by that: {_first_line(error)}") from None
        return _stores[key]


def _google_at(address: str) -> Any:
    """What has Google's client ask another server than Google's, without keys."""
    import json

    base = address if "://" in address else f"http://{address}"
    account = {"gcs_base_url": base, "disable_oauth": True, "client_email": "", "private_key": "", "private_key_id": ""}
    return {"service_account_key": json.dumps(account)}


def _helper() -> Any:
    from fastpack.files.remote_helper import helper

    return helper()
