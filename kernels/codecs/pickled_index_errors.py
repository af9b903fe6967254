"""Faults of a pickled index, by number, and the error that both implementations raise."""

from __future__ import annotations

from enum import IntEnum

from fastpack.kernels.codecs.codec_error import CodecError


class Fault(IntEnum):
    """Why a pickled index is invalid; `constants_pxi` generates the numbers for Cython."""

    OPCODE = 1
    GRAMMAR = 2
    END = 3
    TRUNCATED = 4
    PROTOCOL = 5
    PROTOCOL_PLACE = 6
    FRAME_PLACE = 7
    FRAME_LENGTH = 8
    STRADDLE = 9
    STOP_PLACE = 10
    MEMO_PUT = 11
    MEMO_GET = 12
    DECIMAL = 13
    INT_SIZE = 14
    INT_RANGE = 15


EXPECTED = {
    Fault.OPCODE: "a list of plain integer pairs and nothing else (if the file can be trusted, create the index again)",
    Fault.GRAMMAR: "an opcode that continues one list of integer pairs",
    Fault.END: "STOP (2e) at the end of the list",
    Fault.TRUNCATED: "its whole argument before the end of the data",
    Fault.PROTOCOL: "a pickle protocol from 0 to 5",
    Fault.PROTOCOL_PLACE: "PROTO (80) as the first byte only",
    Fault.FRAME_PLACE: "FRAME (95) only after the frame before it has ended",
    Fault.FRAME_LENGTH: "a frame that ends within the data",
    Fault.STRADDLE: "its whole argument before the end of the frame",
    Fault.STOP_PLACE: "STOP (2e) as the last byte of its frame",
    Fault.MEMO_PUT: "a memo number not above the count of those before it",
    Fault.MEMO_GET: "the memo number of an integer or a pair stored before",
    Fault.DECIMAL: "decimal digits without leading zeros, and a line feed",
    Fault.INT_SIZE: "an integer of at most 8 bytes",
    Fault.INT_RANGE: "an integer that fits 64 bits",
}

# Faults of streams that `pickle.loads` may accept; no writer of indexes produces them.
STRICTER_THAN_PICKLE = frozenset(
    {
        Fault.OPCODE,
        Fault.PROTOCOL_PLACE,
        Fault.FRAME_PLACE,
        Fault.FRAME_LENGTH,
        Fault.STRADDLE,
        Fault.STOP_PLACE,
        Fault.MEMO_PUT,
        Fault.DECIMAL,
        Fault.INT_SIZE,
    }
)


class IndexSyntaxError(CodecError):
    """The bytes are not a pickled list of integer pairs."""


def syntax_error(fault: int, offset: int, opcode: int | None) -> IndexSyntaxError:
    """Return the error for `fault` at `offset`, with the opcode there (None: end of the data)."""
    fault = Fault(fault)
    return IndexSyntaxError(fault, offset, _opcode_text(opcode), EXPECTED[fault])


def _opcode_text(opcode: int | None) -> str:
    if opcode is None:
        return "the end of the data"
    from pickletools import opcodes  # 10 ms, only for an error

    names = [info.name for info in opcodes if info.code == chr(opcode)]
    return f"opcode {opcode:02x} ({names[0]})" if names else f"byte {opcode:02x}, which is no pickle opcode"
