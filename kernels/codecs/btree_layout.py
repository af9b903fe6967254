"""Pages, cells and records of SQLite's file format, for databases with 4096-byte pages without reserved bytes.

The names are those of https://www.sqlite.org/fileformat2.html.
"""

from __future__ import annotations

from collections.abc import Sequence

PAGE_BYTES = 4096
INDEX_INTERIOR, TABLE_INTERIOR, INDEX_LEAF, TABLE_LEAF = 2, 5, 10, 13  # kinds of b-tree pages: their first byte
LEAF_HEADER_BYTES, INTERIOR_HEADER_BYTES = 8, 12
MAX_LOCAL = {TABLE_LEAF: PAGE_BYTES - 35, INDEX_LEAF: (PAGE_BYTES - 12) * 64 // 255 - 23}  # payload bytes in a cell
MIN_LOCAL = (PAGE_BYTES - 12) * 32 // 255 - 23
TEXT = -1  # in a list of columns: the text of the row
CELL_ROOM = PAGE_BYTES  # bytes that must be free to write a cell
MAX_FIELDS = 8  # of a record
MAX_PARENT_BYTES = (
    1040  # of a cell in an interior page: 4 for the page, 9 for the size, the payload, 4 for its overflow
)

# Columns of the rows that `read_leaves` writes: the fields of a record, then these.
N_FIELDS = 5
LENGTH, FIRST = N_FIELDS, N_FIELDS + 1
N_COLUMNS = N_FIELDS + 2
N_RECENT = 8  # recent texts that a row's text is compared with


def varint(number: int) -> bytes:
    """Encode an integer in 1 to 9 bytes: 7 bits per byte, highest first; the ninth byte has 8 bits."""
    number %= 1 << 64
    if number >> 56:
        return bytes([*(0x80 | number >> shift & 0x7F for shift in range(57, 7, -7)), number & 0xFF])
    groups = [number & 0x7F]
    while number := number >> 7:
        groups.append(0x80 | number & 0x7F)
    return bytes(reversed(groups))


def record(values: Sequence[int | bytes | None]) -> bytes:
    """Encode a record: a header of serial types, then integers in as few bytes as possible, and texts."""
    types, body = b"", b""
    for value in values:
        if value is None:
            types += b"\x00"
        elif isinstance(value, bytes):
            types += varint(2 * len(value) + 13)
            body += value
        elif value in (0, 1):
            types += bytes([8 + value])
        else:
            n_bytes = (value if value >= 0 else ~value).bit_length() // 8 + 1
            serial_type, n_bytes = {5: (5, 6), 6: (5, 6), 7: (6, 8), 8: (6, 8)}.get(n_bytes, (n_bytes, n_bytes))
            types += bytes([serial_type])
            body += value.to_bytes(n_bytes, "big", signed=True)
    if len(types) > 126:
        raise ValueError(f"a header of {len(types) + 1} bytes, expected at most 127")
    return bytes([len(types) + 1]) + types + body
