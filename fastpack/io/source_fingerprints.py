"""Fingerprints of source files: they tell whether a file is still the one that a job was planned for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from fastpack.errors import JobError
from fastpack.io.paths import absolute, stat_of


class Fingerprint(NamedTuple):
    """A file's absolute path, size in bytes and modification time in nanoseconds; JSON stores it as a list."""

    path: str
    n_bytes: int
    mtime_ns: int


def fingerprint(path: str) -> Fingerprint:
    """Return the fingerprint of a file. Raises FileNotFoundError."""
    status = stat_of(path)
    return Fingerprint(absolute(path), status.st_size, status.st_mtime_ns)


def check_unchanged(fingerprints: Iterable[Sequence[Any]]) -> None:
    """Raise JobError for the first file that differs from its fingerprint."""
    for path, *known in fingerprints:
        if list(fingerprint(path)[1:]) != known:
            raise JobError(f"{path} has changed since the job was planned. Start the job again.")
