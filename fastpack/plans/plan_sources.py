"""The sources of a plan, and the fingerprints that tell whether they are still the files that it was made from."""

from __future__ import annotations

import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from fastpack.errors import JobError
from fastpack.io import PathLike, as_path, exists, is_remote, open_bytes, real_path, stat_of
from fastpack.io.stores import Status
from fastpack.tokens.formats import open_tokens
from fastpack.tokens.interop_formats import FOLDER_FORMATS, output_files
from fastpack.tokens.token_file import TokenFile

_EDGE = 4096  # bytes at both ends of a file that the checksum covers
_SIDE_FILES = ("megatron", "datatrove", "olmo")


class FileFingerprint(NamedTuple):
    """What identifies one file of a source.

    Attributes
    ----------
    path
        As `PlanSource.path`.
    n_bytes, mtime_ns
        Size and modification time.
    edges
        CRC-32 of the first and last 4 KiB in hexadecimal; of an object in a store, its tag.
    """

    path: str
    n_bytes: int
    mtime_ns: int
    edges: str


@dataclass(frozen=True, slots=True)
class PlanSource:
    """One pass over a token file that a plan was made from.

    Attributes
    ----------
    path
        The path of the token file; relative to the folder of the plan if it was given as a relative path.
    format, dtype, eos_token_id
        As for `open_tokens`.
    n_documents
        Number of documents of the token file.
    n_tokens
        Number of tokens in them.
    fingerprint
        The files that it consists of.
    """

    path: str
    format: str
    dtype: str
    eos_token_id: int | None
    n_documents: int
    n_tokens: int
    fingerprint: tuple[FileFingerprint, ...]


def folder_of(plan: PathLike) -> str:
    """Return the folder that relative paths in a plan start from."""
    return os.fspath(as_path(real_path(plan)).parent)


def stored_path(path: str, folder: str) -> str:
    """Return a path as a plan in `folder` stores it: relative to the folder, unless it is absolute or a URL."""
    if is_remote(path) or os.path.isabs(path):
        return path
    return os.path.abspath(path) if is_remote(folder) else os.path.relpath(os.path.realpath(path), folder)


def resolved_path(path: str, folder: str) -> str:
    """Return the path of a file that a plan in `folder` stores as `path`."""
    return path if is_remote(path) or os.path.isabs(path) else os.path.normpath(os.path.join(folder, path))


def files_of(tokens: TokenFile) -> list[str]:
    """Return the files that a token file consists of."""
    files = [segment.path for segment in tokens.segments()]
    if tokens.format in _SIDE_FILES:
        files += [os.fspath(file) for file in output_files(tokens.format, as_path(tokens.path)) if exists(file)]
    elif tokens.format in FOLDER_FORMATS:
        files.append(os.fspath(as_path(tokens.path) / "index.json"))
    elif tokens.format == "manifest":
        files.append(tokens.path)
    return list(dict.fromkeys(files))


def file_fingerprint(path: str, folder: str) -> FileFingerprint:
    """Return the fingerprint of a file, for a plan in `folder`."""
    status = stat_of(path)
    if isinstance(status, Status):
        edges = status.tag or ""
    else:
        data = open_bytes(path)
        edges = f"{zlib.crc32(data[-_EDGE:].tobytes(), zlib.crc32(data[:_EDGE].tobytes())):08x}"
    return FileFingerprint(stored_path(path, folder), status.st_size, status.st_mtime_ns, edges)


def newest_time(sources: Sequence[PlanSource]) -> int:
    """Return the modification time of a plan, that of its newest source; 0 if none has one.

    As long as a plan has this time, it and its sources are no copies with new times, so the times of sources count.
    Some file systems keep no nanoseconds.
    """
    newest = max((file.mtime_ns for source in sources for file in source.fingerprint), default=0)
    return -(-newest // 1000) * 1000


def check_source(source: PlanSource, folder: str, *, times_count: bool) -> None:
    """Raise JobError for the first file of a source that changed; times_count: compare modification times as well."""
    for known in source.fingerprint:
        path = resolved_path(known.path, folder)
        if not exists(path):
            raise JobError(f"{path} is missing: the plan was made from it. Restore it, or make the plan again.")
        found = file_fingerprint(path, folder)
        if found.n_bytes != known.n_bytes:
            changed = f"it has {found.n_bytes} bytes, and had {known.n_bytes}"
        elif found.edges != known.edges:
            changed = "its size is the same, its contents differ"
        elif times_count and found.mtime_ns != known.mtime_ns:
            changed = "it was modified; its size is the same"
        else:
            continue
        raise JobError(f"{path} has changed since the plan was made: {changed}. Make the plan again.")


def open_source(source: PlanSource, folder: str) -> TokenFile:
    """Open a source. Raises JobError if it has another number of documents or tokens than the plan says."""
    path = resolved_path(source.path, folder)
    has_dtype = source.format in ("bin", "olmo", "nanogpt", "mds")
    dtype = source.dtype if has_dtype else None
    tokens = open_tokens(path, format=source.format, dtype=dtype, eos_token_id=source.eos_token_id)
    if tokens.n_documents is None or tokens.n_documents != source.n_documents:
        found = f"{tokens.n_documents} documents"
        raise JobError(f"{path} has {found}, and had {source.n_documents} when the plan was made. Make the plan again.")
    return tokens


def open_all(sources: Sequence[PlanSource], folder: str, *, times_count: bool) -> list[TokenFile]:
    """Open the sources, each file once however many passes over it there are."""
    opened: dict[PlanSource, TokenFile] = {}
    for source in sources:
        if source not in opened:
            check_source(source, folder, times_count=times_count)
            opened[source] = open_source(source, folder)
    return [opened[source] for source in sources]


def source_from(fields: Any) -> PlanSource:
    """Return the source that JSON stores; ValueError if it is not one."""
    kinds = {"path": str, "format": str, "dtype": str, "n_documents": int, "n_tokens": int, "fingerprint": list}
    if not isinstance(fields, dict) or set(fields) != set(PlanSource.__slots__):
        raise ValueError("fields of a source")
    if any(type(fields[name]) is not kind for name, kind in kinds.items()):
        raise ValueError("a field of a source of another type")
    if type(fields["eos_token_id"]) not in (int, type(None)) or min(fields["n_documents"], fields["n_tokens"]) < 0:
        raise ValueError("a field of a source out of range")
    for row in fields["fingerprint"]:
        if not isinstance(row, list) or [type(value) for value in row] != [str, int, int, str]:
            raise ValueError("a fingerprint of a file")
    fingerprint = tuple(FileFingerprint(*row) for row in fields["fingerprint"])
    return PlanSource(**{**fields, "fingerprint": fingerprint})
