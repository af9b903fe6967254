"""Flat token files: `.npy` arrays and headerless `.bin` files, found and read as KempnerForge does."""

from __future__ import annotations

import fnmatch
import io
import os
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fastpack.errors import FormatError
from fastpack.io import AnyPath, PathLike, RemotePath, as_path, on_stores, read_head, stat_of
from fastpack.tokens.npy_array import load_npy_array
from fastpack.tokens.token_segment import Stamp, TokenSegment, stamp_of

# The header that NumPy writes for a one-dimensional array; other headers are left to NumPy's reader (100 us per file).
_NPY_PLAIN = re.compile(
    rb"\{'descr': '([<>|][a-z]\d+)', 'fortran_order': False, 'shape': \((\d+),\), \} *\n\Z", re.ASCII
)

NPY_MAGIC = b"\x93NUMPY"
_NPY_START = NPY_MAGIC + b"\x01\x00"
_UINT16, _UINT32 = np.dtype(np.uint16), np.dtype(np.uint32)


def find_shards(data_dir: PathLike, file_pattern: str) -> list[AnyPath]:
    """Return the matching files, sorted by path components. Raises FileNotFoundError if there are none."""
    if "/" in file_pattern or "**" in file_pattern:
        found: list[AnyPath] = sorted(as_path(data_dir).glob(file_pattern), key=lambda path: path.parts)
    else:  # one folder: scandir and one pattern are ten times faster than Path.glob on 10,000 shards
        matches = re.compile(fnmatch.translate(file_pattern)).match
        try:
            found = _matches_in_folder(as_path(data_dir), matches)
        except (FileNotFoundError, NotADirectoryError):
            found = []
    if not found:
        raise FileNotFoundError(f"No files matching {file_pattern!r} in {data_dir}")
    return found


def _matches_in_folder(folder: AnyPath, matches: Callable[[str], Any]) -> list[AnyPath]:
    if isinstance(folder, RemotePath):  # its listing also contains sizes and tags
        return [path for path in folder.iterdir() if matches(path.name)]
    return [folder / name for name in sorted(filter(matches, os.listdir(folder)))]


def scan_shards(
    paths: Sequence[AnyPath], dtype: np.dtype[Any] | None = None, raw: bool | None = None
) -> list[TokenSegment]:
    """Read the length and dtype of every file without mapping it.

    `raw`: whether the files have no header (None: if the first one ends in `.bin`). `dtype`: of headerless files; by
    default uint32 if the size is divisible by 4, else uint16. Raises ValueError for an empty headerless file and for a
    dtype given for `.npy` files, FormatError for a damaged `.npy` file.
    """
    if raw or (raw is None and paths[0].suffix == ".bin"):
        listed = all(getattr(path, "listed", None) for path in paths)
        return [_scan_bin(path, dtype) for path in paths] if listed else on_stores(lambda p: _scan_bin(p, dtype), paths)
    if dtype is not None:
        raise ValueError(f"dtype={dtype} is for .bin shards: {paths[0]} says its dtype itself")
    return on_stores(lambda path: _scan_npy(os.fspath(path)), paths)


def check_dtypes(segments: Sequence[TokenSegment]) -> None:
    """Raise FormatError for the first file whose elements are not numbers.

    Floats and booleans are accepted (as KempnerForge). Dates, strings and records would become numbers that are not
    tokens, or fail when a sample is read.
    """
    for segment in segments:
        if segment.dtype.kind not in "uifb":
            raise FormatError(segment.path, 0, f"the dtype {segment.dtype}", "integers")


def _scan_bin(where: PathLike, dtype: np.dtype[Any] | None) -> TokenSegment:
    path = os.fspath(where)
    stamp = stamp_of(getattr(where, "listed", None) or stat_of(path))
    if stamp[0] == 0:
        raise ValueError(f"cannot mmap an empty file: {path}")
    if dtype is None:
        dtype = _UINT32 if stamp[0] % 4 == 0 else _UINT16
    return TokenSegment(path, dtype, stamp[0] // dtype.itemsize, 0, stamp=stamp)


def _scan_npy(path: str) -> TokenSegment:
    head, status = read_head(path, 128)
    stamp = stamp_of(status)
    offset = 10 + int.from_bytes(head[8:10], "little")
    header = _NPY_PLAIN.match(head, 10, offset) if head[:8] == _NPY_START and offset <= len(head) else None
    if header is None:
        if head[6:7] in (b"\2", b"\3"):  # format 2 or 3: NumPy would allocate whatever header size the file claims
            offset = 12 + int.from_bytes(head[8:12], "little")
        if head[:6] == NPY_MAGIC and offset > stamp[0]:
            raise FormatError(path, stamp[0], f"the end of the file after {stamp[0]} bytes", f"{offset} of header")
        if head[:8] == _NPY_START and 10 < offset <= len(head) and head[offset - 1 : offset] != b"\n":
            # NumPy would accept it, and read bytes of the header as tokens.
            expected = f"the newline that ends a header of {offset - 10} bytes: the header is damaged"
            raise FormatError(path, offset - 1, f"{head[offset - 1 : offset]!r}", expected)
        return _scan_unusual_npy(path, stamp)
    try:
        dtype, length = np.dtype(header[1].decode()), int(header[2])
    except TypeError:  # unknown dtype
        return _scan_unusual_npy(path, stamp)
    if offset + length * dtype.itemsize > stamp[0]:
        expected = f"{length} tokens of {dtype.itemsize} bytes from byte {offset}, as its header says"
        raise FormatError(path, stamp[0], f"the end of the file after {stamp[0]} bytes", expected)
    return TokenSegment(path, dtype, length, offset, stamp=stamp)


def _scan_unusual_npy(path: str, stamp: Stamp) -> TokenSegment:
    array = load_npy_array(path)
    return TokenSegment(path, array.dtype, len(array), 0, plain=False, stamp=stamp)


def not_flat_error(segment: TokenSegment) -> ValueError:
    """Return the error for an array that cannot be read by position: not flat, or a damaged header (FormatError)."""
    array = load_npy_array(segment.path)
    what = f"{segment.path}: io='pread' and stores are for flat arrays of numpy's format 1.0"
    if array.ndim != 1:
        return ValueError(f"{what}, and this one has {array.ndim} dimensions")
    found, _ = read_head(segment.path, 10 + 0xFFFF)
    if found[:8] != _NPY_START:
        return ValueError(f"{what}, and this one is of format {found[6]}.{found[7]}")
    written = io.BytesIO()
    np.lib.format.write_array_header_1_0(written, np.lib.format.header_data_from_array_1_0(array))
    pairs = enumerate(zip(found, written.getvalue(), strict=False))
    at = next((at for at, (one, other) in pairs if one != other and at >= 10), None)
    if at is None:
        return ValueError(f"{what}, and this one has elements of {array.dtype}")
    expected = f"{written.getvalue()[at : at + 16]!r}, as numpy writes this header: it is damaged, or another program's"
    return FormatError(segment.path, at, f"{found[at : at + 16]!r}", expected)
