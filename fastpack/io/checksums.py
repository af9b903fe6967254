"""Writing checksums next to a file, `<file>.fpsum`, and reading them; see `fastpack.io.checksum_blocks` for the format.

They are optional: no format here has checksums in itself, and the file stays as it is.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np

from fastpack.errors import FormatError
from fastpack.io import (
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
from fastpack.io.checksum_blocks import MAX_BYTES, Checksums, load_hash, parse_checksums

__all__ = [
    "Checksums",
    "are_current",
    "compute_checksums",
    "file_hash",
    "load_hash",
    "read_checksums",
    "sidecar_path",
    "write_checksums",
]

BLOCK_BYTES = 256 << 10  # as much of an object as is read at random is read at once, and can be checked then
MOST_BLOCKS = 1 << 16  # a side-car of 2.4 MB; blocks of files of more than 16 GiB are larger
_READ_BYTES = 1 << 20  # at once: they stay in the second-level cache between reading and hashing


def sidecar_path(path: PathLike) -> AnyPath:
    """Where the checksums of a file are."""
    return as_path(f"{plain_path(path)}{CHECKSUMS}")


def block_bytes_of(size: int) -> int:
    """How long the blocks are that are hashed of a file of `size` bytes: 256 KiB, or what gives 65,536 blocks."""
    block_bytes = BLOCK_BYTES
    while size > MOST_BLOCKS * block_bytes:
        block_bytes *= 2
    return block_bytes


def compute_checksums(path: PathLike, block_bytes: int | None = None, progress: Progress | None = None) -> Checksums:
    """Read a file, by `pread`, and hash its blocks. Raises MissingExtra without xxhash; FormatError when it shrinks."""
    status = stat_of(path)
    block_bytes = block_bytes or block_bytes_of(status.st_size)
    blocks = list(_hashes(path, status.st_size, block_bytes, progress))
    return Checksums(status.st_size, status.st_mtime_ns, blocks, block_bytes)


def _hashes(path: PathLike, size: int, block_bytes: int, progress: Progress | None) -> Iterator[str]:
    new_hash = load_hash()
    file, buffer = open_reader(path, checked=False), np.empty(_READ_BYTES, np.uint8)
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


def write_checksums(path: PathLike, *, block_bytes: int | None = None, progress: Progress | None = None) -> AnyPath:
    """Write the checksums of a file beside it, replacing those that were there; returns where they are.

    block_bytes: of a hash; by default 256 KiB, more for files of more than 16 GiB.
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
    return parse_checksums(where, read_start(where, MAX_BYTES + 1))


def are_current(path: PathLike) -> bool:
    """Whether a file has checksums of its present size and time of change; it is not read."""
    status = stat_of(path)
    try:
        said = read_checksums(path)
    except (FileNotFoundError, FormatError):
        return False
    return (said.size, said.mtime_ns) == (status.st_size, status.st_mtime_ns)
