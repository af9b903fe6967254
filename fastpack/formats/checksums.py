"""Checksums beside a file, `<file>.fpsum`: what no format here has in itself. Optional; the file stays as it is.

A JSON object: "format" (1), "algorithm" ("xxh3_128"), "block_bytes" (64 MiB), "size" and "mtime_ns" of the file, and
"blocks", the hash of each block in hexadecimal, the last block being as long as what is left.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastpack.errors import FormatError, MissingExtra
from fastpack.files import (
    CHECKSUMS,
    AnyPath,
    AtomicFile,
    PathLike,
    Progress,
    as_path,
    is_remote,
    open_reader,
    plain_path,
    read_start,
    stat_of,
)

BLOCK_BYTES = 64 << 20
_READ_BYTES = 1 << 20  # at once: they stay in the second-level cache between reading and hashing
_MAX_BYTES = 64 << 20  # of a side-car: that of a file of 100 TiB


@dataclass(frozen=True, slots=True)
class Checksums:
    """What a side-car says: size in bytes, modification time in ns, and the hash of each `block_bytes`."""

    size: int
    mtime_ns: int
    blocks: list[str]
    block_bytes: int = BLOCK_BYTES


def sidecar_path(path: PathLike) -> AnyPath:
    """Where the checksums of a file are."""
    return as_path(f"{plain_path(path)}{CHECKSUMS}")


def compute_checksums(path: PathLike, block_bytes: int = BLOCK_BYTES, progress: Progress | None = None) -> Checksums:
    """Read a file, by `pread`, and hash its blocks. Raises MissingExtra without xxhash; FormatError when it shrinks."""
    status = stat_of(path)
    blocks = list(_hashes(path, status.st_size, block_bytes, progress))
    return Checksums(status.st_size, status.st_mtime_ns, blocks, block_bytes)


def load_hash() -> Any:
    """xxhash's xxh3_128; MissingExtra where it is not installed."""
    try:
        import xxhash
    except ImportError as error:
        raise MissingExtra("xxhash", "checksum", "checking and writing checksums (.fpsum)") from error
    return xxhash.xxh3_128


def _hashes(path: PathLike, size: int, block_bytes: int, progress: Progress | None) -> Iterator[str]:
    new_hash = load_hash()
    file, buffer = open_reader(path), np.empty(_READ_BYTES, np.uint8)
    for first in range(0, size, block_bytes):
        end = min(first + block_bytes, size)
        digest = new_hash()
        for start in range(first, end, _READ_BYTES):
            piece = buffer[: min(_READ_BYTES, end - start)]
            done = file.read_into(piece, start)
            if done < len(piece):
                raise FormatError(path, start + done, "the end of the file", f"{size} bytes, as when it was opened")
            digest.update(piece.data)
        if progress is not None:
            progress(end, size)
        yield digest.hexdigest()


def file_hash(path: PathLike) -> bytes:
    """The xxh3_128 of a whole file, 16 bytes. Raises MissingExtra without xxhash; FormatError when it shrinks."""
    size = stat_of(path).st_size
    (digest,) = _hashes(path, size, max(1, size), None) if size else (load_hash()().hexdigest(),)
    return bytes.fromhex(digest)


def write_checksums(path: PathLike, *, block_bytes: int = BLOCK_BYTES, progress: Progress | None = None) -> AnyPath:
    """Write the checksums of a file beside it, replacing those that were there; returns where they are.

    Raises FileNotFoundError; MissingExtra without xxhash (extra `checksum`); FormatError when the file shrinks.
    """
    sums = compute_checksums(path, block_bytes, progress)
    fields = {
        "format": 1,
        "algorithm": "xxh3_128",
        "block_bytes": sums.block_bytes,
        "size": sums.size,
        "mtime_ns": sums.mtime_ns,
        "blocks": sums.blocks,
    }
    target = sidecar_path(path)
    with AtomicFile(target) as output:
        if not is_remote(path):
            output.set_mode(stat_of(path).st_mode & 0o666)
        output.write(json.dumps(fields, indent=0).encode() + b"\n")
    return target


def read_checksums(path: PathLike) -> Checksums:
    """The checksums beside the file `path`. Raises FileNotFoundError; FormatError for what is none of ours."""
    where = sidecar_path(path)
    text = read_start(where, _MAX_BYTES + 1)
    try:
        if len(text) > _MAX_BYTES:
            raise ValueError(f"more than {_MAX_BYTES} bytes")
        return _parsed(json.loads(text))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise FormatError(where, 0, f"{type(error).__name__}: {error}", "checksums as fastpack writes them") from None


def are_current(path: PathLike) -> bool:
    """Whether a file has checksums of its present size and time of change; it is not read."""
    status = stat_of(path)
    try:
        said = read_checksums(path)
    except (FileNotFoundError, FormatError):
        return False
    return (said.size, said.mtime_ns) == (status.st_size, status.st_mtime_ns)


def _parsed(tree: Any) -> Checksums:
    if (tree["format"], tree["algorithm"]) != (1, "xxh3_128"):
        raise ValueError(f"format {tree['format']!r} of {tree['algorithm']!r}")
    size, mtime_ns, block_bytes = (tree[name] for name in ("size", "mtime_ns", "block_bytes"))
    blocks = tree["blocks"]
    if not all(type(number) is int for number in (size, mtime_ns, block_bytes)) or size < 0 or block_bytes < 1:
        raise ValueError("numbers that are none")
    if not isinstance(blocks, list) or not all(isinstance(block, str) for block in blocks):
        raise ValueError("blocks that are no list of texts")
    if len(blocks) != -(-size // block_bytes):
        raise ValueError(f"{len(blocks)} blocks of {block_bytes} bytes for {size} bytes")
    return Checksums(size, mtime_ns, blocks, block_bytes)
