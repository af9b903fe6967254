"""The layout of a plan on disk: a header, sections of arrays, and a description in JSON at the end.

=======  ==========  ===================================================================
offset   type        contents
=======  ==========  ===================================================================
0        8 bytes     magic
8        uint32      version, 1
12       uint32      CRC-32 of the description
16       uint64      size of the file in bytes
24       uint64      offset of the description, which reaches to the end of the file
32                   sections, each at a multiple of 8 bytes
=======  ==========  ===================================================================

Numbers are little-endian. There are two kinds of plans:

- `bins` (algorithms best_fit and first_fit). Rows that consist of one piece of `seq_length` tokens come first, in the
  order of documents. They are not stored: column `documents` has their number for each document. The other rows
  consist of pieces shorter than `seq_length`, of which a document has at most one, its end. Column `rows` has the
  number of pieces of each of these rows, and section `pieces` has document number and length of each piece, packed
  into as few bytes as both need.
- `stream` (algorithm none). Column `documents` has the number of tokens that are used of each document; the rows
  divide their concatenation. Column `rows` has the tokens of each row, if not all rows but the last are full.

A column is described in `fastpack.plans.count_column`.
"""

from __future__ import annotations

import json
import struct
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt

from fastpack.errors import FormatError
from fastpack.io import AtomicFile, ExistencePolicy, PathLike, map_bytes
from fastpack.plans.count_column import Columns

MAGIC = b"\x89FPP\r\n\x1a\n"
VERSION = 1
HEADER = struct.Struct("<8sIIQQ")
ALIGNMENT = 8
DTYPES = {"|u1", "<u2", "<u4", "<u8", "<i8"}


class PlanSections:
    """Writes the sections of a plan, and its description when it is complete; a context manager."""

    def __init__(self, path: PathLike, if_exists: ExistencePolicy) -> None:
        self._file = AtomicFile(path, policy=if_exists)
        self._file.write(bytes(HEADER.size))
        self._sections: dict[str, tuple[str, int, int]] = {}

    def write(self, name: str, values: npt.NDArray[Any]) -> None:
        """Append to a section; the values of one section must follow one another."""
        dtype = np.dtype(values.dtype.newbyteorder("<")).str
        if name not in self._sections:
            self._file.write(bytes(-self._file.tell() % ALIGNMENT))
            self._sections[name] = (dtype, self._file.tell(), 0)
        _, offset, n_bytes = self._sections[name]
        assert offset + n_bytes == self._file.tell()
        n_bytes += self._file.write(np.ascontiguousarray(values).astype(dtype, copy=False).reshape(-1).view(np.uint8))
        self._sections[name] = (dtype, offset, n_bytes)

    def write_columns(self, columns: Columns) -> None:
        """Write the sections of a column."""
        for name, values in columns.items():
            self.write(name, values)

    def finish(self, description: dict[str, Any], modified_ns: int = 0) -> None:
        """Write the description, and give the file its name and, unless it is 0, this modification time."""
        text = json.dumps({**description, "sections": self._sections}).encode()
        offset = self._file.tell()
        self._file.write(text)
        self._file.patch(0, HEADER.pack(MAGIC, VERSION, zlib.crc32(text), self._file.tell(), offset))
        if modified_ns:
            self._file.set_modified(modified_ns)
        self._file.commit()

    def __enter__(self) -> PlanSections:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.abort()  # a no-op after commit


def read_sections(path: str) -> tuple[dict[str, Any], Columns]:
    """Map a plan; return its description and its sections. Raises FormatError for a file that is not a sound plan."""
    data = map_bytes(path)
    if data.nbytes < HEADER.size or bytes(data[:8]) != MAGIC:
        raise FormatError(path, 0, repr(bytes(data[:8]))[1:], f"a packing plan, which begins with {MAGIC!r}")
    _, version, crc, n_bytes, offset = HEADER.unpack(data[: HEADER.size].data)
    if version != VERSION:
        raise FormatError(path, 8, f"version {version} of the format", f"{VERSION}: a newer fastpack may read it")
    if n_bytes != data.nbytes or not HEADER.size <= offset <= n_bytes:
        raise FormatError(path, min(data.nbytes, n_bytes), f"a file of {data.nbytes} bytes", f"{n_bytes}")
    text = data[offset:].tobytes()
    if zlib.crc32(text) != crc:
        raise FormatError(path, 12, "another CRC-32 than the description has", "its own")
    try:
        description = json.loads(text)
        sections = {name: _section(data[:offset], *row) for name, row in description.pop("sections").items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise FormatError(path, offset, f"a description that is not valid ({error})", "that of a plan") from None
    return description, sections


def _section(data: npt.NDArray[np.uint8], dtype: str, offset: int, n_bytes: int) -> npt.NDArray[Any]:
    if dtype not in DTYPES or not 0 <= offset <= offset + n_bytes <= data.nbytes or offset % ALIGNMENT:
        raise ValueError("a section outside the file")
    return data[offset : offset + n_bytes].view(dtype)
