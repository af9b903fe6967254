"""Decode compressed data and arrays within a limit: a few kilobytes can claim, or expand to, terabytes."""

from __future__ import annotations

import gzip
import io
import zipfile
import zlib
from typing import Any

import numpy as np

MAX_DECODED_BYTES = 1 << 30  # per field; 256 megapixels of float32 grey, or 89 of RGB


class TooLarge(ValueError):
    """A decoded field is larger than allowed."""

    def __init__(self, what: str, max_bytes: int) -> None:
        self.what, self.max_bytes = what, max_bytes
        super().__init__(f"{what}: at most {max_bytes:,} bytes are decoded (raise max_decoded_bytes to allow more)")

    def __reduce__(self) -> tuple[type[TooLarge], tuple[str, int]]:
        return type(self), (self.what, self.max_bytes)


def gunzip(data: bytes, max_bytes: int) -> bytes:
    """Return the contents of a gzip file. Raises TooLarge, and the errors of `gzip`."""
    error = TooLarge("gzip data that are larger when unpacked", max_bytes)
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
    """Return the array of a `.npy` file, without Python objects. Raises ValueError for a truncated file."""
    file = io.BytesIO(data)
    _check_header(file, len(data))
    del max_bytes  # an array is no larger than its file
    return np.lib.format.read_array(file, allow_pickle=False)


def decode_npz(data: bytes, max_bytes: int) -> dict[str, Any]:
    """Return the arrays of a `.npz` file by name. Raises TooLarge, ValueError."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            total = sum(info.file_size for info in archive.infolist())
            if total > max_bytes:
                raise TooLarge(f"arrays of {total:,} bytes", max_bytes)
            return {info.filename.removesuffix(".npy"): _member(archive, info) for info in archive.infolist()}
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError) as error:
        raise ValueError(f"not an archive of arrays: {error}") from error


def _member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Any:
    data = archive.read(info)
    return decode_npy(data, info.file_size) if data[:6] == b"\x93NUMPY" else data


def _check_header(file: io.BytesIO, n_bytes: int) -> None:
    """Raise ValueError if the file is shorter than its header says; rewind the file."""
    version = np.lib.format.read_magic(file)
    if version in ((1, 0), (2, 0)):  # 3.0 has the layout of 2.0 in UTF-8
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(file)
        claimed = dtype.itemsize * int(np.prod(np.array(shape, object))) if not dtype.hasobject else 0
        available = n_bytes - file.tell()
        if claimed > available:
            raise ValueError(f"an array {shape} of {dtype}, {claimed:,} bytes, of which {available:,} exist")
    file.seek(0)
