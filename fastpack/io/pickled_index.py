"""The pickled index, `pickle.dumps(list of (offset, length))`: checked reading without unpickling, streamed writing.

It is all of an `.idx` file and the last segment of a `.pbin` file.
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
_BUFFER_BYTES = 4 * 65_664  # flushed every three frames; it stays in the second-level cache
_FIRST_BYTES = 1 << 17  # two frames


def decode(
    data: npt.NDArray[np.uint8], path: str | os.PathLike[str], offset: int = 0, *, allow_trailing: bool = True
) -> npt.NDArray[np.int64]:
    """The rows int64[n, 2] of (offset, length) in the pickled index uint8[n_bytes], which stands at `offset` of `path`.

    Any pickle protocol is read, none is unpickled. Bytes after the pickle are warned of, as `pickle.load` would ignore
    them; with allow_trailing=False they are an error. Raises FormatError where the data is anything else than one list
    of integer pairs, or a pair is negative or sums to more than 63 bits.
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
    """As `decode`, and how many bytes the index takes; those after it are not looked at."""
    try:
        rows, n_bytes, bits = kernels.decode_index(data)
    except IndexSyntaxError as error:
        raise FormatError(path, offset + error.offset, error.found, error.expected) from None
    if not 0 <= bits < 1 << 62:  # else no number, and no sum of two, has the sign bit
        _check_signs(rows, path, offset)
    return rows, n_bytes


def decode_first(data: ByteArray, path: str | os.PathLike[str], offset: int, n_rows: int) -> npt.NDArray[np.int64]:
    """The first rows int64[at most n_rows, 2] of a pickled index; what lies behind them is not read.

    A row takes microseconds: for many, `decode` is faster. Raises FormatError as that does, for the part that is read.
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
            n_bytes *= 4  # the fault may be that the piece ends here
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
    """The error for an index entry that is well-formed and wrong; `offset` is where its index starts."""
    return FormatError(path, offset, f"index entry {entry} = ({int(row[0])}, {int(row[1])})", expected)


class IndexEncoder:
    """Writes a pickled index row by row, byte for byte as `pickle.dumps` of the whole list does (protocol 4).

    write: takes each piece of the pickle; the buffer it gets is used again after it returned. Memory does not grow with
    the rows. n_rows: rows appended; n_bytes: bytes given to `write` so far, after `close()` the size of the pickle.
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
        """Write what is left of the pickle. Nothing can be appended after it."""
        if self.closed:
            return
        self.closed = True
        n_rows, frame, end = self._state.tolist()
        content = self._out[frame + _FRAME_HEADER : end].tobytes()
        if n_rows == 1:
            content = b"\x5d\x94" + content[3:] + b"a"  # MARK goes: a single row is added by APPEND
        elif n_rows % _BATCH_ROWS:
            content += b"e"
        content += b"."
        header = b"\x95" + len(content).to_bytes(8, "little") if n_rows else b""  # the empty list has no frame
        self._give(memoryview(self._out[:frame].tobytes() + header + content))

    def _flush(self) -> None:
        """Give away the frames before the open one."""
        _, frame, end = self._state.tolist()
        if frame > 2:
            self._give(memoryview(self._out[:frame].data))
            self._out[: end - frame] = self._out[frame:end].copy()
            self._state[1:] = 0, end - frame

    def _give(self, piece: memoryview) -> None:
        self._write(piece)
        self.n_bytes += len(piece)


def encode(rows: npt.NDArray[Any]) -> bytes:
    """The pickle of the rows int64[n, 2] in one piece, for small indices."""
    pieces: list[bytes] = []
    encoder = IndexEncoder(lambda piece: pieces.append(bytes(piece)))
    encoder.append(rows)
    encoder.close()
    return b"".join(pieces)
