"""Flat token shards: `.npy` arrays and headerless `.bin` files, as KempnerForge finds and reads them."""

from __future__ import annotations

import errno
import fnmatch
import io
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fastpack import kernels
from fastpack.errors import FormatError
from fastpack.io import (
    AnyPath,
    ByteArray,
    PathLike,
    Reader,
    RemotePath,
    Status,
    as_path,
    is_remote,
    local_file,
    map_bytes,
    on_stores,
    open_bytes,
    open_reader,
    read_head,
    stat_of,
)

if TYPE_CHECKING:
    from fastpack.tokens.pbin.packed_file import PackedFile

# The header numpy writes for a one-dimensional array; whatever differs is left to numpy's own reader (100 us a file).
_NPY_PLAIN = re.compile(
    rb"\{'descr': '([<>|][a-z]\d+)', 'fortran_order': False, 'shape': \((\d+),\), \} *\n\Z", re.ASCII
)

_NPY_MAGIC = b"\x93NUMPY\x01\x00"
_LOOK = 8 << 20  # bytes looked through at once for the last that is not zero
_UINT16, _UINT32 = np.dtype(np.uint16), np.dtype(np.uint32)


Stamp: TypeAlias = tuple[int, int, int | str | None]


@dataclass(frozen=True, slots=True)
class Shard:
    """Where the tokens of one file lie: `length` rows of `dtype` from byte `offset`; `plain` when one-dimensional.

    stamp: the file's size in bytes, modification time in ns and inode, or the tag of an object in a store, as they were
    when it was looked at; None for what is not compared. manifest: the file that says all this, where the shard itself
    was not looked at.
    """

    path: str
    dtype: np.dtype[Any]
    length: int
    offset: int
    plain: bool = True
    stamp: tuple[int, int | None, int | str | None] | None = None
    manifest: str | None = None

    def open(self) -> npt.NDArray[Any]:
        """The tokens as a read-only view of a mapping, [length] (or the array's own shape when not plain).

        Raises FormatError when the file is not the one that was looked at.
        """
        self.check_unchanged()
        if not self.plain:
            return np.asarray(_load_npy(self.path))
        if self.length == 0:
            return np.empty(0, self.dtype)
        data = map_bytes(self.path)
        end = self.offset + self.length * self.dtype.itemsize
        if end > data.nbytes:
            raise FormatError(self.path, data.nbytes, f"a file of {data.nbytes} bytes", f"{end} bytes, as when opened")
        return data[self.offset : end].view(self.dtype)

    @property
    def version(self) -> Status | None:
        """The version of an object that was looked at, if it is one: whoever reads that needs no check, the store does.

        So it is where the store has told a tag, which goes with each request.
        """
        if self.stamp is None or self.stamp[1] is None or not isinstance(self.stamp[2], str):
            return None
        return Status(*self.stamp)  # type: ignore[arg-type]

    def open_reader(self) -> Reader:
        """To read the file by position. Raises FormatError when it is not the one that was looked at."""
        if self.manifest is not None:
            return open_reader(self.path, _check_said(self, self.manifest).version)
        if self.version is None:
            self.check_unchanged()
        return open_reader(self.path, self.version)

    def check_unchanged(self) -> None:
        """FormatError when the file's size, modification time or inode is another than when it was looked at."""
        if self.manifest is not None:
            _check_said(self, self.manifest)
            return
        if self.stamp is None:
            return
        found = stamp_of(stat_of(self.path))
        if found[0] != self.stamp[0]:
            raise FormatError(
                self.path,
                min(found[0], self.stamp[0]),
                f"a file of {found[0]} bytes",
                f"{self.stamp[0]} bytes, as when opened",
            )
        if found != self.stamp:
            what = "another file of that name" if found[2] != self.stamp[2] else "a file that was written to since"
            raise FormatError(self.path, 0, what, "the file as when opened (open the dataset anew to take it)")

    def trimmed(self, keep: int = 0) -> Shard:
        """This shard without the zero tokens at its end, of which the first `keep` stay. Reads back from the end."""
        if not self.plain or self.length == 0:
            return self
        if self.manifest is not None:  # nobody looked at the file yet
            self.check_unchanged()
        data = open_bytes(self.path, self.version)
        end = min(self.offset + self.length * self.dtype.itemsize, _last_data(self.path, len(data)))
        length = min(self.length, -(-used_bytes(data, self.offset, end) // self.dtype.itemsize) + keep)
        return self if length == self.length else replace(self, length=length)


def used_bytes(data: ByteArray, start: int, end: int) -> int:
    """How many of the bytes [start, end) of a file are left without the zeros at their end; read back from there."""
    while end > start:
        first = max(start, end - _LOOK)
        if used := kernels.used_bytes(data[first:end]):
            return first + used - start
        end = first
    return 0


def _check_said(shard: Shard, manifest: str) -> Shard:
    """The shard as it is; FormatError unless that is what a manifest says of it. Its header is read for that."""
    hint = f"as {manifest} says (bring the shard back, or write the manifest anew: `fastpack manifest`)"
    size, time_ns, _ = shard.stamp or (None, None, None)
    try:
        found = _scan_again(shard)
    except FileNotFoundError:
        raise FileNotFoundError(errno.ENOENT, f"No such file, but {manifest} names it", shard.path) from None
    except FormatError as error:
        raise FormatError(shard.path, error.offset, error.found, f"{error.expected}, and {hint}") from None
    except ValueError:  # an empty file
        raise FormatError(shard.path, 0, "a file of 0 bytes", f"{size}, {hint}") from None
    assert found.stamp is not None
    if size is not None and found.stamp[0] != size:
        raise FormatError(shard.path, min(found.stamp[0], size), f"a file of {found.stamp[0]} bytes", f"{size}, {hint}")
    if time_ns is not None and found.stamp[1] != time_ns:
        raise FormatError(shard.path, 0, "a file that was written to since", f"the file {hint}")
    told, is_told = (shard.dtype, shard.offset, shard.plain), (found.dtype, found.offset, found.plain)
    if told != is_told or found.length < shard.length:
        what = f"a header that tells of {found.length} rows of {found.dtype} from byte {found.offset}"
        raise FormatError(shard.path, 0, what, f"{shard.length} of {shard.dtype} from byte {shard.offset}, {hint}")
    return found


def scan_packed(path: PathLike) -> tuple[Shard, PackedFile]:
    """Where the tokens of a packed file lie, and what tells the file from another; and the file. As `PackedFile`."""
    from fastpack.tokens.pbin.packed_file import PackedFile  # which imports this module

    stamp = stamp_of(stat_of(path))
    file = PackedFile(path)
    return file.shard if file.shard.stamp else replace(file.shard, stamp=stamp), file


def _scan_again(shard: Shard) -> Shard:
    if shard.path.endswith(".pbin"):
        return scan_packed(shard.path)[0]
    raw = shard.offset == 0 and shard.plain
    return _scan_bin(shard.path, shard.dtype) if raw else _scan_npy(shard.path)


def stamp_of(status: os.stat_result | Status) -> Stamp:
    """What tells a file, or an object in a store, from what comes to be in its place."""
    return status.st_size, status.st_mtime_ns, status.tag if isinstance(status, Status) else status.st_ino


def _last_data(path: str, size: int) -> int:
    """A byte position behind which a file of `size` bytes is a hole (never written, so zeros), as far as is known.

    tatm makes files of 2^30 tokens and fills what it needs: the rest need not even be looked at.
    """
    if is_remote(path):
        return size
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    end = 0
    try:
        for _ in range(1000):  # a file in more pieces is read instead
            end = os.lseek(fd, os.lseek(fd, end, os.SEEK_DATA), os.SEEK_HOLE)
        return size
    except OSError as error:
        return end if error.errno == errno.ENXIO else size
    finally:
        os.close(fd)


def find_shards(data_dir: PathLike, file_pattern: str) -> list[AnyPath]:
    """The files that match, sorted part by part as paths; FileNotFoundError when there are none."""
    if "/" in file_pattern or "**" in file_pattern:
        found: list[AnyPath] = sorted(as_path(data_dir).glob(file_pattern), key=lambda path: path.parts)
    else:  # one folder: scandir and one pattern are ten times faster than Path.glob on 10,000 shards
        matches = re.compile(fnmatch.translate(file_pattern)).match
        try:
            found = _in_folder(as_path(data_dir), matches)
        except (FileNotFoundError, NotADirectoryError):
            found = []
    if not found:
        raise FileNotFoundError(f"No files matching {file_pattern!r} in {data_dir}")
    return found


def _in_folder(folder: AnyPath, matches: Callable[[str], Any]) -> list[AnyPath]:
    if isinstance(folder, RemotePath):  # the listing says more than names
        return [path for path in folder.iterdir() if matches(path.name)]
    return [folder / name for name in sorted(filter(matches, os.listdir(folder)))]


def scan_shards(paths: Sequence[AnyPath], dtype: np.dtype[Any] | None = None, raw: bool | None = None) -> list[Shard]:
    """Length and dtype of every file without mapping it; the first file's suffix decides the format of all.

    raw: whether they are headerless, whatever they are called. dtype: of headerless files; without it one is uint32
    when its size divides by 4, else uint16. Raises ValueError for an empty headerless file, for a dtype given to `.npy`
    files, FormatError for a broken `.npy`.
    """
    if raw or (raw is None and paths[0].suffix == ".bin"):
        listed = all(getattr(path, "listed", None) for path in paths)
        return [_scan_bin(path, dtype) for path in paths] if listed else on_stores(lambda p: _scan_bin(p, dtype), paths)
    if dtype is not None:
        raise ValueError(f"dtype={dtype} is for .bin shards: {paths[0]} says its dtype itself")
    return on_stores(lambda path: _scan_npy(os.fspath(path)), paths)


def check_dtypes(shards: Sequence[Shard]) -> None:
    """FormatError for the first shard whose elements are not numbers; floats and bools are taken, as KempnerForge does.

    Dates, texts and records would become numbers that are no tokens, or fail when a sample is read.
    """
    for shard in shards:
        if shard.dtype.kind not in "uifb":
            raise FormatError(shard.path, 0, f"the dtype {shard.dtype}", "whole numbers")


def _scan_bin(where: PathLike, dtype: np.dtype[Any] | None) -> Shard:
    path = os.fspath(where)
    stamp = stamp_of(getattr(where, "listed", None) or stat_of(path))
    if stamp[0] == 0:
        raise ValueError(f"cannot mmap an empty file: {path}")
    if dtype is None:
        dtype = _UINT32 if stamp[0] % 4 == 0 else _UINT16
    return Shard(path, dtype, stamp[0] // dtype.itemsize, 0, stamp=stamp)


def _scan_npy(path: str) -> Shard:
    head, status = read_head(path, 128)
    stamp = stamp_of(status)
    offset = 10 + int.from_bytes(head[8:10], "little")
    header = _NPY_PLAIN.match(head, 10, offset) if head[:8] == _NPY_MAGIC and offset <= len(head) else None
    if header is None:
        if head[6:7] in (b"\2", b"\3"):  # of format 2 or 3, for whose header numpy would make room whatever it says
            offset = 12 + int.from_bytes(head[8:12], "little")
        if head[:6] == _NPY_MAGIC[:6] and offset > stamp[0]:
            raise FormatError(path, stamp[0], f"the end of the file after {stamp[0]} bytes", f"{offset} of header")
        if head[:8] == _NPY_MAGIC and 10 < offset <= len(head) and head[offset - 1 : offset] != b"\n":
            # numpy would take it, and bytes of the header as tokens.
            expected = f"the newline that ends a header of {offset - 10} bytes: the header is damaged"
            raise FormatError(path, offset - 1, f"{head[offset - 1 : offset]!r}", expected)
        return _unusual(path, stamp)
    try:
        dtype, length = np.dtype(header[1].decode()), int(header[2])
    except TypeError:  # no such dtype
        return _unusual(path, stamp)
    if offset + length * dtype.itemsize > stamp[0]:
        expected = f"{length} tokens of {dtype.itemsize} bytes from byte {offset}, as its header says"
        raise FormatError(path, stamp[0], f"the end of the file after {stamp[0]} bytes", expected)
    return Shard(path, dtype, length, offset, stamp=stamp)


def _unusual(path: str, stamp: Stamp) -> Shard:
    array = _load_npy(path)
    return Shard(path, array.dtype, len(array), 0, plain=False, stamp=stamp)


def why_not_flat(shard: Shard) -> ValueError:
    """Why an array cannot be read by position: it is not flat, or its header is damaged (FormatError)."""
    array = _load_npy(shard.path)
    what = f"{shard.path}: io='pread' and stores are for flat arrays of numpy's format 1.0"
    if array.ndim != 1:
        return ValueError(f"{what}, and this one has {array.ndim} dimensions")
    found, _ = read_head(shard.path, 10 + 0xFFFF)
    if found[:8] != _NPY_MAGIC:
        return ValueError(f"{what}, and this one is of format {found[6]}.{found[7]}")
    written = io.BytesIO()
    np.lib.format.write_array_header_1_0(written, np.lib.format.header_data_from_array_1_0(array))
    pairs = enumerate(zip(found, written.getvalue(), strict=False))
    at = next((at for at, (one, other) in pairs if one != other and at >= 10), None)
    if at is None:
        return ValueError(f"{what}, and this one has elements of {array.dtype}")
    expected = f"{written.getvalue()[at : at + 16]!r}, as numpy writes this header: it is damaged, or another program's"
    return FormatError(shard.path, at, f"{found[at : at + 16]!r}", expected)


def _load_npy(path: str) -> npt.NDArray[Any]:
    """A mapping of an array that is not flat or has an unusual header, by numpy's own reader; FormatError."""
    try:
        array = np.lib.format.open_memmap(local_file(path), mode="r")  # numpy.load takes archives and pickles as well
    except OSError:
        raise
    except Exception as error:  # the header is a Python literal, and what reading one raises is nowhere listed
        raise FormatError(path, 0, " ".join(f"{type(error).__name__}: {error}".split()), "a .npy array") from error
    if array.ndim == 0:
        raise FormatError(path, 0, "a single number", "an array of tokens")
    return array
