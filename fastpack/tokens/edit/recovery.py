"""What can be saved of a damaged packed file: where its tokens are, and where its documents start and end."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastpack import kernels
from fastpack.errors import FormatError, JobError
from fastpack.io import AnyPath, drop_pages, map_bytes
from fastpack.kernels.codecs.pickled_index_errors import IndexSyntaxError
from fastpack.tokens.pbin.layout import HEADER, HEADER_BYTES, Layout, check_range, find_layout
from fastpack.tokens.pbin.legacy_merge import is_tiled, merge_borders, read_rows, settle, starts_in_order
from fastpack.tokens.token_writer import TOKEN_SIZES

_WINDOW = 64 << 20  # bytes searched at once
_INDEX_START = re.compile(rb"\x80\x04\x95.{8}\x5d\x94\x28?\x4b\x00", re.DOTALL)  # protocol 4, a frame, [, (, 0
_INDEX_START_BYTES = 16
Rows = npt.NDArray[np.int64]


class Rescue(NamedTuple):
    """A packed file as it can be written anew: the tokens of `file` from a byte on, and the index they get.

    problem: what is wrong, empty for nothing; lost_bytes: of the file, that are no whole document.
    """

    file: npt.NDArray[np.uint8]
    layout: Layout
    rows: Rows
    problem: str
    lost_bytes: int = 0

    def pieces(self) -> Iterator[npt.NDArray[Any]]:
        """The tokens, little-endian, some at a time."""
        size, layout = self.layout.token_size, self.layout
        for start in range(layout.data_offset, layout.index_offset, _WINDOW):
            end = min(start + _WINDOW, layout.index_offset)
            yield _tokens(self.file, layout, start, end).astype(f"<u{size}", copy=False)
            drop_pages(self.file, start, end)


def plan_rescue(path: AnyPath, eos: int | None, token_size: int | None) -> Rescue:
    """What to write for a packed file; documents whose index is lost are found by the token `eos` that ends each.

    token_size: for files whose header does not tell. Raises JobError where one of the two is needed and not given, or
    no document can be found; FormatError for what is no packed file.
    """
    file = map_bytes(path)
    try:
        layout = find_layout(file, path)
    except FormatError as error:
        return _without_layout(file, path, error, eos, token_size)
    try:
        rows, rest = read_rows(file, path, layout)
    except FormatError as error:
        _check_certain(path, layout, token_size)
        return _by_eos(path, file, layout, eos, f"an index that cannot be read: {error}")
    layout = settle(rows, layout)
    borders = merge_borders(rows, layout.data_length)
    if borders:
        right = starts_in_order(rows, layout.data_length)
        assert right is not None
        problem = f"offsets of Modalities 0.5's merge, 12 bytes more too low at {borders} places"
        return Rescue(file, layout, np.stack([right, rows[:, 1]], axis=1), problem)
    try:
        check_range(rows, layout, path)
    except FormatError as error:
        _check_certain(path, layout, token_size)
        return _by_eos(path, file, layout, eos, f"an index that does not fit the data: {error}")
    if layout.data_length and not len(rows):
        return _by_eos(path, file, layout, eos, "an index of no documents")
    problem = f"{len(rest)} bytes behind the index" if len(rest) else ""
    return Rescue(file, layout, rows, problem, len(rest))


def _check_certain(path: AnyPath, layout: Layout, token_size: int | None) -> None:
    """Headers of before April 2024 are told apart by the index: without one, the user has to know."""
    if layout.generation < 4 and layout.token_size != token_size:
        raise JobError(
            f"{path}: its index is damaged; it looks like a packed file of generation {layout.generation} with tokens "
            f"of {layout.token_size} bytes: give that token size if it is one"
        )


def _without_layout(
    file: npt.NDArray[np.uint8], path: AnyPath, error: FormatError, eos: int | None, token_size: int | None
) -> Rescue:
    """A file of generation 4 or 5 that is cut off, or was never finished."""
    if len(file) < HEADER_BYTES:
        raise error
    length, told = HEADER[5].unpack(file[:HEADER_BYTES].tobytes())
    size = token_size or told
    if size not in TOKEN_SIZES:
        raise JobError(f"{error}: give the token size, if it is a packed file")
    problem = f"cut off: {error.found}"
    end = len(file)
    rows: Rows | None = None
    if HEADER_BYTES + length == len(file):
        problem = "no index"
    elif HEADER_BYTES + length < len(file):
        problem = "an unfinished pack"
        end, rows = _find_index(file, size)
    n_bytes = (end - HEADER_BYTES) // size * size
    layout = Layout(5, HEADER_BYTES, n_bytes, size)
    if rows is not None:
        return Rescue(file, layout, rows, f"{problem}, of which only the header is missing")
    return _by_eos(path, file, layout, eos, problem, is_cut=True)


def _find_index(file: npt.NDArray[np.uint8], size: int) -> tuple[int, Rows | None]:
    """Where the tokens end because an index begins, and that index if it is whole; else the end of the file."""
    for start in range(HEADER_BYTES, len(file), _WINDOW):
        window = file[start : start + _WINDOW + _INDEX_START_BYTES - 1]
        for match in _INDEX_START.finditer(window.data):
            place = start + match.start()
            try:
                rows, n_bytes, _ = kernels.decode_index(file[place:])
            except IndexSyntaxError as error:
                if (place - HEADER_BYTES) % size == 0 and place + error.offset > len(file) - 20:  # it is cut off
                    return place, None
                continue
            if place + n_bytes == len(file) and is_tiled(rows, place - HEADER_BYTES):
                return place, rows
        drop_pages(file, start, start + len(window))
    return len(file), None


def _by_eos(
    path: AnyPath, file: npt.NDArray[np.uint8], layout: Layout, eos: int | None, problem: str, *, is_cut: bool = False
) -> Rescue:
    """Documents end with the token `eos`; what follows the last is left out where the file was cut off there."""
    if eos is None:
        raise JobError(f"{path}: {problem}. Give the end-of-document token: its documents can be found by it")
    size = layout.token_size
    found: list[Rows] = []
    for start in range(layout.data_offset, layout.index_offset, _WINDOW):
        end = min(start + _WINDOW, layout.index_offset)
        tokens = _tokens(file, layout, start, end)
        found.append(np.flatnonzero(tokens == eos) + 1 + (start - layout.data_offset) // size)
        drop_pages(file, start, end)
    ends = np.concatenate([*found, np.empty(0, np.int64)]) * size
    if not len(ends):
        raise JobError(f"{path}: {problem}, and no token {eos} in it that ends a document")
    if int(ends[-1]) < layout.data_length and not is_cut:
        ends = np.append(ends, layout.data_length)
    starts = np.concatenate(([0], ends[:-1]))
    lost = len(file) - layout.data_offset - int(ends[-1]) if is_cut else 0
    whole = layout._replace(data_length=int(ends[-1]))
    return Rescue(file, whole, np.stack([starts, ends - starts], axis=1), problem, lost)


def _tokens(file: npt.NDArray[np.uint8], layout: Layout, start: int, end: int) -> npt.NDArray[Any]:
    return file[start:end].view(f"{'<' if layout.generation >= 4 else '>'}u{layout.token_size}")
