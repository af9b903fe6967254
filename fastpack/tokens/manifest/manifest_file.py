"""Manifests of token shards, `.fpm`: what a dataset needs to know about thousands of files, in one mapped file.

A header of 152 bytes, then columns with one number per shard, then the names. All numbers are little-endian.
`docs/formats.md` describes the layout byte by byte.
"""

from __future__ import annotations

import operator
import os
import struct
import time
import zlib
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastpack.errors import FormatError, JobError
from fastpack.io import AtomicFile, ExistencePolicy, PathLike, absolute, as_path, is_remote, map_bytes, stat_of
from fastpack.io.stores import hash_of

SUFFIX = ".fpm"
DEFAULT_NAME = "manifest.fpm"
UNKNOWN = -1  # documents that were not counted
PLAIN, RAW = 1, 2  # bits of the column `kinds`

MAGIC = b"\x89FPM\r\n\x1a\n"
VERSION = 1
HEADER = struct.Struct("<8sII3qQq12q")
AFTER_CRC = 16  # the CRC-32 covers the bytes from here on
_FLAGS = (  # from bit 0 on
    "has_checksums",
    "dtype_is_given",
    "dtype_is_doubtful",
    "has_zero_tail",
    "is_of_a_store",
    "mixes_tokenizers",
)

# A dtype is stored as its position in this list, which may only grow at the end.
DTYPES = tuple(
    np.dtype(f"{order}{kind}{size}")
    for order, kind, sizes in (
        ("|", "u", "1"),
        ("<", "u", "248"),
        ("|", "i", "1"),
        ("<", "i", "248"),
        (">", "u", "248"),
        (">", "i", "248"),
        ("<", "f", "248"),
        (">", "f", "248"),
        ("|", "b", "1"),
    )
    for size in sizes
)
_CODES = {dtype: code for code, dtype in enumerate(DTYPES)}
_ITEM_SIZES = np.array([dtype.itemsize for dtype in DTYPES], np.int64)

_DOT, _SLASH = ord("."), ord("/")


class Entry(NamedTuple):
    """The description of one shard.

    Attributes
    ----------
    name
        Path relative to the folder of the manifest, with "/" between components.
    size, mtime_ns
        Size and modification time of the file.
    offset, length, dtype
        `length` rows of `dtype` from byte `offset`.
    tokens
        Number of tokens in all rows.
    kind
        Bits PLAIN (one-dimensional, NumPy's format 1.0) and RAW (no header).
    documents
        Number of documents, or UNKNOWN.
    checksum
        xxh3_128, or zeros.
    """

    name: str
    size: int
    mtime_ns: int
    offset: int
    length: int
    tokens: int
    dtype: np.dtype[Any]
    kind: int
    documents: int = UNKNOWN
    checksum: bytes = bytes(16)


class Section(NamedTuple):
    """A section of the file: `per_shard` numbers of a dtype for each shard, and `extra` more."""

    name: str
    dtype: str
    per_shard: int = 1
    extra: int = 0


SECTIONS = (
    Section("sizes", "<i8"),
    Section("mtimes_ns", "<i8"),
    Section("offsets", "<i8"),
    Section("lengths", "<i8"),
    Section("tokens", "<i8"),
    Section("documents", "<i8"),
    Section("cumulative", "<i8", extra=1),
    Section("name_bounds", "<i8", extra=1),
    Section("checksums", "|u1", per_shard=16),
    Section("dtypes", "|u1"),
    Section("kinds", "|u1"),
    Section("names", "|u1", per_shard=0),
)


def is_manifest(path: PathLike) -> bool:
    """Return whether a path is that of a manifest, by its name; a local folder is never a manifest."""
    return os.fspath(path).endswith(SUFFIX) and (is_remote(path) or not os.path.isdir(as_path(path)))


class Manifest:
    """A mapped and validated manifest. Columns are read-only arrays [n_shards].

    Attributes
    ----------
    sizes, mtimes_ns, offsets, lengths, tokens, documents
        Columns, int64.
    cumulative
        Number of tokens before each shard, int64 [n_shards + 1].
    checksums
        xxh3_128 of each shard, uint8 [n_shards, 16].
    dtypes, kinds
        Positions in DTYPES, and bits of `Entry.kind`, uint8.
    crc
        CRC-32 of the contents.
    has_checksums
        Whether `checksums` is filled.
    dtype_is_given
        Whether the user gave the dtype of headerless shards.
    dtype_is_doubtful, has_zero_tail
        Warnings about headerless shards from when the manifest was written.
    mixes_tokenizers
        Whether shards had different recorded tokenizers when the manifest was written; not known in a store.
    times_count
        Whether the modification times of the shards must be those of the manifest, because the files are where they
        were when it was written. A local manifest must have the modification time that it contains (a copy has it only
        if times are copied too); in a store, the URL of the folder must be the same.

    Raises FileNotFoundError, and FormatError for a file that is not a manifest, is damaged, or names files outside its
    folder.
    """

    sizes: npt.NDArray[np.int64]
    mtimes_ns: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]
    tokens: npt.NDArray[np.int64]
    documents: npt.NDArray[np.int64]
    cumulative: npt.NDArray[np.int64]
    name_bounds: npt.NDArray[np.int64]
    checksums: npt.NDArray[np.uint8]
    dtypes: npt.NDArray[np.uint8]
    kinds: npt.NDArray[np.uint8]
    has_checksums: bool
    dtype_is_given: bool
    dtype_is_doubtful: bool
    has_zero_tail: bool
    mixes_tokenizers: bool
    is_of_a_store: bool

    def __init__(self, path: PathLike) -> None:
        self.path = os.fspath(path)
        data = map_bytes(path)
        self.n_bytes = data.nbytes
        self.crc, self.n_shards, flags, self._stamp = _read_header(data, self.path)
        for bit, name in enumerate(_FLAGS):
            setattr(self, name, bool(flags >> bit & 1))
        if self.is_of_a_store:
            self.times_count = is_remote(path) and _location_hash(path) == self._stamp
        else:
            self.times_count = not is_remote(path) and stat_of(as_path(path)).st_mtime_ns == self._stamp
        starts, end = _layout(self.n_shards, 0)
        for section, start in zip(SECTIONS[:-1], starts, strict=False):
            n_bytes = (self.n_shards * section.per_shard + section.extra) * np.dtype(section.dtype).itemsize
            setattr(self, section.name, data[start : start + n_bytes].view(section.dtype))
        self._starts = dict(zip((section.name for section in SECTIONS), starts, strict=True))
        self.checksums = self.checksums.reshape(-1, 16)
        self._names = data[end:]
        self._check_names()
        self._check_numbers()

    def name(self, number: int) -> str:
        """Return the path of a shard, relative to the folder of the manifest."""
        start, end = self.name_bounds[number : number + 2].tolist()
        return self._names[start : end - 1].tobytes().decode()

    def names(self) -> list[str]:
        """Return the paths of all shards, relative to the folder of the manifest."""
        return self._names[:-1].tobytes().decode().split("\0")

    def all_end_with(self, text: str, *, in_folder: bool = True) -> bool:
        """Return whether all names end in `text` and, with `in_folder`, contain no slash."""
        names = self._names.tobytes()
        return not (in_folder and b"/" in names) and names.count(text.encode() + b"\0") == self.n_shards

    def _wrong(self, section: str, number: int, found: str, expected: str) -> FormatError:
        width = 1 if section in ("names", "dtypes", "kinds") else 8
        return FormatError(self.path, self._starts[section] + width * number, found, expected)

    def _check_names(self) -> None:
        """Raise FormatError unless the names are in order, within their bounds, and lead into the folder."""
        names, bounds = self._names, self.name_bounds
        ends = np.flatnonzero(names == 0) + 1
        differ = bounds[1:] != ends if len(ends) == self.n_shards else np.ones(1, np.bool_)
        if bounds[0] != 0 or differ.any() or ends[-1] != len(names):
            number = 0 if bounds[0] else 1 + int(differ.argmax())
            raise self._wrong("name_bounds", number, f"a name's end at {bounds[number]}", "it after each zero byte")
        # Path components lie between slashes and zeros: none may be "", "." or "..", which lead elsewhere.
        component_ends = np.flatnonzero((names == 0) | (names == _SLASH))
        component_starts = np.concatenate([np.zeros(1, component_ends.dtype), component_ends[:-1] + 1])
        lengths = component_ends - component_starts
        dots = (lengths <= 2) & (names[component_starts] == _DOT) & (names[np.maximum(component_ends - 1, 0)] == _DOT)
        bad = (lengths == 0) | dots
        if bad.any():
            place = int(component_starts[bad.argmax()])
            number = int(np.searchsorted(bounds, place, "right")) - 1
            found = repr(bytes(names[bounds[number] : bounds[number + 1] - 1]))[1:]
            raise self._wrong("names", place, f"the name {found}", "a path within the folder of the manifest")
        try:
            paths = self.names()
        except UnicodeDecodeError as error:
            raise self._wrong("names", error.start, "a name that is not UTF-8", "UTF-8") from None
        keys = [path.replace("/", "\0") for path in paths] if (names == _SLASH).any() else paths
        rising = [*map(operator.lt, keys, keys[1:])]
        if not all(rising):
            number = rising.index(False) + 1
            raise self._wrong("names", int(bounds[number]), f"the name {paths[number]!r}", "names in order, each once")

    def _check_numbers(self) -> None:
        """Raise FormatError unless the columns are consistent."""
        plain = (self.kinds & PLAIN) != 0
        for name, lowest in (("sizes", 0), ("offsets", 0), ("lengths", 0), ("tokens", 0), ("documents", UNKNOWN)):
            column = getattr(self, name)
            self._refuse(name, column < lowest, f"{lowest} or more")
        self._refuse("dtypes", self.dtypes >= len(DTYPES), f"the number of a dtype, below {len(DTYPES)}")
        self._refuse("kinds", self.kinds > (PLAIN | RAW), f"at most {PLAIN | RAW}")
        available = (self.sizes - self.offsets) // _ITEM_SIZES[self.dtypes]
        self._refuse("lengths", plain & (self.lengths > available), "tokens within the size of the file")
        self._refuse("tokens", plain & (self.tokens != self.lengths), "the length, of a shard that is flat")
        # A larger sum might not fit 64 bits.
        if float(self.lengths.sum(dtype=np.float64)) >= 2.0**62:
            raise self._wrong("lengths", 0, "more than 2^62 rows", "fewer")
        steps = np.diff(self.cumulative) != self.tokens
        wrong = np.concatenate([self.cumulative[:1] != 0, steps | (np.diff(self.cumulative) < 0)])
        self._refuse("cumulative", wrong, "the tokens of all shards before")

    def _refuse(self, name: str, wrong: npt.NDArray[np.bool_], expected: str) -> None:
        if wrong.any():
            number = int(wrong.argmax())
            raise self._wrong(name, number, f"{getattr(self, name)[number]} in the column {name}", expected)


def _layout(n_shards: int, n_name_bytes: int) -> tuple[list[int], int]:
    """Start of each section, and end of the last one."""
    starts, end = [], HEADER.size
    for section in SECTIONS:
        starts.append(end)
        end += (n_shards * section.per_shard + section.extra) * np.dtype(section.dtype).itemsize
    return starts, end + n_name_bytes


def _read_header(data: npt.NDArray[np.uint8], path: str) -> tuple[int, int, int, int]:
    """Return CRC-32, number of shards, flags and stamp; FormatError."""
    if data.nbytes < HEADER.size or bytes(data[:8]) != MAGIC:
        raise FormatError(path, 0, repr(bytes(data[:8]))[1:], f"a manifest of shards, which begins with {MAGIC!r:.40}")
    _, version, crc, n_bytes, n_shards, n_name_bytes, flags, stamp, *starts = HEADER.unpack(data[: HEADER.size].data)
    if version != VERSION:
        raise FormatError(path, 8, f"version {version} of the format", f"{VERSION}: a newer fastpack may read it")
    if n_bytes != data.nbytes:
        raise FormatError(path, min(data.nbytes, max(n_bytes, 0)), f"a file of {data.nbytes} bytes", f"{n_bytes}")
    if (found := zlib.crc32(data[AFTER_CRC:].data)) != crc:
        raise FormatError(path, 12, f"the CRC-32 {crc:#010x} for bytes that have {found:#010x}", "its own")
    # With these bounds, nothing below can overflow.
    if not 0 < n_shards < data.nbytes or not 0 <= n_name_bytes < data.nbytes:
        raise FormatError(path, 24, f"{n_shards} shards with {n_name_bytes} bytes of names", "what fits the file")
    where, end = _layout(n_shards, n_name_bytes)
    if where != starts or end != n_bytes:
        raise FormatError(path, 56, f"sections at {starts}, ending at {end}", f"{where}, the file's end at {n_bytes}")
    if flags >> len(_FLAGS):
        raise FormatError(path, 40, f"the flags {flags:#x}", "those of version 1")
    return crc, n_shards, flags, stamp


def _location_hash(path: PathLike) -> int:
    """Return a hash of the folder, stored in a manifest in a store to detect copies."""
    return hash_of(os.fspath(as_path(path).parent))


def dtype_code(dtype: np.dtype[Any], path: PathLike) -> int:
    """Return the code of a dtype; JobError if it has none."""
    if dtype not in _CODES:
        raise JobError(f"{os.fspath(path)}: the dtype {dtype} cannot be in a manifest")
    return _CODES[dtype]


def write(
    path: PathLike,
    entries: Sequence[Entry],
    *,
    flags: Collection[str] = (),
    policy: ExistencePolicy = "error",
) -> int:
    """Write the manifest of shards, given in any order; return its size. `flags`: the attributes that are true.

    Raises TargetExists as `may_write`, JobError for a name that is not UTF-8.
    """
    entries = sorted(entries, key=lambda entry: entry.name.split("/"))
    try:
        blobs = [entry.name.encode() + b"\0" for entry in entries]
    except UnicodeEncodeError as error:
        raise JobError(f"{error.object!r}: a file whose name is not UTF-8 cannot be in a manifest") from None
    columns: dict[str, npt.ArrayLike] = {
        "sizes": [entry.size for entry in entries],
        "mtimes_ns": [entry.mtime_ns for entry in entries],
        "offsets": [entry.offset for entry in entries],
        "lengths": [entry.length for entry in entries],
        "tokens": [entry.tokens for entry in entries],
        "documents": [entry.documents for entry in entries],
        "cumulative": np.cumsum([0, *(entry.tokens for entry in entries)]),
        "name_bounds": np.cumsum([0, *map(len, blobs)]),
        "checksums": np.frombuffer(b"".join(entry.checksum for entry in entries), np.uint8),
        "dtypes": [dtype_code(entry.dtype, entry.name) for entry in entries],
        "kinds": [entry.kind for entry in entries],
        "names": np.frombuffer(b"".join(blobs), np.uint8),
    }
    starts, end = _layout(len(entries), sum(map(len, blobs)))
    now = time.time_ns() // 1000 * 1000  # some file systems keep no nanoseconds
    stamp = _location_hash(absolute(path)) if is_remote(path) else now
    chosen = {*flags, "is_of_a_store"} if is_remote(path) else flags
    bits = sum((name in chosen) << bit for bit, name in enumerate(_FLAGS))
    body = b"".join(np.asarray(columns[section.name], section.dtype).tobytes() for section in SECTIONS)
    counts = (end, len(entries), sum(map(len, blobs)), bits, stamp, *starts)
    rest = HEADER.pack(MAGIC, VERSION, 0, *counts)[AFTER_CRC:]
    with AtomicFile(path, policy=policy) as file:
        file.write(HEADER.pack(MAGIC, VERSION, zlib.crc32(body, zlib.crc32(rest)), *counts))
        file.write(body)
        file.set_modified(now)
    return end
