"""Compressed and array parts, decoded within a limit: a few kilobytes of data can claim, or unfold to, terabytes."""

from __future__ import annotations

import gzip
import io
import zipfile
import zlib
from typing import Any

import numpy as np

MAX_DECODED_BYTES = 1 << 30  # of a part; 256 megapixels of float32 grey, or 89 of RGB

Header = tuple[tuple[int, ...], bool, np.dtype[Any]]


class TooLarge(ValueError):
    """A part that is larger, once decoded, than is allowed."""

    def __init__(self, what: str, max_bytes: int) -> None:
        self.what, self.max_bytes = what, max_bytes
        super().__init__(f"{what}: at most {max_bytes:,} bytes are decoded (max_decoded_bytes allows more)")

    def __reduce__(self) -> tuple[type[TooLarge], tuple[str, int]]:
        return type(self), (self.what, self.max_bytes)


def gunzip(data: bytes, max_bytes: int) -> bytes:
    """The contents of a gzip file; TooLarge, and what `gzip` raises."""
    error = TooLarge("gzip data that are larger once unpacked", max_bytes)
    if (
        len(data) >= 18 and int.from_bytes(data[-4:], "little") > max_bytes
    ):  # as the file says itself, which may be a lie
        raise error
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
        contents = file.read(max_bytes + 1)
    if len(contents) > max_bytes:
        raise error
    return contents


def decode_npy(data: bytes, max_bytes: int) -> Any:
    """The array of a `.npy` file, without Python objects; ValueError for one that claims more than it holds."""
    file = io.BytesIO(data)
    _check_header(file, len(data))
    del max_bytes  # an array is no larger than its file
    return np.lib.format.read_array(file, allow_pickle=False)


def decode_npz(data: bytes, max_bytes: int) -> dict[str, Any]:
    """The arrays of a `.npz` file by name; TooLarge, ValueError."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            total = sum(info.file_size for info in archive.infolist())
            if total > max_bytes:
                raise TooLarge(f"arrays of {total:,} bytes", max_bytes)
            return {info.filename.removesuffix(".npy"): _member(archive, info) for info in archive.infolist()}
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError) as error:
        raise ValueError(f"no archive of arrays: {error}") from error


def _member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Any:
    data = archive.read(info)
    return decode_npy(data, info.file_size) if data[:6] == b"\x93NUMPY" else data


def _check_header(file: io.BytesIO, n_bytes: int) -> None:
    """ValueError for a header whose array is not in the file; leaves the file at its start."""
    version = np.lib.format.read_magic(file)
    if version in ((1, 0), (2, 0)):  # 3.0 has the layout of 2.0 in UTF-8
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(file)
        claimed = dtype.itemsize * int(np.prod(np.array(shape, object))) if not dtype.hasobject else 0
        there = n_bytes - file.tell()
        if claimed > there:
            raise ValueError(f"an array {shape} of {dtype}, {claimed:,} bytes, of which {there:,} are there")
    file.seek(0)
