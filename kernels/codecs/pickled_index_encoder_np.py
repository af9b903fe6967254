"""Write `pickle.dumps(list of (int, int))` without pickle: the specification, in Python.

The bytes are those of CPython's C pickler, protocol 4: rows in batches of 1000; a frame is closed before the first
object (a row, or an integer of a row) that follows 65536 bytes or more in it.
"""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt

BATCH_ROWS = 1000
FRAME_BYTES = 65536  # a frame of this length is closed before the next object
FRAME_HEADER_BYTES = 9
FRAME_ROOM = FRAME_BYTES + 128  # header, bytes up to the limit, one row beyond it, the next header


def encode_rows(rows: npt.NDArray[np.int64], state: npt.NDArray[np.int64], out: npt.NDArray[np.uint8]) -> int:
    """Append the rows of an index to a pickle; return how many were taken.

    rows: int64 [k, 2]. state: int64 [3], updated: rows encoded since the start of the list, offset in `out` of the
    header of the open frame, end of the bytes in `out`. Encoding stops early, after a row, if `out` might not hold
    another frame (FRAME_ROOM) after the header of the open one; the caller then takes out[: state[1]]. A batch starts
    with MARK and is closed when it is full.
    """
    stop_at = len(out) - FRAME_ROOM
    encoder = _Encoder(int(state[0]), int(state[1]), int(state[2]), out)
    n_taken = 0
    while n_taken < len(rows) and encoder.frame <= stop_at:
        encoder.row(int(rows[n_taken, 0]), int(rows[n_taken, 1]))
        n_taken += 1
    state[:] = encoder.n_rows, encoder.frame, encoder.end
    return n_taken


class _Encoder:
    def __init__(self, n_rows: int, frame: int, end: int, out: npt.NDArray[np.uint8]) -> None:
        self.n_rows, self.frame, self.end = n_rows, frame, end
        self.out = out.data

    def put(self, encoded: bytes) -> None:
        self.out[self.end : self.end + len(encoded)] = encoded
        self.end += len(encoded)

    def row(self, first: int, second: int) -> None:
        if self.n_rows % BATCH_ROWS == 0:
            self.put(b"(")
        self.before_object()
        self.put(_encode_int(first))
        self.before_object()
        self.put(_encode_int(second) + b"\x86\x94")
        self.n_rows += 1
        if self.n_rows % BATCH_ROWS == 0:
            self.put(b"e")

    def before_object(self) -> None:
        length = self.end - self.frame - FRAME_HEADER_BYTES
        if length >= FRAME_BYTES:
            self.out[self.frame : self.frame + FRAME_HEADER_BYTES] = struct.pack("<BQ", 0x95, length)
            self.frame = self.end
            self.end += FRAME_HEADER_BYTES


def _encode_int(number: int) -> bytes:
    if 0 <= number < 2**8:
        return struct.pack("<BB", 0x4B, number)
    if 0 <= number < 2**16:
        return struct.pack("<BH", 0x4D, number)
    if -(2**31) <= number < 2**31:
        return struct.pack("<Bi", 0x4A, number)
    n_bytes = (number if number >= 0 else ~number).bit_length() // 8 + 1
    return struct.pack("<BB", 0x8A, n_bytes) + number.to_bytes(n_bytes, "little", signed=True)
