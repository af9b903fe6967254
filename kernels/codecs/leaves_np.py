"""Read the rows of an SQLite table from its leaf pages: the specification, in Python."""

from __future__ import annotations

from collections import deque

import numpy as np
import numpy.typing as npt

from fastpack.kernels.codecs.btree_layout import (
    LEAF_HEADER_BYTES,
    MAX_LOCAL,
    N_FIELDS,
    N_RECENT,
    PAGE_BYTES,
    TABLE_LEAF,
)

_INT_BYTES = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8, 8: 0, 9: 0}  # by serial type


def read_leaves(
    data: npt.NDArray[np.uint8], pages: npt.NDArray[np.int64], text_column: int, rows: npt.NDArray[np.int64]
) -> int:
    """Write a row for each record on leaf pages of a table; return how many, or -1 for unsupported pages.

    data: uint8 [n], a database with 4096-byte pages. pages: int64 [k], numbers of leaf pages, from 1. text_column: the
    field of a record that is a text; the other four are integers. rows: int64 [m, 7]: the five fields (for the text:
    its start in `data`), the length of the text in bytes, and the number of the first row with the same text, if it is
    among the 8 texts that were new most recently.

    -1: a page that is not a leaf of a table, a record with other fields or with overflow pages, a page or record that
    exceeds its bounds, or more records than rows.
    """
    n_rows = 0
    recent: deque[tuple[bytes, int]] = deque(maxlen=N_RECENT)
    for page in pages.tolist():
        if not 1 <= page <= len(data) // PAGE_BYTES:
            return -1
        start = (page - 1) * PAGE_BYTES
        content = data[start : start + PAGE_BYTES].tobytes()
        n_cells = int.from_bytes(content[3:5], "big")
        if content[0] != TABLE_LEAF or LEAF_HEADER_BYTES + 2 * n_cells > PAGE_BYTES or n_rows + n_cells > len(rows):
            return -1
        for cell in range(n_cells):
            pointer = LEAF_HEADER_BYTES + 2 * cell
            fields = _record(content, int.from_bytes(content[pointer : pointer + 2], "big"), text_column)
            if fields is None:
                return -1
            length = fields.pop()
            text = content[fields[text_column] : fields[text_column] + length]
            first = next((row for known, row in recent if known == text), n_rows)
            if first == n_rows:
                recent.append((text, n_rows))
            fields[text_column] += start
            rows[n_rows] = [*fields, length, first]
            n_rows += 1
    return n_rows


def _record(page: bytes, at: int, text_column: int) -> list[int] | None:
    """Return the fields of the record at an offset of a page, and the length of its text; None if unsupported."""
    try:
        n_bytes, at = _varint(page, at)
        _, begin = _varint(page, at)
        end = begin + n_bytes
        n_header, at = _varint(page, begin)
        body = begin + n_header
        if n_bytes > MAX_LOCAL[TABLE_LEAF] or max(end, body) > PAGE_BYTES:
            return None
        fields, length = [], 0
        for column in range(N_FIELDS):
            kind, at = _varint(page, at)
            if column == text_column:
                if kind < 13 or kind % 2 == 0:
                    return None
                length = (kind - 13) // 2
                fields.append(body)
                body += length
            else:
                size = _INT_BYTES[kind]
                value = kind - 8 if kind >= 8 else int.from_bytes(page[body : body + size], "big", signed=True)
                fields.append(value)
                body += size
    except (IndexError, KeyError):
        return None
    return [*fields, length] if at == begin + n_header and body == end else None


def _varint(page: bytes, at: int) -> tuple[int, int]:
    """Return a varint and its end."""
    number = 0
    for _ in range(8):
        number = number << 7 | page[at] & 0x7F
        at += 1
        if page[at - 1] < 0x80:
            return number, at
    return number << 8 | page[at], at + 1
