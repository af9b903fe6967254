"""The layouts of packed files `.pbin`: what a header says, and which generation it is of.

Today's layout is generation 5: data length u64 and token size u32, little-endian; the tokens, unsigned, of 1, 2 or 4
bytes; the index, in bytes from the start of the tokens. Older generations have been written too:

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
INDEX_BASES = {1: (4, 1), 2: (8,), 3: (12,), 4: (12,), 5: (0,)}  # the first entry of an index that counts from there

_LOOK = 4096  # bytes in which an index shows that it is one
_MAX_EMPTY = 64 << 20  # bytes of an index of documents without tokens
_BLOCK_ROWS = 1 << 16  # of an index, looked at at a time: they stay in the cache


class Layout(NamedTuple):
    """Where the parts of a packed file are, in bytes. Generation 5 may still prove to be 4: only the index tells."""

    generation: int
    data_offset: int
    data_length: int
    token_size: int

    @property
    def index_offset(self) -> int:
        return self.data_offset + self.data_length


def read_layout(file: ByteArray, path: PathLike, generation: int) -> Layout:
    """The layout that the header of `file` gives, read as `generation` (0 to 5).

    Raises FormatError where the header contradicts itself or the size of the file, and ValueError for no generation.
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
        raise FormatError(path, 0, found, f"at most {n_bytes - header.size}: the file is truncated or no packed file")
    if length == 0 and generation > 0:
        _check_empty(file, path, layout)
    if length % token_size:
        raise FormatError(path, 0, f"data length {length}", f"a multiple of the token size {token_size}")
    if layout.index_offset == n_bytes and generation > 0:
        raise FormatError(path, n_bytes, "the end of the file", "the pickled index")
    return layout


def _check_empty(file: ByteArray, path: PathLike, layout: Layout) -> None:
    """Data length 0 is also what a header holds before its writer has finished: then no index follows it."""
    rest = file[layout.data_offset : layout.data_offset + _MAX_EMPTY]
    try:
        pickled_index.decode(rest, path, layout.data_offset, allow_trailing=False)
    except FormatError:
        n_rest = len(file) - layout.data_offset
        found = f"an unfinished pack: data length 0 with {n_rest} bytes behind the header that are no index"
        raise FormatError(path, 0, found, "the data length, which the writer sets last") from None


def find_layout(file: ByteArray, path: PathLike) -> Layout:
    """The layout of `file`, of whichever generation but 0. Raises FormatError where none fits.

    Only generations 1 and 2, whose headers say too little, have their index decoded for it.
    """
    header = file[:HEADER_BYTES].tobytes()
    if len(header) == HEADER_BYTES and int.from_bytes(header[8:], "little") in TOKEN_SIZES:
        return read_layout(file, path, 5)
    for generation in (2, 1):  # before 3: the tokens 1, 2 and 4 look like its token size, and its tokens like no index
        try:
            layout = read_layout(file, path, generation)
            start = layout.index_offset  # a look first: what follows may be long, and far away
            pickled_index.decode_first(file[start : start + _LOOK], path, start, 1)
            rows = pickled_index.decode(file[layout.index_offset :], path, layout.index_offset)
        except FormatError:
            continue
        if len(rows) == 0 or counts_from(rows, layout, INDEX_BASES[generation]) is not None:
            return layout
    if len(header) == HEADER_BYTES and int.from_bytes(header[8:], "big") in TOKEN_SIZES:
        return read_layout(file, path, 3)
    return read_layout(file, path, 5)  # says what is wrong with it as a file of today


def counts_from(rows: npt.NDArray[np.int64], layout: Layout, bases: tuple[int, ...]) -> int | None:
    """The one of `bases` that an index in file order counts from, so that it covers the data; None if it does not."""
    for base in bases:
        if len(rows) and int(rows[0, 0]) == base and int(rows[-1].sum()) == base + layout.data_length:
            return base
    return None


def check_range(rows: npt.NDArray[np.int64], layout: Layout, path: PathLike) -> None:
    """Raise FormatError for the first entry that does not lie in the data, or not on whole tokens."""
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
