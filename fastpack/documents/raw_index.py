"""JSON lines and their raw index: one (byte offset, byte length) per line, the newline left out."""

from __future__ import annotations

import os
import warnings
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from fastpack.documents.raw_index_check import (
    check_bounds,
    check_raw_index,
    counts_characters,
    default_index_path,
    known_lengths,
    line_at,
)
from fastpack.io import AtomicFile, ByteArray, ExistencePolicy, PathLike, as_path, map_bytes, open_bytes, pickled_index

_ROWS_AT_ONCE = 16_384  # 256 KiB of rows stay in the second-level cache between the kernels


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
    Warns when the lengths count characters (see `repair_raw_index`). Raises StaleIndex, a FormatError, at first use
    when the index does not belong to the raw file as it is now.
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
        if self._given is None:
            check_raw_index(self.path, self.index_path, data, index)
        else:
            check_bounds(index, len(data), self.path)
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
        line = line_at(data, offset)
        if line is None or length not in known_lengths(line, offset + len(line) + 1 >= len(data)):
            expected = f"the start of a line of {os.fspath(raw_data_path)} and its length in characters or bytes"
            raise pickled_index.entry_error(index_path, 0, entry, old[entry], expected)
        new[entry, 1] = len(line)
    changed = int((new != old).any(axis=1).sum())
    if changed or out_path is not None:
        write_raw_index(index_path if out_path is None else out_path, new)
    return changed
