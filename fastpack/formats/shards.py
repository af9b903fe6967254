"""Flat token shards: `.npy` arrays and headerless `.bin` files, as KempnerForge finds and reads them."""

from __future__ import annotations

import fnmatch
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fastpack.errors import FormatError
from fastpack.files import PathLike, map_bytes

# The header numpy writes for a one-dimensional array; whatever differs is left to numpy's own reader (100 us a file).
_NPY_PLAIN = re.compile(
    rb"\{'descr': '([<>|][a-z]\d+)', 'fortran_order': False, 'shape': \((\d+),\), \}\s*\n?\Z", re.ASCII
)


@dataclass(frozen=True, slots=True)
class Shard:
    """Where the tokens of one file lie: `length` rows of `dtype` from byte `offset`; `plain` when one-dimensional."""

    path: str
    dtype: np.dtype[Any]
    length: int
    offset: int
    plain: bool = True

    def open(self) -> npt.NDArray[Any]:
        """The tokens as a read-only view of a mapping, [length] (or the array's own shape when not plain)."""
        if not self.plain:
            return np.asarray(np.load(self.path, mmap_mode="r", allow_pickle=False))
        if self.length == 0:
            return np.empty(0, self.dtype)
        data = map_bytes(self.path)
        end = self.offset + self.length * self.dtype.itemsize
        if data.nbytes < end:
            raise FormatError(self.path, data.nbytes, f"a file of {data.nbytes} bytes", f"{end} bytes, as when opened")
        return data[self.offset : end].view(self.dtype)


def find_shards(data_dir: PathLike, file_pattern: str) -> list[Path]:
    """The files that match, sorted part by part as paths; FileNotFoundError when there are none."""
    if "/" in file_pattern or "**" in file_pattern:
        found = sorted(Path(data_dir).glob(file_pattern))
    else:  # one folder: scandir and one pattern are ten times faster than Path.glob on 10,000 shards
        matches = re.compile(fnmatch.translate(file_pattern)).match
        try:
            names = sorted(filter(matches, os.listdir(data_dir)))
        except (FileNotFoundError, NotADirectoryError):
            names = []
        found = [Path(data_dir) / name for name in names]
    if not found:
        raise FileNotFoundError(f"No files matching {file_pattern!r} in {data_dir}")
    return found


def scan_shards(paths: list[Path]) -> list[Shard]:
    """Length and dtype of every file without mapping it; the first file's suffix decides the format of all.

    A `.bin` file is uint32 when its size divides by 4, else uint16. Raises ValueError for an empty `.bin`, and what
    `numpy.load` raises for a broken `.npy`.
    """
    scan = _scan_bin if paths[0].suffix == ".bin" else _scan_npy
    return [scan(os.fspath(path)) for path in paths]


def _scan_bin(path: str) -> Shard:
    n_bytes = os.stat(path).st_size
    if n_bytes == 0:
        raise ValueError(f"cannot mmap an empty file: {path}")
    dtype = np.dtype(np.uint32 if n_bytes % 4 == 0 else np.uint16)
    return Shard(path, dtype, n_bytes // dtype.itemsize, 0)


def _scan_npy(path: str) -> Shard:
    with open(path, "rb", buffering=0) as file:
        head = file.read(128)
        n_bytes = os.fstat(file.fileno()).st_size
    offset = 10 + int.from_bytes(head[8:10], "little")
    header = _NPY_PLAIN.match(head[10:offset]) if head[:8] == b"\x93NUMPY\x01\x00" and offset <= len(head) else None
    if header is None:
        array = np.load(path, mmap_mode="r", allow_pickle=False)  # unusual, or broken: numpy reads it or says why
        return Shard(path, array.dtype, len(array), 0, plain=False)
    dtype, length = np.dtype(header[1].decode()), int(header[2])
    if offset + length * dtype.itemsize > n_bytes:
        expected = f"{length} tokens of {dtype.itemsize} bytes from byte {offset}, as its header says"
        raise FormatError(path, n_bytes, f"the end of the file after {n_bytes} bytes", expected)
    return Shard(path, dtype, length, offset)
