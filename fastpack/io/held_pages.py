"""Where this process has mapped the checked pages of objects, so that many reads are located at once."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from fastpack.io.block_cache import Block

LOOK_SECONDS = 1.0  # after this time the files of all blocks are looked at again
Numbers = npt.NDArray[np.int64]


class _Table(NamedTuple):
    """The address of each page, 0 if it is not known, and the blocks that keep the addresses valid."""

    addresses: npt.NDArray[np.uint64]
    blocks: dict[Block, None]
    made: float


class HeldPages:
    """A table of addresses: each object has a range of positions, one per byte, that begins with a page.

    An address is known from when a read has checked its page until the table is replaced, after `LOOK_SECONDS`. What
    `find` returns stays valid as long as its table. Threads may lose each other's entries, which costs a read.
    """

    def __init__(self, page_bytes: int) -> None:
        self.page_bytes = page_bytes
        self._shift = page_bytes.bit_length() - 1
        self._n_pages = 0
        self.clear()

    def clear(self) -> None:
        """Forget all addresses."""
        self._table = _Table(np.zeros(max(1024, 2 * self._n_pages), np.uint64), {}, time.monotonic())

    def reserve(self, n_bytes: int) -> int:
        """Return the first position of a new range; one thread at a time."""
        first = self._n_pages
        self._n_pages += -(-n_bytes // self.page_bytes)
        if self._n_pages > len(self._table.addresses):
            self.clear()
        return first * self.page_bytes

    def find(self, positions: Numbers, n_bytes: int) -> tuple[npt.NDArray[np.uint64], object]:
        """Return the address of `n_bytes` > 0 bytes at each position, 0 if unknown, and what keeps them valid."""
        # Another thread may have made a table that is too short for an object reserved at the same time.
        if time.monotonic() - self._table.made > LOOK_SECONDS or self._n_pages > len(self._table.addresses):
            self.clear()
        table = self._table
        pages, within = positions >> self._shift, positions & (self.page_bytes - 1)
        found = table.addresses.take(pages)
        is_known = found != 0
        n_more = (within + (n_bytes - 1)) >> self._shift
        for k in range(1, int(n_more.max(initial=0)) + 1):
            step = np.minimum(n_more, k)
            is_known &= table.addresses.take(pages + step) == found + (step << self._shift).view(np.uint64)
        found += within.view(np.uint64)
        found *= is_known
        return found, table

    def note(self, block: Block, position: int, first: int, end: int, most: int) -> None:
        """Enter the checked pages of a block that was just looked at, of which byte 0 has this position.

        Only pages among the bytes [first, end) of the block are entered. most: the number of blocks in the table.
        """
        if len(self._table.blocks) >= most:
            self.clear()
        table = self._table
        table.blocks[block] = None
        start, stop = first // self.page_bytes, -(-end // self.page_bytes)
        to = position // self.page_bytes
        if start < stop and to + stop <= len(table.addresses):
            table.addresses[to + start : to + stop] = block.page_addresses(self.page_bytes)[start:stop]
