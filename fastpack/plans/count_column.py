"""A column of counts on disk that is searched by its running sum.

It consists of the counts, in a narrow unsigned dtype, the sum of all counts before every block of 64 items, and the
counts that do not fit the dtype: for those, the counts contain its largest value.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn, TypeAlias

import numpy as np
import numpy.typing as npt

from fastpack.errors import FormatError

Integers: TypeAlias = npt.NDArray[np.int64]
Columns: TypeAlias = dict[str, npt.NDArray[Any]]

BLOCK = 64


class CountEncoder:
    """Encodes a column of counts, each 0 or more, a part at a time.

    Attributes
    ----------
    n_items
        Number of counts so far.
    """

    def __init__(self, name: str, dtype: str) -> None:
        self._name, self._dtype, self._largest = name, np.dtype(dtype), int(np.iinfo(dtype).max)
        self._narrow: list[npt.NDArray[Any]] = []
        self._wide = [np.empty((0, 2), np.int64)]
        self._sums: list[Integers] = []  # of whole blocks
        self._rest = np.empty(0, np.int64)  # the counts after them
        self.n_items = 0

    def add(self, counts: npt.NDArray[Any]) -> None:
        """Encode counts, and keep the bytes for `columns`."""
        self._narrow.append(self.encode(counts))

    def encode(self, counts: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return counts in the narrow dtype, for a caller that writes them at once."""
        narrow: npt.NDArray[Any] = np.minimum(counts, self._largest).astype(self._dtype)
        places = np.flatnonzero(narrow == self._largest)
        self._wide.append(np.stack([places + self.n_items, counts[places].astype(np.int64)], axis=1))
        self.n_items += len(counts)
        head, tail = counts[: -len(self._rest) % BLOCK], counts[-len(self._rest) % BLOCK :]
        first = np.concatenate([self._rest, head.astype(np.int64)])
        whole = len(tail) // BLOCK * BLOCK
        if len(first) == BLOCK:
            self._sums.append(first.sum(keepdims=True))
        self._sums.append(tail[:whole].reshape(-1, BLOCK).sum(axis=1, dtype=np.int64))
        self._rest = tail[whole:].astype(np.int64) if len(first) in (0, BLOCK) else first
        return narrow

    def columns(self) -> Iterator[tuple[str, npt.NDArray[Any]]]:
        """Yield the sections of the column, and their parts."""
        yield self._name, np.empty(0, self._dtype)
        for part in self._narrow:
            yield self._name, part
        sums = np.concatenate([*self._sums, self._rest.sum(keepdims=True)[: len(self._rest)]])
        yield f"{self._name}_sums", np.cumsum(sums) - sums
        yield f"{self._name}_wide", np.concatenate(self._wide)


class CountColumn:
    """Counts of the items 0..n-1, which number their units consecutively.

    Every access checks what it reads, so that a damaged file raises FormatError.
    """

    def __init__(self, path: str, name: str, columns: Columns) -> None:
        self._path, self._name = path, name
        self._narrow, self._sums = columns[name], columns[f"{name}_sums"]
        wide = columns[f"{name}_wide"].reshape(-1, 2)
        self.arrays = (*self.narrow, wide.reshape(-1))
        self._wide_items, self._wide_counts = wide[:, 0], wide[:, 1]
        self._largest = int(np.iinfo(self._narrow.dtype).max)
        self.n_items = len(self._narrow)
        if len(self._sums) != -(-self.n_items // BLOCK):
            self._fail(f"{len(self._sums)} sums for {self.n_items} items")
        self.n_units = 0
        if self.n_items:
            last = np.array([self.n_items - 1], np.int64)
            self.n_units = int(self.first(last)[0] + self.counts(last)[0])

    @property
    def narrow(self) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """The counts as they are stored, and the sum before each block."""
        return self._narrow, self._sums

    def counts(self, items: Integers) -> Integers:
        """Return the counts of items, int64 [k], 0 <= item < n_items."""
        counts: Integers = self._narrow[items].astype(np.int64)
        self._widen(items, counts)
        return counts

    def first(self, items: Integers) -> Integers:
        """Return the first unit of items, int64 [k]: the sum of the counts before them."""
        blocks = items // BLOCK
        before = np.arange(BLOCK) < (items % BLOCK)[:, None]
        within: Integers = (self._block_counts(blocks) * before).sum(axis=1)
        return self._sum_before(blocks) + within

    def locate(self, units: Integers) -> tuple[Integers, Integers]:
        """Return the items of units, int64 [k], 0 <= unit < n_units, and the numbers of the units in them."""
        blocks = np.searchsorted(self._sums, units, "right") - 1
        places = units - self._sum_before(np.maximum(blocks, 0))
        counts = self._block_counts(np.maximum(blocks, 0))
        ends = np.cumsum(counts, axis=1)
        within = (ends <= places[:, None]).sum(axis=1)
        if (blocks < 0).any() or (places < 0).any() or (within == BLOCK).any():
            self._fail("sums that contradict the counts")
        rows = np.arange(len(units))
        return blocks * BLOCK + within, places - (ends[rows, within] - counts[rows, within])

    def _sum_before(self, blocks: Integers) -> Integers:
        sums: Integers = self._sums[blocks].astype(np.int64)
        if (sums < 0).any() or (sums >= 1 << 62).any():
            self._fail("a sum outside [0, 2^62)")
        return sums

    def _block_counts(self, blocks: Integers) -> Integers:
        """Return the counts of all items of blocks, int64 [k, BLOCK]; zeros after the last item."""
        items = blocks[:, None] * BLOCK + np.arange(BLOCK)
        counts: Integers = self._narrow[np.minimum(items, self.n_items - 1)].astype(np.int64)
        counts[items >= self.n_items] = 0
        self._widen(items, counts)
        return counts

    def _widen(self, items: Integers, counts: Integers) -> None:
        """Replace the counts that do not fit the narrow dtype."""
        wide = counts == self._largest
        if not wide.any():
            return
        wanted = items[wide]
        places = np.searchsorted(self._wide_items, wanted)
        if (
            not len(self._wide_items)
            or (self._wide_items[np.minimum(places, len(self._wide_items) - 1)] != wanted).any()
        ):
            self._fail("a large count that is missing")
        found = self._wide_counts[places]
        if (found < self._largest).any() or (found >= 1 << 56).any():
            self._fail("a large count out of range")
        counts[wide] = found

    def _fail(self, found: str) -> NoReturn:
        raise FormatError(self._path, 0, f"{found} in the column {self._name}", "an undamaged plan: write it again")
