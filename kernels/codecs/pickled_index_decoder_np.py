"""Read `pickle.dumps(list of (int, int))` without pickle: the specification, in Python.

The decoder accepts what pickle protocols 0 to 5 write for one list of integer pairs, and executes nothing. Values can
leave the stack only into the result, so only a few stack shapes can lead to a valid end: the list, then possibly a
mark, pairs, a second mark, and at most two integers. A few counters are therefore the whole state, and an opcode that
leaves these shapes is an error at its offset.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NoReturn

import numpy as np
import numpy.typing as npt

from fastpack.kernels.codecs.pickled_index_errors import Fault, syntax_error

MAX_DECIMAL_BYTES = 24  # of a text opcode's line: sign, 19 digits, "L", line feed, and some more for the error
DECIMAL = re.compile(rb"0|-?[1-9][0-9]*")
LIST = "list"

Cell = int | tuple[int, int] | str


def decode_index(data: npt.NDArray[np.uint8]) -> tuple[npt.NDArray[np.int64], int, int]:
    """Decode the pickled list of integer pairs at the start of `data`, uint8 [n].

    Returns (rows int64 [n_rows, 2], bytes consumed, bitwise OR of all numbers). The OR is negative exactly if a number
    is, and bounds their sums without another pass. Bytes after the pickle are ignored. Raises IndexSyntaxError, with
    the offset of the opcode, for anything except one list of pairs of 64-bit integers.
    """
    machine = Machine(data.tobytes())
    while not machine.stopped:
        machine.step()
    rows = np.array(machine.rows, np.int64).reshape(-1, 2)
    return rows, machine.pos, int(np.bitwise_or.reduce(rows, axis=None))


class Machine:
    """The state of a pickle reader for one list of integer pairs."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.start = self.pos = 0  # of this opcode; of the next byte
        self.frame_end = 0  # a frame is open while start is before it
        self.has_list = False
        self.rows: list[tuple[int, int]] = []  # the rows of the list, then the pending ones
        self.pending = 0  # pairs on the stack
        self.marks = 0  # the first below pairs or, with none pending, of a tuple; the second of a tuple
        self.ints: list[int] = []  # on top of the stack
        self.memo: list[Cell] = []
        self.stopped = False

    def step(self) -> None:
        """Execute one opcode."""
        self.start = self.pos
        if self.start == len(self.data):
            self.refuse(Fault.END)
        action = ACTIONS.get(self.data[self.start])
        if action is None:
            self.refuse(Fault.OPCODE)
        self.pos += 1
        action(self)

    def refuse(self, fault: Fault) -> NoReturn:
        raise syntax_error(fault, self.start, self.data[self.start] if self.start < len(self.data) else None)

    def require(self, condition: bool, fault: Fault = Fault.GRAMMAR) -> None:
        if not condition:
            self.refuse(fault)

    def take(self, n_bytes: int) -> bytes:
        """Return the next bytes of the opcode's argument."""
        end = self.pos + n_bytes
        self.require(end <= len(self.data), Fault.TRUNCATED)
        self.require(not self.start < self.frame_end < end, Fault.STRADDLE)
        argument = self.data[self.pos : end]
        self.pos = end
        return argument

    def take_unsigned(self, n_bytes: int) -> int:
        return int.from_bytes(self.take(n_bytes), "little")

    def take_decimal(self, suffix: bytes, too_long: Fault) -> int:
        """Return the number of a text opcode, which ends with `suffix`; beyond 64 bits, refuse it as `too_long`."""
        window = self.data[self.pos : self.pos + MAX_DECIMAL_BYTES]
        n_bytes = window.find(b"\n") + 1
        if n_bytes == 0:
            self.refuse(Fault.TRUNCATED if len(window) < MAX_DECIMAL_BYTES else Fault.DECIMAL)
        line = self.take(n_bytes)
        self.require(line.endswith(suffix), Fault.DECIMAL)
        digits = line[: -len(suffix)]
        self.require(DECIMAL.fullmatch(digits) is not None, Fault.DECIMAL)
        number = int(digits)
        self.require(-(2**63) <= number < 2**63, too_long)
        return number

    # What each opcode does.

    def proto(self) -> None:
        protocol = self.take_unsigned(1)
        self.require(self.start == 0, Fault.PROTOCOL_PLACE)
        self.require(protocol <= 5, Fault.PROTOCOL)

    def frame(self) -> None:
        self.require(self.start >= self.frame_end, Fault.FRAME_PLACE)
        length = self.take_unsigned(8)
        self.require(length <= len(self.data) - self.pos, Fault.FRAME_LENGTH)
        self.frame_end = self.pos + length

    def empty_list(self) -> None:
        self.require(not self.has_list and self.marks == 0)
        self.has_list = True

    def list_from_mark(self) -> None:
        self.require(not self.has_list and self.marks == 1 and not self.ints)
        self.has_list, self.marks, self.pending = True, 0, 0

    def mark(self) -> None:
        self.require(not self.ints and (self.marks == 1 or (self.marks == 0 and self.pending == 0)))
        self.marks += 1

    def tuple2(self) -> None:
        self.require(len(self.ints) == 2 and self.marks < 2)
        self.rows.append((self.ints[0], self.ints[1]))
        self.ints = []
        self.pending += 1

    def tuple_from_mark(self) -> None:
        on_list = self.marks == 1 and self.pending == 0 and self.has_list
        self.require(len(self.ints) == 2 and (self.marks == 2 or on_list))
        self.marks -= 1
        self.rows.append((self.ints[0], self.ints[1]))
        self.ints = []
        self.pending += 1

    def append(self) -> None:
        self.require(self.marks == 0 and self.pending == 1 and not self.ints)
        self.pending = 0

    def appends(self) -> None:
        self.require(self.has_list and self.marks == 1 and not self.ints)
        self.marks = self.pending = 0

    def stop(self) -> None:
        self.require(self.has_list and self.marks == 0 and self.pending == 0 and not self.ints)
        self.require(self.pos >= self.frame_end, Fault.STOP_PLACE)
        self.stopped = True

    def push_int(self, number: int) -> None:
        room = self.marks > 0 or (self.has_list and self.pending == 0)
        self.require(room and len(self.ints) < 2)
        self.ints.append(number)

    def long(self, n_bytes: int) -> None:
        self.require(0 <= n_bytes <= 8, Fault.INT_SIZE)
        self.push_int(int.from_bytes(self.take(n_bytes), "little", signed=True))

    def put(self, number: int) -> None:
        """Store the top of the stack in the memo."""
        cell: Cell
        if self.ints:
            cell = self.ints[-1]
        elif self.pending and self.marks < 2:
            cell = self.rows[-1]
        else:
            self.require(self.has_list and self.marks == 0)
            cell = LIST
        self.require(0 <= number <= len(self.memo), Fault.MEMO_PUT)
        self.memo[number : number + 1] = [cell]

    def get(self, number: int) -> None:
        """Push a memo entry; the list itself cannot be an element of itself."""
        self.require(0 <= number < len(self.memo) and self.memo[number] != LIST, Fault.MEMO_GET)
        cell = self.memo[number]
        if isinstance(cell, int):
            return self.push_int(cell)
        assert isinstance(cell, tuple)
        room = self.marks == 1 or (self.marks == 0 and self.has_list and self.pending == 0)
        self.require(room and not self.ints)
        self.rows.append(cell)
        self.pending += 1
        return None


ACTIONS: dict[int, Callable[[Machine], None]] = {
    0x80: Machine.proto,
    0x95: Machine.frame,
    0x5D: Machine.empty_list,
    0x6C: Machine.list_from_mark,
    0x28: Machine.mark,
    0x86: Machine.tuple2,
    0x74: Machine.tuple_from_mark,
    0x61: Machine.append,
    0x65: Machine.appends,
    0x2E: Machine.stop,
    0x4B: lambda m: m.push_int(m.take_unsigned(1)),
    0x4D: lambda m: m.push_int(m.take_unsigned(2)),
    0x4A: lambda m: m.push_int(int.from_bytes(m.take(4), "little", signed=True)),
    0x8A: lambda m: m.long(m.take_unsigned(1)),
    0x8B: lambda m: m.long(int.from_bytes(m.take(4), "little", signed=True)),
    0x49: lambda m: m.push_int(m.take_decimal(b"\n", Fault.INT_RANGE)),
    0x4C: lambda m: m.push_int(m.take_decimal(b"L\n", Fault.INT_RANGE)),
    0x94: lambda m: m.put(len(m.memo)),
    0x71: lambda m: m.put(m.take_unsigned(1)),
    0x72: lambda m: m.put(m.take_unsigned(4)),
    0x70: lambda m: m.put(m.take_decimal(b"\n", Fault.MEMO_PUT)),
    0x68: lambda m: m.get(m.take_unsigned(1)),
    0x6A: lambda m: m.get(m.take_unsigned(4)),
    0x67: lambda m: m.get(m.take_decimal(b"\n", Fault.MEMO_GET)),
}
