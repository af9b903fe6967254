"""obstore's clients of object stores, one for each store and group of settings; a forked process must not use them.

Settings (endpoint, keys, region) come from the environment, under the names that each store's own tools use.
"""

from __future__ import annotations

import ctypes
import errno
import os
import threading
from datetime import timedelta
from typing import Any

from fastpack.errors import JobError, MissingExtra

TIMEOUT = "60 seconds"  # of a whole request: one whose body trickles for longer is repeated
UPLOAD_TIMEOUT = "300 seconds"  # of a request that sends up to 16 MiB, or has the store put parts together
STALL_SECONDS = 10.0  # default of FASTPACK_STALL_SECONDS

_SCHEMES = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "azure": "az"}  # fsspec's and Hadoop's names -> obstore's
_GOOGLE_EMULATOR = "STORAGE_EMULATOR_HOST"  # the name that Google's own tools use
_PREFIXES = ("AWS_", "GOOGLE_", "AZURE_", "AZURITE_", _GOOGLE_EMULATOR)  # of the settings in the environment
SCHEMES = ("s3", "gs", "az", "abfs", "abfss", "adl", "http", "https", *_SCHEMES)

_stores: dict[tuple[Any, ...], Any] = {}  # by root and settings
_lock = threading.Lock()
_owner: int | None = None  # the process whose threads obstore runs in; a fork of it must not use them


def load_obstore() -> Any:
    """The module obstore; MissingExtra where it is not installed."""
    global _owner
    try:
        import obstore
    except ImportError:
        raise MissingExtra("obstore", "remote", "reading and writing objects in a store") from None
    if _owner is None:
        _owner = os.getpid()
    return obstore


def is_forked() -> bool:
    """Whether this process was forked from one that used obstore."""
    return _owner is not None and _owner != os.getpid()


def _forget_stores() -> None:
    """In a forked child: leave the parent's stores alone, for good; even to free them would close its connections."""
    global _lock
    _lock = threading.Lock()
    for store in _stores.values():
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(store))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_stores)


def stall_seconds() -> float:
    """Seconds without a byte after which a request is given up: FASTPACK_STALL_SECONDS, else 10.

    Raises ValueError for a text that is not a positive number.
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
    """The store and the object's name in it; sends: for a request that sends a large body, see `_options`."""
    root, key = parts_of(url)
    if not key:
        raise FileNotFoundError(errno.ENOENT, "This is a store, not an object in it", url)
    return _store(root, sends), key


def open_folder(url: str) -> tuple[Any, str]:
    """The store and what the names of all objects in a folder begin with."""
    root, key = parts_of(url)
    return _store(root), f"{key}/" if key else ""


def parts_of(url: str) -> tuple[str, str]:
    """The root of a store by obstore's name of it, and the rest of a URL."""
    scheme, _, rest = url.partition("://")
    if scheme.lower() in ("file", "local"):
        raise JobError(f"{url}: the path of a local file is given whole, as in {scheme}:///folder/file")
    if scheme.lower() not in SCHEMES:
        known = ", ".join(f"{name}://" for name in SCHEMES)
        raise JobError(f"{url}: there is no way to {scheme}:// from here; fastpack reads and writes {known}")
    host, _, key = rest.partition("/")
    return f"{_SCHEMES.get(scheme.lower(), scheme.lower())}://{host}", key.strip("/")


def _store(root: str, sends: bool = False) -> Any:
    load_obstore()
    from obstore.store import from_url

    settings = {name: value for name, value in os.environ.items() if name.startswith(_PREFIXES)}
    stall = None if sends else stall_seconds()
    key = (root, TIMEOUT, UPLOAD_TIMEOUT, stall, *sorted(settings.items()))
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
                    client_options=_options(plain or emulator is not None, stall),
                    retry_config={"max_retries": 0},  # `retried` does, and also for bodies that come short
                )
            except Exception as error:
                raise JobError(f"{root}: no store can be reached by that: {first_line(error)}") from None
        return _stores[key]


def _options(plain: bool, stall: float | None) -> Any:
    """Options of the HTTP client.

    stall: the store may not be silent for longer. The client counts the time in which a request's own body is sent as
    silence, so uploads have only `UPLOAD_TIMEOUT`.
    """
    options: dict[str, Any] = {"allow_http": plain}
    if stall is None:
        return options | {"timeout": UPLOAD_TIMEOUT}
    return options | {"timeout": TIMEOUT, "read_timeout": timedelta(seconds=stall)}


def first_line(error: Exception) -> str:
    """The first line of an error's text."""
    return (str(error).strip().splitlines() or [""])[0][:300]


def _google_at(address: str) -> Any:
    """What has Google's client ask another server than Google's, without keys."""
    import json

    base = address if "://" in address else f"http://{address}"
    account = {"gcs_base_url": base, "disable_oauth": True, "client_email": "", "private_key": "", "private_key_id": ""}
    return {"service_account_key": json.dumps(account)}
