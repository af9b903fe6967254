"""The layouts of packed files `.pbin`: headers, and the detection of the file generation.

The current layout is generation 5: data length u64 and token size u32, little-endian; unsigned tokens of 1, 2 or 4
bytes; the index, in bytes from the start of the tokens. Older generations:

| generation | header | tokens | index counts from |
|---|---|---|---|
| 0 | none | big-endian u32 | has no index |
| 1 | big-endian u32 length | big-endian u32 | the file's start: first entry 4 (or 1) |
| 2 | big-endian u64 length | big-endian u32 | the file's start: first entry 8 |
| 3 | big-endian u64 length, u32 token size | big-endian | the file's start: first entry 12 |
| 4 | as 5 | as 5 | the file's start: first entry 12 |
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fastpack.errors import FormatError
from fastpack.io import ByteArray, PathLike, pickled_index
from fastpack.tokens.token_writer import TOKEN_SIZES

HEADER_BYTES = 12
HEADER = {0: struct.Struct(""), 1: struct.Struct(">I"), 2: struct.Struct(">Q"), 3: struct.Struct(">QI")}
HEADER |= dict.fromkeys((4, 5), struct.Struct("<QI"))
INDEX_BASES = {1: (4, 1), 2: (8,), 3: (12,), 4: (12,), 5: (0,)}  # first entry of an index with this base

_PROBE_BYTES = 4096  # bytes that suffice to recognise an index
_MAX_EMPTY = 64 << 20  # largest index of documents without tokens, in bytes
_BLOCK_ROWS = 1 << 16  # rows checked at once: they stay in the cache


class Layout(NamedTuple):
    """The sections of a packed file, in bytes. Generation 5 may turn out to be 4, which only the index tells."""

    generation: int
    data_offset: int
    data_length: int
    token_size: int

    @property
    def index_offset(self) -> int:
        """The start of the index."""
        return self.data_offset + self.data_length


def read_layout(file: ByteArray, path: PathLike, generation: int) -> Layout:
    """Return the layout of a file by its header, read as `generation` (0 to 5).

    Raises FormatError if the header contradicts itself or the size of the file, ValueError for another generation.
    """
    if generation not in HEADER:
        raise ValueError(f"generation {generation!r}: packed files have the generations 0 to 5")
    header, n_bytes = HEADER[generation], len(file)
    if n_bytes < header.size:
        raise FormatError(path, n_bytes, f"the end of a file of {n_bytes} bytes", f"a header of {header.size} bytes")
    fields = header.unpack(file[: header.size].tobytes())
    length = fields[0] if fields else n_bytes
    token_size = fields[1] if len(fields) > 1 else 4
    layout = Layout(generation, header.size, length, token_size)
    if token_size not in TOKEN_SIZES:
        raise FormatError(path, 8, f"token size {token_size}", "1, 2 or 4")
    if layout.index_offset > n_bytes:
        found = f"data length {length} in a file of {n_bytes} bytes"
        expected = f"at most {n_bytes - header.size}: the file is truncated or not a packed file"
        raise FormatError(path, 0, found, expected)
    if length == 0 and generation > 0:
        _check_empty(file, path, layout)
    if length % token_size:
        raise FormatError(path, 0, f"data length {length}", f"a multiple of the token size {token_size}")
    if layout.index_offset == n_bytes and generation > 0:
        raise FormatError(path, n_bytes, "the end of the file", "the pickled index")
    return layout


def _check_empty(file: ByteArray, path: PathLike, layout: Layout) -> None:
    """Check that an index follows data length 0, which is also what an unfinished header contains."""
    rest = file[layout.data_offset : layout.data_offset + _MAX_EMPTY]
    try:
        pickled_index.decode(rest, path, layout.data_offset, allow_trailing=False)
    except FormatError:
        n_rest = len(file) - layout.data_offset
        found = f"an unfinished pack: data length 0 with {n_rest} bytes after the header that are not an index"
        raise FormatError(path, 0, found, "the data length, which the writer sets last") from None


def find_layout(file: ByteArray, path: PathLike) -> Layout:
    """Detect the layout of a file of generations 1 to 5. Raises FormatError if none fits.

    The index is decoded only for generations 1 and 2, whose headers are ambiguous.
    """
    header = file[:HEADER_BYTES].tobytes()
    if len(header) == HEADER_BYTES and int.from_bytes(header[8:], "little") in TOKEN_SIZES:
        return read_layout(file, path, 5)
    # Before 3: the tokens 1, 2 and 4 look like its token size, but the tokens of 3 do not look like an index.
    for generation in (2, 1):
        try:
            layout = read_layout(file, path, generation)
            start = layout.index_offset  # probe first: the rest may be long and remote
            pickled_index.decode_first(file[start : start + _PROBE_BYTES], path, start, 1)
            rows = pickled_index.decode(file[layout.index_offset :], path, layout.index_offset)
        except FormatError:
            continue
        if len(rows) == 0 or counts_from(rows, layout, INDEX_BASES[generation]) is not None:
            return layout
    if len(header) == HEADER_BYTES and int.from_bytes(header[8:], "big") in TOKEN_SIZES:
        return read_layout(file, path, 3)
    return read_layout(file, path, 5)  # raises an error about the current layout


def counts_from(rows: npt.NDArray[np.int64], layout: Layout, bases: tuple[int, ...]) -> int | None:
    """Return the base of the offsets of an index in file order; None if the index does not cover the data."""
    for base in bases:
        if len(rows) and int(rows[0, 0]) == base and int(rows[-1].sum()) == base + layout.data_length:
            return base
    return None


def settle(rows: npt.NDArray[np.int64], layout: Layout, *, is_certain: bool = False) -> Layout:
    """Make `rows` relative to the start of the data, in place; return the layout with the right generation.

    `is_certain`: the generation was given, so that 5 is not 4.
    """
    if not is_certain and layout.generation == 5 and counts_from(rows, layout, INDEX_BASES[4]) is not None:
        layout = layout._replace(generation=4)
    bases = INDEX_BASES[layout.generation]
    base = counts_from(rows, layout, bases)
    rows[:, 0] -= bases[0] if base is None else base
    return layout


def check_range(rows: npt.NDArray[np.int64], layout: Layout, path: PathLike) -> None:
    """Raise FormatError for the first entry outside the data or not on whole tokens."""
    for first in range(0, len(rows), _BLOCK_ROWS):
        starts, lengths = rows[first : first + _BLOCK_ROWS, 0], rows[first : first + _BLOCK_ROWS, 1]
        bad = (
            (starts < 0) | (starts + lengths > layout.data_length) | ((starts | lengths) & (layout.token_size - 1) != 0)
        )
        if bad.any():
            entry = int(bad.argmax())
            row = rows[first + entry]
            expected = (
                f"offset and length in multiples of {layout.token_size} within the {layout.data_length} bytes of data"
            )
            raise pickled_index.entry_error(path, layout.index_offset, first + entry, row, expected)
