"""Checksums next to a file, `<file>.fpsum`: how they are read, and the objects in stores that are compared with them.

A JSON object: "format" (1), "algorithm" ("xxh3_128"), "block_bytes", "size" and "mtime_ns" of the file, and "blocks",
the hash of each block in hexadecimal, the last block being as long as what is left.
"""

from __future__ import annotations

import json
import logging
import posixpath
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from fastpack.errors import FormatError, MissingExtra
from fastpack.io import stores as remote
from fastpack.io.if_exists import CHECKSUMS, PathLike

MAX_BYTES = 64 << 20  # of a side-car
READS = 3  # of a block that differs from its checksum
_OWN_CHECKS = (CHECKSUMS, ".fpm")  # of objects that have none: they carry a checksum in themselves, or are one
_log = logging.getLogger("fastpack")


@dataclass(frozen=True, slots=True)
class Checksums:
    """The contents of a side-car: size in bytes, modification time in ns, and the hash of each `block_bytes`."""

    size: int
    mtime_ns: int
    blocks: list[str]
    block_bytes: int


def load_hash() -> Any:
    """xxhash's xxh3_128; MissingExtra where it is not installed."""
    try:
        import xxhash
    except ImportError as error:
        raise MissingExtra("xxhash", "checksum", "checking and writing checksums (.fpsum)") from error
    return xxhash.xxh3_128


def parse_checksums(where: PathLike, text: bytes) -> Checksums:
    """The checksums in the side-car `where`. Raises FormatError."""
    try:
        if len(text) > MAX_BYTES:
            raise ValueError(f"more than {MAX_BYTES} bytes")
        return _parsed(json.loads(text))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise FormatError(where, 0, f"{type(error).__name__}: {error}", "checksums as fastpack writes them") from None


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


class ObjectSums:
    """The checksums of one version of an object, looked for when the first of its bytes are asked for."""

    def __init__(self, url: str, status: remote.Status) -> None:
        self._url, self._status = url, status
        self._found: Checksums | None = None
        self._is_known = url.endswith(_OWN_CHECKS)

    def get(self) -> Checksums | None:
        """The checksums; None where there are none, or where xxhash is not installed (logged).

        Raises FormatError for a side-car that is damaged or of an object of another size.
        """
        if not self._is_known:
            self._found = self._load()
            self._is_known = True
        return self._found

    def _load(self) -> Checksums | None:
        if have_sums(self._url) is False:
            return None
        where = self._url + CHECKSUMS
        try:
            text, _ = remote.read_head(where, MAX_BYTES + 1)
        except (FileNotFoundError, PermissionError):  # S3 refuses access to what is not there to those who may not list
            return None
        try:
            load_hash()
        except MissingExtra as error:
            _log.warning("%s is not compared with its checksums: %s", self._url, error)
            return None
        found = parse_checksums(where, text)
        if found.size != self._status.st_size:
            expected = f"{found.size}, as {where} says: remove that file if the object was replaced on purpose"
            what = f"an object of {self._status.st_size} bytes"
            raise FormatError(self._url, min(found.size, self._status.st_size), what, expected)
        return found

    def widened(self, start: int, end: int) -> tuple[int, int]:
        """The bytes [start, end) and what else belongs to their blocks of checksums."""
        sums = self.get()
        if sums is None:
            return start, end
        n_bytes = sums.block_bytes
        return start // n_bytes * n_bytes, min(-(-end // n_bytes) * n_bytes, sums.size)

    def first_wrong(self, data: memoryview, start: int) -> int | None:
        """Where the first block begins that differs from its checksum; data: whole blocks from byte `start` on."""
        sums = self.get()
        if sums is None:
            return None
        new_hash, n_bytes = load_hash(), sums.block_bytes
        for at in range(0, len(data), n_bytes):
            if new_hash(data[at : at + n_bytes]).hexdigest() != sums.blocks[(start + at) // n_bytes]:
                return start + at
        return None

    def damage(self, at: int) -> FormatError:
        """The error for a block at byte `at` that differs from its checksum however often it is read."""
        expected = (
            f"that of its checksum: the object is damaged, or the data on their way from the store; "
            f"if it was replaced on purpose, remove {self._url}{CHECKSUMS}"
        )
        return FormatError(self._url, at, f"a block with other content, in {READS} reads", expected)


_listed: dict[str, set[str]] = {}  # folder -> the files in it that have checksums, by listings of this process
_MOST_LISTED = 10_000


def note_listing(folder: str, ways: Iterable[str]) -> None:
    """Remember which objects of a folder have checksums, so that nobody has to ask for each of them.

    ways: of all objects in the folder, or in it and below it, from there.
    """
    if len(_listed) > _MOST_LISTED:
        _listed.clear()
    found: dict[str, set[str]] = {folder: set()}
    for way in ways:
        inside = found.setdefault(posixpath.dirname(f"{folder}/{way}"), set())
        if way.endswith(CHECKSUMS):
            inside.add(posixpath.basename(way).removesuffix(CHECKSUMS))
    _listed.update(found)


def forget_listing(url: str) -> None:
    """Forget what is known of the folder of an object."""
    _listed.pop(posixpath.dirname(url), None)


def have_sums(url: str) -> bool | None:
    """Whether a listing of this process found checksums for an object; None where there was no listing."""
    names = _listed.get(posixpath.dirname(url))
    return None if names is None else posixpath.basename(url) in names
