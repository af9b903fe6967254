"""JSON lines and their raw index: one (byte offset, byte length) per line, the newline left out."""

from __future__ import annotations

import os
import warnings
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from fastpack import kernels
from fastpack.files import (
    AnyPath,
    AtomicFile,
    ByteArray,
    ExistencePolicy,
    PathLike,
    as_path,
    map_bytes,
    open_bytes,
    peek,
)
from fastpack.formats import pickled_index

_NEWLINE, _RETURN = 10, 13
_SAMPLED = 64 << 20  # bytes that the first lines of a file are looked for in
_ROWS_AT_ONCE = 16_384  # 256 KiB of rows stay in the second-level cache between the kernels


def default_index_path(raw_data_path: PathLike) -> AnyPath:
    """Where the index of a raw file is expected: beside it, `<stem>.idx`."""
    path = as_path(raw_data_path)
    return path.parent / f"{path.stem}.idx"


def read_raw_index(path: PathLike) -> npt.NDArray[np.int64]:
    """The rows int64[n, 2] of an `.idx` file: (byte offset, byte length) of each line.

    Any pickle protocol is read, none is unpickled. Raises FileNotFoundError, or FormatError where the file holds
    anything else than a list of integer pairs.
    """
    return pickled_index.decode(open_bytes(path)[:], path)


def write_raw_index(path: PathLike, index: npt.ArrayLike) -> None:
    """Write the rows (offset, length) [n, 2] as an `.idx` file, byte for byte as Modalities does; replaces `path`."""
    rows = np.asarray(index)
    if rows.size == 0:
        rows = np.empty((0, 2), np.int64)  # np.asarray([]) has neither the shape nor the dtype
    if rows.ndim != 2 or rows.shape[1] != 2 or rows.dtype.kind not in "iu":
        raise ValueError(f"an index of shape {rows.shape} and dtype {rows.dtype}, expected integers of shape (n, 2)")
    with RawIndexWriter(path) as writer:
        for first in range(0, len(rows), _ROWS_AT_ONCE):
            writer.append(rows[first : first + _ROWS_AT_ONCE].astype(np.int64))


class RawIndexWriter:
    """An `.idx` file written row by row in bounded memory; it takes its name when the with block ends without error.

    Raises as `AtomicFile` does, TargetExists by `policy`.
    """

    def __init__(self, path: PathLike, policy: ExistencePolicy = "override") -> None:
        self._file = AtomicFile(path, policy=policy)
        self._encoder = pickled_index.IndexEncoder(self._file.write)

    @property
    def n_rows(self) -> int:
        return self._encoder.n_rows

    def append(self, rows: npt.NDArray[np.int64]) -> None:
        """Add the rows int64[k, 2] of (offset, length)."""
        self._encoder.append(rows)

    def __enter__(self) -> RawIndexWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._encoder.close()
                self._file.commit()
        finally:
            self._file.abort()  # harmless after commit


class JsonlFile:
    """A raw file and its index: `len()`, `line(i)` as bytes. Opened on first use, pickled as paths.

    path: the raw file; index_path: default `<stem>.idx` beside it, or `index`, rows int64[n, 2], which is then used.
    Warns when the lengths count characters (see `repair_raw_index`). Raises FormatError at first use when an entry
    reaches beyond the file.
    """

    def __init__(
        self,
        path: PathLike,
        index_path: PathLike | None = None,
        *,
        index: npt.NDArray[np.int64] | None = None,
        warn_of_characters: bool = True,
    ) -> None:
        self.path = as_path(path)
        self.index_path = default_index_path(path) if index_path is None else as_path(index_path)
        self._given = index
        self._warn_of_characters = warn_of_characters
        self._data: ByteArray | None = None
        self._index: npt.NDArray[np.int64] | None = None

    @property
    def index(self) -> npt.NDArray[np.int64]:
        """int64[n, 2], (byte offset, byte length) of each line."""
        if self._index is None:
            self._open()
        assert self._index is not None
        return self._index

    @property
    def data(self) -> ByteArray:
        """The raw file: its length, and slices uint8[n], read-only."""
        if self._data is None:
            self._open()
        assert self._data is not None
        return self._data

    def line(self, i: int) -> bytes:
        """The bytes of line i, 0 <= i < len(self), as the index gives them."""
        offset, length = self.index[i].tolist()
        return self.data[offset : offset + length].tobytes()

    def span(self, i: int) -> bytes:
        """The bytes from line i to where line i + 1 begins (the last: to the end of the file), its newline included."""
        start = int(self.index[i, 0])
        end = int(self.index[i + 1, 0]) if i + 1 < len(self.index) else len(self.data)
        return self.data[start:end].tobytes()

    def close(self) -> None:
        """Let the mapping and the index go; the next use opens them again."""
        self._data = self._index = None

    def _open(self) -> None:
        data = open_bytes(self.path)
        index = read_raw_index(self.index_path) if self._given is None else self._given
        check_bounds(index, len(data), self.index_path if self._given is None else self.path)
        if self._given is None and self._warn_of_characters and counts_characters(data, index):
            warnings.warn(
                f"{self.index_path} measures lines in characters, as Modalities did before v0.4.0: lines will be cut "
                "short; `fastpack index --repair-legacy` restores the lengths in bytes",
                stacklevel=4,
            )
        self._data, self._index = data, index

    def __len__(self) -> int:
        return len(self.index)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_data": None, "_index": None}


def check_bounds(index: npt.NDArray[np.int64], n_bytes: int, path: PathLike) -> None:
    """Raise FormatError when an entry of `index` (int64[n, 2], no negative ones) reaches beyond a file of `n_bytes`."""
    if len(index) and int(index[:, 0].max()) + int(index[:, 1].max()) > n_bytes:  # one cheap test for the usual file
        beyond = index[:, 0] + index[:, 1] > n_bytes
        if beyond.any():
            entry = int(beyond.argmax())
            expected = f"an entry within the {n_bytes} bytes of the raw file"
            raise pickled_index.entry_error(path, 0, entry, index[entry], expected)


def counts_characters(data: ByteArray, index: npt.NDArray[np.int64], sample: int = 64) -> bool:
    """Whether one of the first `sample` lengths ends before its line does, as those that count characters do."""
    rows = index[:sample]
    first = int(rows[:, 0].min(initial=len(data)))
    text = peek(data, first, min(len(data), first + _SAMPLED, int(rows.sum(axis=1).max(initial=0)) + 1))
    for offset, length in rows.tolist():
        end = offset + length - first
        if end >= len(text) or text[end] == _NEWLINE:  # as a length in bytes ends, at the end of the file or before one
            continue
        line = _line_at(data, offset)
        if line is not None and length < len(line) and length in _known_lengths(line, False):
            return True
    return False


def repair_raw_index(
    raw_data_path: PathLike, index_path: PathLike | None = None, *, out_path: PathLike | None = None
) -> int:
    """Rewrite an index whose lengths count characters (Modalities before v0.4.0) in bytes; return how many changed.

    Those indices also leave out the carriage return before a newline, and may count the last line's newline. Each entry
    must begin a line of the raw file and have its length by one of the two rules, else FormatError: the index then
    belongs to another file. out_path: default is to replace the index itself.
    """
    index_path = default_index_path(raw_data_path) if index_path is None else as_path(index_path)
    data, old = map_bytes(raw_data_path), read_raw_index(index_path)
    check_bounds(old, len(data), index_path)
    new = old.copy()
    for entry, (offset, length) in enumerate(old.tolist()):
        line = _line_at(data, offset)
        if line is None or length not in _known_lengths(line, offset + len(line) + 1 >= len(data)):
            expected = f"the start of a line of {os.fspath(raw_data_path)} and its length in characters or bytes"
            raise pickled_index.entry_error(index_path, 0, entry, old[entry], expected)
        new[entry, 1] = len(line)
    changed = int((new != old).any(axis=1).sum())
    if changed or out_path is not None:
        write_raw_index(index_path if out_path is None else out_path, new)
    return changed


def _line_at(data: ByteArray, offset: int) -> npt.NDArray[np.uint8] | None:
    """The line that begins at `offset`, without its newline; None when no line begins there."""
    if offset >= len(data) or (offset and data[offset - 1 : offset][0] != _NEWLINE):
        return None
    row, step, at = np.empty((1, 2), np.int64), 4096, offset
    while at < len(data):
        n_rows, consumed, _ = kernels.index_lines(data[at : at + step], at, offset, row)
        if n_rows:
            return data[offset : offset + int(row[0, 1])]
        at, step = at + consumed, step * 2
    return data[offset:]


def _known_lengths(line: npt.NDArray[np.uint8], is_last: bool) -> set[int]:
    """The lengths a generation of Modalities gives `line`: in bytes, or in characters with "\\r\\n" read as "\\n"."""
    n_characters = int(np.count_nonzero((line & 0xC0) != 0x80))
    ends_in_return = bool(len(line)) and line[-1] == _RETURN
    n_text = n_characters - ends_in_return
    return {len(line), n_text} | ({n_text + 1} if is_last else set())
