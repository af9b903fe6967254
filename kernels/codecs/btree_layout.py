"""What SQLite's file format says of pages, cells and records, for databases of 4096-byte pages without reserved bytes.

The names are those of https://www.sqlite.org/fileformat2.html.
"""

from __future__ import annotations

from collections.abc import Sequence

PAGE_BYTES = 4096
INDEX_INTERIOR, TABLE_INTERIOR, INDEX_LEAF, TABLE_LEAF = 2, 5, 10, 13  # kinds of b-tree pages, as their first byte says
LEAF_HEADER_BYTES, INTERIOR_HEADER_BYTES = 8, 12
MAX_LOCAL = {TABLE_LEAF: PAGE_BYTES - 35, INDEX_LEAF: (PAGE_BYTES - 12) * 64 // 255 - 23}  # bytes of payload in a cell
MIN_LOCAL = (PAGE_BYTES - 12) * 32 // 255 - 23
TEXT = -1  # in a list of columns: the text of the row
CELL_ROOM = PAGE_BYTES  # bytes that the largest cell needs while it is written
MAX_FIELDS = 8  # of a record


def varint(number: int) -> bytes:
    """An integer in 1 to 9 bytes: 7 bits in each, the highest first, and all 8 bits of a ninth."""
    number %= 1 << 64
    if number >> 56:
        return bytes([*(0x80 | number >> shift & 0x7F for shift in range(57, 7, -7)), number & 0xFF])
    groups = [number & 0x7F]
    while number := number >> 7:
        groups.append(0x80 | number & 0x7F)
    return bytes(reversed(groups))


def record(values: Sequence[int | bytes | None]) -> bytes:
    """The values as a record: its header of serial types, then integers in as few bytes as they need, and texts."""
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
