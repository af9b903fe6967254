"""Constants shared by the tar implementations: states, outcomes, limits and faults; and the error they raise."""

from __future__ import annotations

from enum import IntEnum

from fastpack.kernels.codecs.codec_error import CodecError

BLOCK = 512
MAX_NAME_BYTES = 1 << 16
MAX_RECORDS_BYTES = 1 << 20  # of the PAX records of one member; a usual member has some 100
MAX_GROUP_BYTES = 1 << 22  # of all headers of one member: the map of a sparse file can be long
MAX_MAP_DIGITS = 18  # of a number in the map of a sparse file


class State(IntEnum):
    """Entries of the state int64 [len(State)] of a walk.

    POSITION: offset of the next headers in the file; finally the end of the archive.
    WANTED: bytes from POSITION on that the window must contain to continue.
    N_MEMBERS: members of every kind so far. MAX_MEMBERS: more are an error.
    N_SAMPLES: samples so far. N_ROWS, N_NEW: filled rows of `rows` and `samples`.
    KEY_START, KEY_END: the last sample's key in `text`; KEY_END is -1 before the first. TEXT_END: end of `text`.
    N_PARTS: field names in `parts`. LAST_PART: the most recent one.
    """

    POSITION = 0
    WANTED = 1
    N_MEMBERS = 2
    MAX_MEMBERS = 3
    N_SAMPLES = 4
    N_ROWS = 5
    N_NEW = 6
    KEY_START = 7
    KEY_END = 8
    TEXT_END = 9
    N_PARTS = 10
    LAST_PART = 11


class Outcome(IntEnum):
    """Why a walk returned: end of the archive, another window needed, or outputs full."""

    END = 0
    WINDOW = 1
    FULL = 2


class Fault(IntEnum):
    """Why a tar is invalid; `constants_pxi` generates the numbers for Cython."""

    SHORT_HEADER = 1
    CHECKSUM = 2
    NUMBER = 3
    SIZE = 4
    DATA_END = 5
    LONG_NAME = 6
    LONG_RECORDS = 7
    LONG_GROUP = 8
    PADDING = 9
    RECORD = 10
    RECORD_NUMBER = 11
    GLOBAL_RECORD = 12
    SPARSE_SIZE = 13
    SPARSE_MAP = 14
    ORPHAN = 15
    TWICE = 16
    MEMBERS = 17
    REAL_SIZE = 18


# What was found (with a number or the bytes at the offset), and what was expected.
TEXTS = {
    Fault.SHORT_HEADER: ("{number} bytes and the end of the file", "a header of 512 bytes"),
    Fault.CHECKSUM: (
        "a block with the sum {number} and the checksum {data}",
        "a tar header, or zeros where the archive ends",
    ),
    Fault.NUMBER: ("{data} as a number", "octal digits, or a base-256 number"),
    Fault.SIZE: ("{data} as a size", "a size that is not negative and fits 63 bits"),
    Fault.DATA_END: ("{number} bytes and the end of the file", "all data of this member, and its padding"),
    Fault.LONG_NAME: ("a name of {number} bytes", f"a name of at most {MAX_NAME_BYTES} bytes"),
    Fault.LONG_RECORDS: ("PAX records of {number} bytes", f"PAX records of at most {MAX_RECORDS_BYTES} bytes"),
    Fault.LONG_GROUP: ("headers of more than {number} bytes for one member", "a member after its headers"),
    Fault.PADDING: ("{data} after the end of a long name or of PAX records", "zeros up to the next block"),
    Fault.RECORD: ("{data} in PAX records", "a record 'length key=value', a line feed at the end of its length"),
    Fault.RECORD_NUMBER: ("{data} as the value of a PAX record", "a decimal number that fits 63 bits"),
    Fault.GLOBAL_RECORD: ("{data} in a global PAX header", "names and sizes in the headers of single members only"),
    Fault.SPARSE_SIZE: ("a PAX record 'size' of a sparse member", "a sparse member below 8 GiB in the archive"),
    Fault.SPARSE_MAP: ("{data} in the map of a sparse member", "decimal numbers, one per line, within its data"),
    Fault.ORPHAN: ("the end of the archive", "the member that the extended header before it belongs to"),
    Fault.TWICE: ("a second extended header of type {data}", "one before a member"),
    Fault.MEMBERS: ("a member after {number} others", "at most max_members"),
    Fault.REAL_SIZE: ("a PAX record of a real size", "a map of the holes of the sparse member as well"),
}


class TarSyntaxError(CodecError):
    """The bytes are not a tar archive, or a damaged one."""


def syntax_error(fault: int, offset: int, number: int = 0, data: bytes = b"") -> TarSyntaxError:
    """Return the error for `fault` at `offset` of the file, with a number or bytes (of which 24 are shown)."""
    fault = Fault(fault)
    found, expected = TEXTS[fault]
    shown = ascii(data[:24])[1:] + ("..." if len(data) > 24 else "")
    return TarSyntaxError(fault, offset, found.format(number=number, data=shown), expected)
