"""Objects in stores, through obstore (extra `remote`): S3, Google Cloud Storage, Azure, and HTTP for reading.

Every range of an object is requested with the tag that the object had when it was opened: all are of one version, or
there is an error. A request is retried after a short response, a server error (5xx), a broken connection or some
seconds of silence, with growing pauses and a log message; finally OSError names the URL.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import stat as stat_modes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

from fastpack.errors import JobError, MissingExtra
from fastpack.io import store_clients as clients
from fastpack.io import threads
from fastpack.io.hugging_face import HubFile, hub_entries, hub_file, is_hub, is_hub_folder
from fastpack.io.store_clients import first_line, is_forked, load_obstore, logger, open_folder, open_object, split_url

TRIES = 6
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 8.0  # seconds
PART_BYTES = 16 << 20  # of a multipart upload

_T = TypeVar("_T")
_P = ParamSpec("_P")
_SERVED: dict[str, Callable[..., Any]] = {}  # functions that a helper process calls for a forked process


@dataclass(frozen=True, slots=True)
class Status:
    """Status of an object, with the names of os.stat_result; tag: the store's name (ETag) of this version."""

    st_size: int
    st_mtime_ns: int
    tag: str | None = None
    st_mode: int = stat_modes.S_IFREG | 0o444
    st_dev: int = 0

    @property
    def st_ino(self) -> int:
        """A number that differs between versions with different tags."""
        return hash_of(self.tag or "")

    @property
    def st_mtime(self) -> float:
        return self.st_mtime_ns / 1e9


def hash_of(text: str) -> int:
    """Return a hash of 63 bits, the same in every process."""
    import hashlib  # takes 3 ms

    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


def _fork_safe(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Decorate a function: a process forked from one that used obstore calls it in a helper process."""

    @functools.wraps(function)
    def call(*arguments: _P.args, **options: _P.kwargs) -> _T:
        if not is_forked():
            return function(*arguments, **options)
        from fastpack.io.store_helper import helper

        return helper().ask(function.__name__, *arguments, **options)  # type: ignore[no-any-return]

    _SERVED[function.__name__] = call
    return call


def serve() -> None:
    """Answer the requests of a `store_helper.Helper` until standard input ends."""
    from fastpack.io.store_helper import answer_requests

    answer_requests(_SERVED)


@_fork_safe
def status(url: str) -> Status:
    """Return the status of an object; raises FileNotFoundError, PermissionError or OSError."""
    if is_hub(url):
        return _hub_status(hub_file(url))
    store, key = open_object(url)
    found = _retry(url, lambda: load_obstore().head(store, key))
    return _status(found)


def _hub_status(file: HubFile) -> Status:
    return Status(file.n_bytes, 0, file.tag)


def _status(meta: Any) -> Status:
    """Convert metadata; a listing may omit the quotes of a tag and have fractions of seconds, a response not."""
    tag = meta["e_tag"]
    if tag and not tag.endswith('"'):
        tag = f'"{tag}"'
    return Status(meta["size"], int(meta["last_modified"].timestamp()) * 1_000_000_000, tag or None)


@_fork_safe
def read_head(url: str, n_bytes: int) -> tuple[bytes, Status]:
    """Read at most the first `n_bytes` of an object; return them and its status, with one request."""
    if is_hub(url):
        found = status(url)
        return bytes(read_range(url, 0, min(n_bytes, found.st_size))), found
    store, key = open_object(url)

    def read() -> tuple[bytes, Status]:
        answer = load_obstore().get(store, key, options={"range": (0, n_bytes)})
        found = _status(answer.meta)
        data = bytes(answer.bytes())
        if len(data) != min(n_bytes, found.st_size):
            raise ShortBody(f"{len(data)} bytes instead of {min(n_bytes, found.st_size)}")
        return data, found

    try:
        return _retry(url, read)
    except FileNotFoundError:
        raise
    except OSError:
        found = status(url)
        if found.st_size:  # a store rejects every range of an empty object
            raise
        return b"", found


@_fork_safe
def read_range(url: str, start: int, end: int, tag: str | None = None) -> bytes | memoryview:
    """Read exactly the bytes [start, end) of an object; tag: of the expected version.

    Raises JobError if the object has changed; else as `status`.
    """
    if start >= end:
        return b""
    store, key = open_object(url)
    if is_hub(url):
        tag = None  # the URL names a commit, and servers of contents have tags of their own
    # A weak tag (W/"...") never matches in HTTP; the tag of the response is compared in any case.
    options: dict[str, Any] = {"range": (start, end)} | ({"if_match": tag} if tag and tag[:2] != "W/" else {})

    def read() -> memoryview:
        answer = load_obstore().get(store, key, options=options)
        if tag and _status(answer.meta).tag not in (None, tag):
            raise JobError(f"{url} changed while it was read: start again")
        body: Any = answer.bytes()
        data = memoryview(body)
        if len(data) != end - start:
            raise ShortBody(f"{len(data)} bytes instead of {end - start}")
        return data

    return _retry(url, read)


def read(url: str) -> bytes:
    """Read a whole small object."""
    found = status(url)
    return bytes(read_range(url, 0, found.st_size, found.tag))


@_fork_safe
def names(url: str) -> dict[str, Status | None]:
    """List a folder: name -> status of an object, or None for a folder, sorted; {} if the folder does not exist."""
    if is_hub(url):
        return _hub_names(url, recursive=False)
    store, key = open_folder(url)
    found = _retry(url, lambda: load_obstore().list_with_delimiter(store, key or None))
    there: dict[str, Status | None] = {way[len(key) :].strip("/"): None for way in found["common_prefixes"]}
    there |= {entry["path"][len(key) :].lstrip("/"): _status(entry) for entry in found["objects"]}
    return {name: there[name] for name in sorted(there) if name}


@_fork_safe
def all_names(url: str) -> dict[str, Status]:
    """List all objects below a folder: relative path -> status, sorted by components."""
    if is_hub(url):
        listed = _hub_names(url, recursive=True)
        return {way: found for way, found in listed.items() if found is not None}
    store, key = open_folder(url)
    found = _retry(url, lambda: [entry for page in load_obstore().list(store, key or None) for entry in page])
    there = {entry["path"][len(key) :].lstrip("/"): _status(entry) for entry in found}
    return {way: there[way] for way in sorted(there, key=lambda way: way.split("/"))}


def _hub_names(url: str, *, recursive: bool) -> dict[str, Status | None]:
    """Return relative path -> status of the files in a folder of a repository, None for folders, sorted."""
    prefix = split_url(url)[1]
    there: dict[str, Status | None] = {}
    for entry in hub_entries(url, recursive=recursive):
        path = entry if isinstance(entry, str) else entry.path
        there[path[len(prefix) :].strip("/")] = None if isinstance(entry, str) else _hub_status(entry)
    return {way: there[way] for way in sorted(there, key=lambda way: way.split("/"))}


@_fork_safe
def has_objects(url: str) -> bool:
    """Return whether a folder contains objects; False if the store cannot list (plain HTTP)."""
    if url.startswith(("http:", "https:")):
        return False
    if is_hub(url):
        return is_hub_folder(url)
    store, key = open_folder(url)
    return _retry(url, lambda: any(page for page in load_obstore().list(store, key or None, chunk_size=1)))


def is_read_only(url: str) -> bool:
    """Return whether objects can only be read: over plain HTTP, and from the Hugging Face Hub."""
    return url.lower().startswith(("http:", "https:", "hf:"))


def check_writable(url: str) -> None:
    """Raise JobError for a URL that can only be read."""
    if is_read_only(url):
        raise JobError(f"{url}: {'the Hugging Face Hub' if is_hub(url) else 'plain HTTP'} can be read only")


@_fork_safe
def upload(url: str, local_path: str, *, replace: bool = True) -> None:
    """Upload a local file, a large one in multiple parts; the object is complete under its name, or absent.

    replace=False: FileExistsError if the object exists, checked by the store as far as it can. An object with the
    content of the file does not count if an earlier attempt of this call may have uploaded it.
    """
    check_writable(url)
    store, key = open_object(url, sends=True)
    n_bytes = os.path.getsize(local_path)
    attempts = 0

    def put() -> None:
        nonlocal attempts
        attempts += 1
        try:
            _put(url, store, key, local_path, replace)
        except (FileExistsError, load_obstore().exceptions.AlreadyExistsError):
            # The response to an earlier attempt may have been lost after the store had accepted the object.
            if attempts == 1 or not _has_content(url, local_path):
                raise
        except FileNotFoundError:
            # The same: obstore aborts the multipart upload after an error, but the store may have completed it.
            if n_bytes <= PART_BYTES or not _has_content(url, local_path):
                raise

    _retry(url, put)
    if (found := status(url).st_size) != n_bytes:
        raise OSError(errno.EIO, f"the object has {found} bytes after an upload of {n_bytes}", url)


def _put(url: str, store: Any, key: str, local_path: str, replace: bool) -> None:
    """One attempt of `upload`."""
    with open(local_path, "rb") as file:
        if os.path.getsize(local_path) <= PART_BYTES:
            mode = "overwrite" if replace else "create"
            load_obstore().put(store, key, file.read(), mode=mode, use_multipart=False)
        else:
            if not replace and _exists(url):  # a multipart upload cannot be conditional
                raise FileExistsError(errno.EEXIST, "The object exists", url)
            load_obstore().put(store, key, file, use_multipart=True, chunk_size=PART_BYTES)


def _has_content(url: str, local_path: str) -> bool:
    """Return whether an object has exactly the bytes of a local file."""
    found = status(url)
    if found.st_size != os.path.getsize(local_path):
        return False
    with open(local_path, "rb") as file:
        for start in range(0, found.st_size, PART_BYTES):
            end = min(start + PART_BYTES, found.st_size)
            if read_range(url, start, end, found.tag) != file.read(end - start):
                return False
    return True


@_fork_safe
def delete(url: str) -> None:
    """Remove an object, if it exists."""
    store, key = open_object(url)
    with contextlib.suppress(FileNotFoundError):
        _retry(url, lambda: load_obstore().delete(store, key))


def _exists(url: str) -> bool:
    try:
        status(url)
    except FileNotFoundError:
        return False
    return True


class ShortBody(OSError):
    """Raised for a response with fewer or more bytes than requested."""


def _retry(url: str, call: Callable[[], _T]) -> _T:
    """Send a request, and retry it after temporary failures, each of which is logged; return its result."""
    import random

    pause = FIRST_PAUSE
    for attempt in range(1, TRIES + 1):
        try:
            return call()
        except Exception as error:
            final = _final(url, error)
            if final is not None:
                raise final from None
            if attempt == TRIES or threads.is_interrupted():
                raise OSError(errno.EIO, f"{_reason(error)} (after {attempt} attempts)", url) from None
            # A single temporary failure is common; one that takes seconds is not.
            log = logger().warning if attempt > 2 or _is_timeout(error) else logger().info
            log("%s: %s; retrying (attempt %d of %d)", url, _reason(error), attempt + 1, TRIES)
        threads.pause(pause * random.uniform(0.5, 1.5))  # so that many readers do not retry at the same time
        pause = min(2 * pause, LONGEST_PAUSE)
    raise AssertionError("the last attempt returns or raises")


def _reason(error: Exception) -> str:
    if _is_timeout(error):
        return f"the store sent nothing for {clients.stall_seconds():g} s, or did not finish in time"
    return f"{type(error).__name__}: {first_line(error)}"


def _is_timeout(error: Exception) -> bool:
    return "TimedOut" in repr(error) or "kind: Timeout" in repr(error)


def _final(url: str, error: Exception) -> Exception | None:
    """Return the exception to raise for a permanent failure; None for a temporary one."""
    from obstore import exceptions as kinds

    if isinstance(error, FileNotFoundError):
        return FileNotFoundError(errno.ENOENT, "No such object", url)
    if isinstance(error, (FileExistsError, kinds.AlreadyExistsError)):
        return FileExistsError(errno.EEXIST, "The object exists", url)
    if isinstance(error, (kinds.PermissionDeniedError, kinds.UnauthenticatedError)):
        return PermissionError(errno.EACCES, f"The store denies access: {first_line(error)}", url)
    if isinstance(error, kinds.PreconditionError):
        return JobError(f"{url} changed while it was read: start again")
    if isinstance(error, kinds.NotSupportedError):
        return JobError(f"{url}: the store cannot do this: {first_line(error)}")
    retryable = (kinds.GenericError, OSError, TimeoutError)
    return None if isinstance(error, retryable) and not isinstance(error, MissingExtra) else error
