"""obstore's clients of object stores, one per store and settings; a forked process must not use them.

Settings (endpoint, keys, region) come from the environment variables that each store's own tools use.
"""

from __future__ import annotations

import ctypes
import errno
import os
import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from fastpack.errors import JobError, import_extra
from fastpack.io.hugging_face import content_root, is_hub, split_hub_url

if TYPE_CHECKING:
    import logging

TIMEOUT = "60 seconds"  # of a whole request; a slower one is retried
UPLOAD_TIMEOUT = "300 seconds"  # of a request that sends up to 16 MiB, or that completes a multipart upload
STALL_SECONDS = 10.0  # default of FASTPACK_STALL_SECONDS

_SCHEMES = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "azure": "az"}  # fsspec's and Hadoop's names -> obstore's
_GOOGLE_EMULATOR = "STORAGE_EMULATOR_HOST"  # as Google's own tools
_PREFIXES = ("AWS_", "GOOGLE_", "AZURE_", "AZURITE_", _GOOGLE_EMULATOR)  # of environment variables
SCHEMES = ("s3", "gs", "az", "abfs", "abfss", "adl", "http", "https", "hf", *_SCHEMES)

_stores: dict[tuple[Any, ...], Any] = {}  # by root and settings
_lock = threading.Lock()
_owner: int | None = None  # the process that runs obstore's threads, which a forked process must not use


def logger() -> logging.Logger:
    """Return the logger of fastpack. `logging` takes 4 ms to import, and most processes log nothing."""
    import logging

    return logging.getLogger("fastpack")


def load_obstore() -> Any:
    """Import obstore; raises MissingExtra if it is not installed."""
    global _owner
    obstore = import_extra("obstore", "remote", "reading and writing objects in a store")
    if _owner is None:
        _owner = os.getpid()
    return obstore


def is_forked() -> bool:
    """Return whether this process was forked from one that used obstore."""
    return _owner is not None and _owner != os.getpid()


def _forget_stores() -> None:
    """In a forked child: never free the parent's stores, which would close its connections."""
    global _lock
    _lock = threading.Lock()
    for store in _stores.values():
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(store))


os.register_at_fork(after_in_child=_forget_stores)


def stall_seconds() -> float:
    """Return the seconds without a byte after which a request fails: FASTPACK_STALL_SECONDS, else 10.

    Raises ValueError if it is not a positive number.
    """
    text = os.environ.get("FASTPACK_STALL_SECONDS")
    if text is None:
        return STALL_SECONDS
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.001 <= seconds <= 86_400:
        raise ValueError(f"FASTPACK_STALL_SECONDS is {text!r}: give a number of seconds, such as 10")
    return seconds


def open_object(url: str, *, sends: bool = False) -> tuple[Any, str]:
    """Return the client and the object's name; sends: for a request with a large body, see `_options`."""
    root, key = split_url(url)
    if not key:
        raise FileNotFoundError(errno.ENOENT, "This is a store, not an object", url)
    return _store(root, sends), key


def open_folder(url: str) -> tuple[Any, str]:
    """Return the client and the prefix of the names of all objects in a folder."""
    root, key = split_url(url)
    return _store(root), f"{key}/" if key else ""


def split_url(url: str) -> tuple[str, str]:
    """Split a URL into the root of the store, with obstore's scheme, and the rest."""
    scheme, _, rest = url.partition("://")
    if scheme.lower() in ("file", "local"):
        raise JobError(f"{url}: write a local file with an absolute path, as in {scheme}:///folder/file")
    if scheme.lower() not in SCHEMES:
        known = ", ".join(f"{name}://" for name in SCHEMES)
        raise JobError(f"{url}: {scheme}:// is not supported; fastpack reads and writes {known}")
    if scheme.lower() == "hf":
        return split_hub_url(url)
    host, _, key = rest.partition("/")
    return f"{_SCHEMES.get(scheme.lower(), scheme.lower())}://{host}", key.strip("/")


def _store(root: str, sends: bool = False) -> Any:
    load_obstore()
    from obstore.store import from_url

    settings = {name: value for name, value in os.environ.items() if name.startswith(_PREFIXES)}
    stall = None if sends else stall_seconds()
    headers: dict[str, str] = {}
    if is_hub(root):
        root, headers = content_root(root)
    key = (root, TIMEOUT, UPLOAD_TIMEOUT, stall, *sorted(settings.items()), *headers.values())
    with _lock:
        if key not in _stores:
            emulator = settings.get(_GOOGLE_EMULATOR) if root.startswith("gs:") else None
            # A user-defined endpoint may be unencrypted, such as a store on the same machine.
            plain = root.startswith("http:") or any(
                value.startswith("http:") for name, value in settings.items() if "ENDPOINT" in name
            )
            try:
                _stores[key] = from_url(
                    root,
                    config=None if emulator is None else _google_at(emulator),
                    client_options=_options(plain or emulator is not None, stall) | {"default_headers": headers},
                    retry_config={"max_retries": 0},  # `_retry` in stores.py does, also for short bodies
                )
            except Exception as error:
                raise JobError(f"{root}: no store can be opened: {first_line(error)}") from None
        return _stores[key]


def _options(plain: bool, stall: float | None) -> Any:
    """Options of the HTTP client.

    stall: maximum seconds of silence. The client counts the time of sending a request's body as silence, so uploads
    have only `UPLOAD_TIMEOUT`.
    """
    options: dict[str, Any] = {"allow_http": plain}
    if stall is None:
        return options | {"timeout": UPLOAD_TIMEOUT}
    return options | {"timeout": TIMEOUT, "read_timeout": timedelta(seconds=stall)}


def first_line(error: Exception) -> str:
    """Return the first line of an error's message."""
    return (str(error).strip().splitlines() or [""])[0][:300]


def _google_at(address: str) -> Any:
    """Return the settings with which Google's client uses another server, without keys."""
    import json

    base = address if "://" in address else f"http://{address}"
    account = {"gcs_base_url": base, "disable_oauth": True, "client_email": "", "private_key": "", "private_key_id": ""}
    return {"service_account_key": json.dumps(account)}
