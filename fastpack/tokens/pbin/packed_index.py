"""Writing the pickled index of a packed file: (offset, length) of each document, in bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from fastpack.io.pickled_index import IndexEncoder
from fastpack.tokens.token_file import Rows

WriteIndex: TypeAlias = Callable[[Callable[[memoryview], object], Iterable[Rows]], int]


def write_index(write: Callable[[memoryview], object], blocks: Iterable[Rows]) -> int:
    """Write the pickled index of rows int64 [k, 2] in pieces; return its size in bytes."""
    encoder = IndexEncoder(write)
    for rows in blocks:
        encoder.append(rows)
    encoder.close()
    return encoder.n_bytes
