"""Writing and reading the optional checksums of a file, `<file>.fpsum`; `checksum_blocks` describes the format."""

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

BLOCK_BYTES = 256 << 10  # the size of a random read of an object, so that each read can be checked
MOST_BLOCKS = 1 << 16  # a sidecar of 2.4 MB; files of more than 16 GiB have larger blocks
_READ_BYTES = 1 << 20  # per read; fits into the second-level cache between reading and hashing


def sidecar_path(path: PathLike) -> AnyPath:
    """Return the path of the checksums of a file."""
    return as_path(f"{plain_path(path)}{CHECKSUMS}")


def block_bytes_of(size: int) -> int:
    """Return the bytes per hashed block for a file of `size` bytes: 256 KiB, or enough for at most 65,536 blocks."""
    block_bytes = BLOCK_BYTES
    while size > MOST_BLOCKS * block_bytes:
        block_bytes *= 2
    return block_bytes


def compute_checksums(path: PathLike, block_bytes: int | None = None, progress: Progress | None = None) -> Checksums:
    """Read a file and hash its blocks; raises MissingExtra without xxhash, FormatError if the file shrinks."""
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
            chunk = buffer[: min(_READ_BYTES, end - start)]
            done = file.read_into(chunk, start)
            if done < len(chunk):
                raise FormatError(path, start + done, "the end of the file", f"{size} bytes, as when it was opened")
            digest.update(chunk.data)
        if progress is not None:
            progress(end, size)
        yield digest.hexdigest()


def file_hash(path: PathLike) -> bytes:
    """Return the xxh3_128 of a whole file, 16 bytes; raises MissingExtra without xxhash, FormatError if it shrinks."""
    size = stat_of(path).st_size
    (digest,) = _hashes(path, size, max(1, size), None) if size else (load_hash()().hexdigest(),)
    return bytes.fromhex(digest)


def write_checksums(path: PathLike, *, block_bytes: int | None = None, progress: Progress | None = None) -> AnyPath:
    r"""Write the checksums of a file to `<path>.fpsum`, replacing existing ones.

    `verify` and reads from object stores compare the file with its checksums.

    Parameters
    ----------
    path
        The file, or the URL of an object.
    block_bytes
        Bytes per checksum. The default is 256 KiB, and more for files of more than 16 GiB.
    progress
        Called with (bytes done, total bytes).

    Returns
    -------
    Path
        The path of the checksums; a `RemotePath` for an object.

    Raises
    ------
    FileNotFoundError
        If the file does not exist.
    MissingExtra
        If xxhash is not installed (extra `checksum`).
    FormatError
        If the file shrinks while it is read.

    Examples
    --------
    >>> import fastpack, tempfile
    >>> from pathlib import Path
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = Path(folder.name, "corpus.jsonl")
    >>> _ = path.write_text('{"text": "Hello"}\n')
    >>> fastpack.write_checksums(path).name
    'corpus.jsonl.fpsum'
    >>> fastpack.verify(path).is_sound
    True
    >>> folder.cleanup()
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
    """Read the checksums of a file; raises FileNotFoundError, or FormatError if they cannot be parsed."""
    where = sidecar_path(path)
    return parse_checksums(where, read_start(where, MAX_BYTES + 1))


def are_current(path: PathLike) -> bool:
    """Return whether a file has checksums that record its current size and modification time; it is not read."""
    status = stat_of(path)
    try:
        recorded = read_checksums(path)
    except (FileNotFoundError, FormatError):
        return False
    return (recorded.size, recorded.mtime_ns) == (status.st_size, status.st_mtime_ns)
