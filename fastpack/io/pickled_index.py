"""The pickled index, `pickle.dumps(list of (offset, length))`: checked reading without unpickling, streamed writing.

It is the content of an `.idx` file and the last segment of a `.pbin` file.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from fastpack import kernels
from fastpack.errors import FormatError
from fastpack.io import ByteArray
from fastpack.kernels.codecs.pickled_index_decoder_np import Machine
from fastpack.kernels.codecs.pickled_index_errors import IndexSyntaxError

_FRAME_HEADER = 9  # FRAME opcode and the length of the frame's content
_BATCH_ROWS = 1000
_BUFFER_BYTES = 4 * 65_664  # flushed every three frames; fits into the second-level cache
_FIRST_BYTES = 1 << 17  # two frames


def decode(
    data: npt.NDArray[np.uint8], path: str | os.PathLike[str], offset: int = 0, *, allow_trailing: bool = True
) -> npt.NDArray[np.int64]:
    """Decode a pickled index, uint8 [n_bytes] at `offset` of `path`; return int64 [n, 2] of (offset, length).

    Every pickle protocol is supported, and nothing is unpickled. Bytes after the pickle, which `pickle.load` ignores,
    cause a warning, or an error with allow_trailing=False. Raises FormatError if the data are not one list of pairs of
    integers, or if a pair is negative or its sum exceeds 63 bits.
    """
    rows, n_bytes = decode_prefix(data, path, offset)
    if n_bytes < len(data):
        if not allow_trailing:
            found = f"{len(data) - n_bytes} bytes after the index"
            raise FormatError(path, offset + n_bytes, found, "the end of the file")
        warnings.warn(
            f"{os.fspath(path)}: {len(data) - n_bytes} bytes after the index, at byte {offset + n_bytes}, are ignored",
            stacklevel=2,
        )
    return rows


def decode_prefix(
    data: npt.NDArray[np.uint8], path: str | os.PathLike[str], offset: int = 0
) -> tuple[npt.NDArray[np.int64], int]:
    """Decode as `decode`; also return the size of the index in bytes. Bytes after it are not checked."""
    try:
        rows, n_bytes, bits = kernels.decode_index(data)
    except IndexSyntaxError as error:
        raise FormatError(path, offset + error.offset, error.found, error.expected) from None
    if not 0 <= bits < 1 << 62:  # else no number, and no sum of two, has the sign bit
        _check_signs(rows, path, offset)
    return rows, n_bytes


def decode_first(data: ByteArray, path: str | os.PathLike[str], offset: int, n_rows: int) -> npt.NDArray[np.int64]:
    """Decode at most the first `n_rows` rows of a pickled index, int64 [k, 2]; the bytes after them are not read.

    A row takes microseconds, so `decode` is faster for many rows. Raises FormatError as `decode`.
    """
    n_bytes = _FIRST_BYTES
    while True:
        machine = Machine(data[:n_bytes].tobytes())
        try:
            while not machine.stopped and len(machine.rows) < n_rows:
                machine.step()
            break
        except IndexSyntaxError as error:
            if n_bytes >= len(data):
                raise FormatError(path, offset + error.offset, error.found, error.expected) from None
            n_bytes *= 4  # the cause may be the end of the chunk
    rows = np.array(machine.rows, np.int64).reshape(-1, 2)
    _check_signs(rows, path, offset)
    return rows


def _check_signs(rows: npt.NDArray[np.int64], path: str | os.PathLike[str], offset: int) -> None:
    starts, lengths = rows[:, 0], rows[:, 1]
    bad = (starts < 0) | (lengths < 0) | (starts > np.iinfo(np.int64).max - np.maximum(lengths, 0))
    if bad.any():
        entry = int(bad.argmax())
        raise entry_error(path, offset, entry, rows[entry], "an offset and a length >= 0 whose sum fits 63 bits")


def entry_error(
    path: str | os.PathLike[str], offset: int, entry: int, row: npt.NDArray[np.int64], expected: str
) -> FormatError:
    """Return the error for a well-formed but invalid entry; `offset` is the start of the index."""
    return FormatError(path, offset, f"index entry {entry} = ({int(row[0])}, {int(row[1])})", expected)


class IndexEncoder:
    """Encode a pickled index row by row, byte for byte as `pickle.dumps` of the whole list (protocol 4).

    write: called with each chunk of the pickle, whose buffer is reused afterwards. Memory does not grow with the rows.
    n_rows: rows appended; n_bytes: bytes passed to `write` so far, after `close()` the size of the pickle.
    """

    def __init__(self, write: Callable[[memoryview], object]) -> None:
        self._write = write
        self._out = np.zeros(_BUFFER_BYTES, np.uint8)
        self._out[:2] = 0x80, 4
        self._out[2 + _FRAME_HEADER : 4 + _FRAME_HEADER] = 0x5D, 0x94
        self._state = np.array([0, 2, 4 + _FRAME_HEADER], np.int64)  # see kernels.encode_rows
        self.n_bytes = 0
        self.closed = False

    @property
    def n_rows(self) -> int:
        return int(self._state[0])

    def append(self, rows: npt.NDArray[np.int64]) -> None:
        """Add the rows int64[k, 2] of (offset, length)."""
        if self.closed:
            raise ValueError("append to a closed index")
        rows = np.ascontiguousarray(rows, np.int64)
        if rows.ndim != 2 or rows.shape[1] != 2:
            raise ValueError(f"rows of shape {rows.shape}, expected (k, 2)")
        done = 0
        while done < len(rows):
            done += kernels.encode_rows(rows[done:], self._state, self._out)
            self._flush()

    def close(self) -> None:
        """Write the rest of the pickle; no rows can be appended afterwards."""
        if self.closed:
            return
        self.closed = True
        n_rows, frame, end = self._state.tolist()
        content = self._out[frame + _FRAME_HEADER : end].tobytes()
        if n_rows == 1:
            content = b"\x5d\x94" + content[3:] + b"a"  # no MARK: a single row is added by APPEND
        elif n_rows % _BATCH_ROWS:
            content += b"e"
        content += b"."
        header = b"\x95" + len(content).to_bytes(8, "little") if n_rows else b""  # the empty list has no frame
        self._emit(memoryview(self._out[:frame].tobytes() + header + content))

    def _flush(self) -> None:
        """Write the frames before the open one."""
        _, frame, end = self._state.tolist()
        if frame > 2:
            self._emit(memoryview(self._out[:frame].data))
            self._out[: end - frame] = self._out[frame:end].copy()
            self._state[1:] = 0, end - frame

    def _emit(self, chunk: memoryview) -> None:
        self._write(chunk)
        self.n_bytes += len(chunk)


def encode(rows: npt.NDArray[Any]) -> bytes:
    """Return the pickle of the rows int64 [n, 2], for small indices."""
    chunks: list[bytes] = []
    encoder = IndexEncoder(lambda chunk: chunks.append(bytes(chunk)))
    encoder.append(rows)
    encoder.close()
    return b"".join(chunks)
