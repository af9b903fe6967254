"""Recovers damaged and unfinished packed files `.pbin`: what can be kept of the index and the tokens."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastpack import kernels
from fastpack.errors import FormatError, JobError
from fastpack.io import AnyPath, AtomicFile, as_path, drop_pages, map_bytes, partial_path
from fastpack.kernels.codecs.pickled_index_errors import IndexSyntaxError
from fastpack.tokens.journal import journal_path, read_journal
from fastpack.tokens.mask_bits import MaskBits
from fastpack.tokens.pbin.layout import HEADER, HEADER_BYTES, Layout, check_range, find_layout, settle
from fastpack.tokens.pbin.legacy_merge import is_tiled, merge_borders, read_rows, starts_in_order
from fastpack.tokens.pbin.packed_index import write_index
from fastpack.tokens.pbin.packed_writer import CheckpointedPackedWriter
from fastpack.tokens.token_file import BLOCK_ROWS, Recovery, RecoveryOptions, Rows, rows_of_lengths
from fastpack.tokens.token_writer import TOKEN_SIZES

_WINDOW = 64 << 20  # bytes searched at once
_INDEX_START = re.compile(rb"\x80\x04\x95.{8}\x5d\x94\x28?\x4b\x00", re.DOTALL)  # protocol 4, a frame, [, (, 0
_INDEX_START_BYTES = 16


def recover_packed(path: AnyPath, options: RecoveryOptions) -> Recovery:
    """Return what can be recovered of a packed file, or of one whose writer was killed.

    Raises JobError if nothing can be recovered or an argument is missing for it, FormatError if the file is not a
    packed file.
    """
    eos, size = options.eos_token_id, options.token_size_in_bytes
    if not path.exists() and os.path.exists(partial_path(path)):
        if os.path.exists(journal_path(path)):
            return _unfinished(path)
        if options.in_place:
            raise JobError(f"{path} was begun and has no checkpoint: give another output")
        recovered = _recover(as_path(partial_path(path)), eos, size)
    else:
        recovered = _recover(path, eos, size)
    n_tokens = recovered.layout.data_length // recovered.layout.token_size

    def write(target: AnyPath | None) -> None:
        recovered.write(path if target is None else target)

    return Recovery(recovered.problem, len(recovered.rows), n_tokens, recovered.lost_bytes, write)


def _unfinished(source: AnyPath) -> Recovery:
    """Return the file of a writer that was killed, up to its last checkpoint."""
    frames = list(read_journal(journal_path(source)))
    if len(frames) < 2:
        raise JobError(f"{source} was begun and has no checkpoint: nothing can be recovered")
    first, size = frames[0][0], int(frames[0][0]["token_size"])
    n_tokens = int(frames[-1][0]["tokens"])
    lengths = np.frombuffer(b"".join(frame[1] for frame in frames[1:]), np.int64)
    partial = map_bytes(partial_path(source))
    layout = Layout(5, HEADER_BYTES, n_tokens * size, size)
    lost = len(partial) - layout.index_offset
    if lost < 0 or int(lengths.sum()) != n_tokens:
        raise FormatError(journal_path(source), 0, f"{n_tokens} tokens", f"those of {partial_path(source)}")
    masks = [note["mask"] for frame in frames[1:] if "mask" in (note := frame[0]["note"])]
    mask = MaskBits() if masks else None
    if mask is not None:
        mask.restore_notes(masks)

    def write(target: AnyPath | None) -> None:
        if target is not None:
            rows = np.concatenate([np.empty((0, 2), np.int64), *rows_of_lengths([lengths], size)])
            _RecoveredFile(partial, layout, rows, "", lost).write(target)
            return
        writer = CheckpointedPackedWriter(source, size, first["identity"], resume=True)
        if writer.n_tokens != n_tokens:
            writer.suspend()
            raise JobError(f"{source}: another process continued to write it")
        writer.mask = mask
        writer.close()

    return Recovery("an unfinished pack", len(lengths), n_tokens, lost, write, mask)


class _RecoveredFile(NamedTuple):
    """What can be recovered of a packed file: its tokens, as `layout` locates them, and the index.

    `problem` is empty if the file is sound. `lost_bytes` counts the bytes that are not part of a complete document.
    """

    file: npt.NDArray[np.uint8]
    layout: Layout
    rows: Rows
    problem: str
    lost_bytes: int = 0

    def write(self, target: AnyPath) -> None:
        """Write a packed file with these tokens and this index."""
        with AtomicFile(target) as output:
            output.write(HEADER[5].pack(self.layout.data_length, self.layout.token_size))
            output.reserve(self.layout.data_length)
            for tokens in self._blocks():
                output.write(tokens)
            cuts = range(0, len(self.rows), BLOCK_ROWS)
            write_index(output.write, (self.rows[first : first + BLOCK_ROWS] for first in cuts))

    def _blocks(self) -> Iterator[npt.NDArray[Any]]:
        """Yield the tokens in blocks, little-endian."""
        size, layout = self.layout.token_size, self.layout
        for start in range(layout.data_offset, layout.index_offset, _WINDOW):
            end = min(start + _WINDOW, layout.index_offset)
            yield _tokens(self.file, layout, start, end).astype(f"<u{size}", copy=False)
            drop_pages(self.file, start, end)


def _recover(path: AnyPath, eos: int | None, token_size: int | None) -> _RecoveredFile:
    """Recover a packed file; if the index is lost, documents are found by the token `eos` that ends each of them.

    `token_size`: for files whose header does not contain it. Raises JobError if one of the two is needed and not given,
    or no document is found, and FormatError if the file is not a packed file.
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
        return _RecoveredFile(file, layout, np.stack([right, rows[:, 1]], axis=1), problem)
    try:
        check_range(rows, layout, path)
    except FormatError as error:
        _check_certain(path, layout, token_size)
        return _by_eos(path, file, layout, eos, f"an index that does not fit the data: {error}")
    if layout.data_length and not len(rows):
        return _by_eos(path, file, layout, eos, "an index of no documents")
    problem = f"{len(rest)} bytes after the index" if len(rest) else ""
    return _RecoveredFile(file, layout, rows, problem, len(rest))


def _check_certain(path: AnyPath, layout: Layout, token_size: int | None) -> None:
    """Raise JobError for a generation that only the index proves, unless the user gives its token size."""
    if layout.generation < 4 and layout.token_size != token_size:
        raise JobError(
            f"{path}: its index is damaged; it looks like a packed file of generation {layout.generation} with tokens "
            f"of {layout.token_size} bytes: give that token size if it is one"
        )


def _without_layout(
    file: npt.NDArray[np.uint8], path: AnyPath, error: FormatError, eos: int | None, token_size: int | None
) -> _RecoveredFile:
    """Recover a file of generation 4 or 5 that is truncated or unfinished."""
    if len(file) < HEADER_BYTES:
        raise error
    length, stored_size = HEADER[5].unpack(file[:HEADER_BYTES].tobytes())
    size = token_size or stored_size
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
        return _RecoveredFile(file, layout, rows, f"{problem}, of which only the header is missing")
    return _by_eos(path, file, layout, eos, problem, is_cut=True)


def _find_index(file: npt.NDArray[np.uint8], size: int) -> tuple[int, Rows | None]:
    """Find where the index begins; return it if it is complete. Without an index, return the end of the file."""
    for start in range(HEADER_BYTES, len(file), _WINDOW):
        window = file[start : start + _WINDOW + _INDEX_START_BYTES - 1]
        for match in _INDEX_START.finditer(window.data):
            place = start + match.start()
            try:
                rows, n_bytes, _ = kernels.decode_index(file[place:])
            except IndexSyntaxError as error:
                if (place - HEADER_BYTES) % size == 0 and place + error.offset > len(file) - 20:  # it is truncated
                    return place, None
                continue
            if place + n_bytes == len(file) and is_tiled(rows, place - HEADER_BYTES):
                return place, rows
        drop_pages(file, start, start + len(window))
    return len(file), None


def _by_eos(
    path: AnyPath, file: npt.NDArray[np.uint8], layout: Layout, eos: int | None, problem: str, *, is_cut: bool = False
) -> _RecoveredFile:
    """Find documents by their EOS tokens; the tokens after the last one are left out if the file is truncated."""
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
    return _RecoveredFile(file, whole, np.stack([starts, ends - starts], axis=1), problem, lost)


def _tokens(file: npt.NDArray[np.uint8], layout: Layout, start: int, end: int) -> npt.NDArray[Any]:
    return file[start:end].view(f"{'<' if layout.generation >= 4 else '>'}u{layout.token_size}")
