"""Reading checksums of a file (`<file>.fpsum`), and checking objects in stores against them.

The sidecar is a JSON object: "format" (1), "algorithm" ("xxh3_128"), "block_bytes", "size" and "mtime_ns" of the file,
and "blocks", the hash of each block in hexadecimal. The last block may be shorter.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from fastpack.errors import FormatError, MissingExtra, import_extra
from fastpack.io import stores as remote
from fastpack.io.if_exists import CHECKSUMS, MASK, PathLike
from fastpack.io.store_clients import logger
from fastpack.io.store_listings import is_listed

MAX_BYTES = 64 << 20  # of a sidecar
READS = 3  # attempts to read a block that differs from its checksum
_OWN_CHECKS = (CHECKSUMS, MASK, ".fpm")  # suffixes of objects without a sidecar: they contain their own checksum


@dataclass(frozen=True, slots=True)
class Checksums:
    """The contents of a sidecar: size in bytes, modification time in ns, and the hash of each `block_bytes`."""

    size: int
    mtime_ns: int
    blocks: list[str]
    block_bytes: int


def load_hash() -> Any:
    """Return xxhash's xxh3_128; raises MissingExtra if it is not installed."""
    return import_extra("xxhash", "checksum", "checking and writing checksums (.fpsum)").xxh3_128


def parse_checksums(where: PathLike, text: bytes) -> Checksums:
    """Parse the sidecar `where`; raises FormatError."""
    try:
        if len(text) > MAX_BYTES:
            raise ValueError(f"more than {MAX_BYTES} bytes")
        return _parse(json.loads(text))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise FormatError(where, 0, f"{type(error).__name__}: {error}", "checksums as fastpack writes them") from None


def _parse(tree: Any) -> Checksums:
    if (tree["format"], tree["algorithm"]) != (1, "xxh3_128"):
        raise ValueError(f"format {tree['format']!r} of {tree['algorithm']!r}")
    size, mtime_ns, block_bytes = (tree[name] for name in ("size", "mtime_ns", "block_bytes"))
    blocks = tree["blocks"]
    if not all(type(number) is int for number in (size, mtime_ns, block_bytes)) or size < 0 or block_bytes < 1:
        raise ValueError("size, mtime_ns or block_bytes is not a valid integer")
    if not isinstance(blocks, list) or not all(isinstance(block, str) for block in blocks):
        raise ValueError("blocks is not a list of strings")
    if len(blocks) != -(-size // block_bytes):
        raise ValueError(f"{len(blocks)} blocks of {block_bytes} bytes for {size} bytes")
    return Checksums(size, mtime_ns, blocks, block_bytes)


class ObjectSums:
    """The checksums of one version of an object, loaded when its first bytes are read."""

    def __init__(self, url: str, status: remote.Status) -> None:
        self._url, self._status = url, status
        self._found: Checksums | None = None
        self._is_known = url.endswith(_OWN_CHECKS)

    def get(self) -> Checksums | None:
        """Return the checksums; None if there are none, or if xxhash is not installed (logged).

        Raises FormatError for a sidecar that is damaged or belongs to an object of another size.
        """
        if not self._is_known:
            self._found = self._load()
            self._is_known = True
        return self._found

    def _load(self) -> Checksums | None:
        where = self._url + CHECKSUMS
        if is_listed(where) is False:
            return None
        try:
            text, _ = remote.read_head(where, MAX_BYTES + 1)
        except (FileNotFoundError, PermissionError):  # S3 denies access to a missing object without list permission
            return None
        try:
            load_hash()
        except MissingExtra as error:
            logger().warning("%s is not compared with its checksums: %s", self._url, error)
            return None
        found = parse_checksums(where, text)
        if found.size != self._status.st_size:
            expected = f"{found.size}, as recorded in {where}: remove that file if the object was replaced on purpose"
            what = f"an object of {self._status.st_size} bytes"
            raise FormatError(self._url, min(found.size, self._status.st_size), what, expected)
        return found

    def widened(self, start: int, end: int) -> tuple[int, int]:
        """Return the range [start, end), extended to whole blocks of checksums."""
        sums = self.get()
        if sums is None:
            return start, end
        n_bytes = sums.block_bytes
        return start // n_bytes * n_bytes, min(-(-end // n_bytes) * n_bytes, sums.size)

    def first_wrong(self, data: memoryview, start: int) -> int | None:
        """Return the offset of the first block that differs from its checksum; data: whole blocks from `start` on."""
        sums = self.get()
        if sums is None:
            return None
        new_hash, n_bytes = load_hash(), sums.block_bytes
        for at in range(0, len(data), n_bytes):
            if new_hash(data[at : at + n_bytes]).hexdigest() != sums.blocks[(start + at) // n_bytes]:
                return start + at
        return None

    def damage(self, at: int) -> FormatError:
        """Return the error for a block at byte `at` that differs from its checksum in every read."""
        expected = (
            f"the content of its checksum: the object is damaged, or the transfer from the store; "
            f"if it was replaced on purpose, remove {self._url}{CHECKSUMS}"
        )
        return FormatError(self._url, at, f"a block with different content in {READS} reads", expected)
