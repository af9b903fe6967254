"""Windows of tokens in mapped shards: the address of each window of a batch, grouped for one kernel call per dtype."""

from __future__ import annotations

import functools
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from fastpack import kernels
from fastpack.datasets.file_spans import RowSpans, row_spans
from fastpack.datasets.mapped_shards import LazyOpeners, MappedShards, Mappings, Opener
from fastpack.datasets.prefetch import Prefetch
from fastpack.datasets.window_groups import RowNumbers, Tokens, WindowGroup, address_of, copied_group, dtype_selector
from fastpack.item_numbers import item_numbers


class Windows:
    """Windows of `n_tokens` tokens, `step` tokens apart, of shards that are mapped on first use.

    Parameters
    ----------
    openers
        One per shard, as for `MappedShards`.
    n_windows
        The number of windows of each shard.
    """

    def __init__(self, openers: Sequence[Opener], n_windows: npt.ArrayLike, n_tokens: int, step: int) -> None:
        self.shards = MappedShards(openers)
        self.n_tokens, self.step = n_tokens, step
        self.cumulative = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.asarray(n_windows, np.int64))])
        self._prefetch = Prefetch()

    @property
    def uniform(self) -> bool:
        """Whether the shards mapped so far have one dtype, so that one kernel call fills a batch."""
        return self.shards.uniform

    def window(self, number: int, start: int) -> Tokens:
        """Return the window of shard `number` that begins at its token `start`."""
        return self.shards.shard(number)[start : start + self.n_tokens]

    def groups(self, indices: npt.NDArray[np.int64], negative: bool = False) -> Iterator[WindowGroup]:
        """Yield the windows `indices` (int64 [B]) grouped by dtype; window k belongs to row k.

        A dtype without a kernel (big-endian, float, unaligned) is copied to int64 first.

        Parameters
        ----------
        negative
            Whether negative indices count from the end.

        Raises
        ------
        IndexError
            If an index is out of range.
        """
        addresses = np.empty(len(indices), np.uint64)
        mappings = self._locate(indices, addresses)
        if mappings is not None and mappings.dtype_selector is not None:
            yield WindowGroup(addresses, row_numbers(len(indices)), mappings.dtype_selector, mappings)
            return
        shards, starts = self.positions(indices, negative)
        for first in range(0, len(indices), self.shards.max_open):  # a step needs at most max_open mapped shards
            step = slice(first, first + self.shards.max_open)
            yield from self._mixed_groups(shards[step].tolist(), starts[step], row_numbers(len(indices))[step])

    def _locate(self, indices: npt.NDArray[np.int64], addresses: npt.NDArray[np.uint64]) -> Mappings | None:
        """Write the windows' addresses, mapping shards as needed; None if the fast path does not apply."""
        mappings, done, n_rows = self.shards.mappings, 0, len(indices)
        while self.shards.uniform:
            if mappings.dtype_selector is not None:
                step_bytes = self.step * mappings.dtype_selector.itemsize
                rest, of_rest = (indices[done:], addresses[done:]) if done else (indices, addresses)
                done += kernels.locate_windows(self.cumulative, rest, mappings.bases, step_bytes, of_rest)
            if done == n_rows:
                return mappings
            index = int(indices[done])
            if not 0 <= index < self.cumulative[-1]:
                return None
            number = kernels.locate(self.cumulative, index)
            last = int(self.cumulative[number + 1] - self.cumulative[number]) - 1
            check_inside(self.shards.shard(number), last * self.step, self.n_tokens)
            if self.shards.mappings is not mappings:  # shards were unmapped: this batch may need more than the limit
                return None
        return None

    def positions(
        self, indices: npt.NDArray[np.int64], negative: bool
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the shard and the first token of each window."""
        absolute = np.where(indices < 0, indices + self.cumulative[-1], indices) if negative else indices
        shards, starts = np.empty_like(indices), np.empty_like(indices)
        n_good = kernels.locate_many(self.cumulative, absolute, shards, starts)
        if n_good < len(indices):
            raise IndexError(f"Index {indices[n_good]} out of range [0, {self.cumulative[-1]})")
        starts *= self.step
        return shards, starts

    def spans(self, indices: npt.NDArray[np.int64], negative: bool = False) -> RowSpans:
        """Return where each window lies; the number of a file is that of its shard."""
        shards, starts = self.positions(indices, negative)
        return row_spans(shards, starts, starts + self.n_tokens)

    def _mixed_groups(
        self, numbers: list[int], starts: npt.NDArray[np.int64], rows: RowNumbers
    ) -> Iterator[WindowGroup]:
        """Yield windows of shards that may differ in dtype."""
        arrays = [self.shards.shard(number) for number in numbers]
        for array, start in zip(arrays, starts.tolist(), strict=True):
            check_inside(array, start, self.n_tokens)
        selectors = [dtype_selector(array) for array in arrays]
        for selector in {id(selector): selector for selector in selectors}.values():
            chosen = [k for k, other in enumerate(selectors) if other is selector]
            if selector is not None:
                bases = np.array([address_of(arrays[k]) for k in chosen], np.uint64)
                addresses = bases + starts[chosen].view(np.uint64) * np.uint64(selector.itemsize)
                yield WindowGroup(addresses, rows[chosen], selector, arrays)
            else:
                pairs = zip([arrays[k] for k in chosen], starts[chosen].tolist(), strict=True)
                yield copied_group([array[start : start + self.n_tokens] for array, start in pairs], rows[chosen])

    def will_need(self, indices: Any, negative: bool = False) -> None:
        """Hint the OS to read the pages of these windows that are not in memory.

        indices: as for `item_numbers`. From the first call on, the OS is advised that the shards are read at random.
        """
        if self.begin_prefetch():
            for group in self.groups(item_numbers(indices), negative):
                self.hint(group, np.full(len(group.addresses), self.n_tokens))

    def begin_prefetch(self) -> bool:
        """Advise the OS of reads at random; return whether the pages of the next batch are to be checked."""
        self.shards.read_at_random()
        return self._prefetch.is_due()

    def hint(self, group: WindowGroup, lengths: npt.NDArray[np.int64]) -> None:
        """Hint the OS to read this many tokens of each member of a group."""
        if not isinstance(group.owner, np.ndarray):  # those are copies
            self._prefetch.hint(group.addresses, lengths * group.dtype_selector.itemsize)

    def close(self) -> None:
        """Release every mapping; views of them, and a batch that is being filled, stay valid."""
        self.shards.close()


def concatenated_windows(datasets: Sequence[Windows]) -> Windows | None:
    """Concatenate the windows of several datasets, sharing their mappings; None if they differ in kind."""
    kinds = {(type(windows), windows.n_tokens, windows.step) for windows in datasets}
    if len(kinds) != 1 or type(datasets[0]) is not Windows:
        return None
    firsts = [0, *accumulate(len(windows.shards) for windows in datasets)]

    def opener(number: int) -> Opener:
        which = bisect_right(firsts, number) - 1
        return functools.partial(datasets[which].shards.shard, number - firsts[which])

    counts = np.concatenate([np.diff(windows.cumulative) for windows in datasets])
    return Windows(LazyOpeners(firsts[-1], opener), counts, datasets[0].n_tokens, datasets[0].step)


class ChosenWindows(Windows):
    """Windows at given positions of one token array: window i begins at token starts[i] (int64 [n])."""

    def __init__(self, opener: Opener, starts: npt.NDArray[np.int64], n_tokens: int) -> None:
        super().__init__([opener], [len(starts)], n_tokens, 1)
        self.starts = starts

    def spans(self, indices: npt.NDArray[np.int64], negative: bool = False) -> RowSpans:
        """Return where each window lies."""
        shards, samples = self.positions(indices, negative)
        return row_spans(shards, self.starts[samples], self.starts[samples] + self.n_tokens)

    def groups(self, indices: npt.NDArray[np.int64], negative: bool = False) -> Iterator[WindowGroup]:
        """Yield groups as `Windows.groups`; ValueError for a window outside the array."""
        numbers, samples = self.positions(indices, negative)
        tokens = self.shards.shard(0)
        starts = chosen_starts(self.starts, samples, self.n_tokens, len(tokens))
        selector, rows = dtype_selector(tokens), row_numbers(len(indices))
        if selector is None:
            yield from self._mixed_groups(numbers.tolist(), starts, rows)
        else:
            addresses = np.uint64(address_of(tokens)) + starts.view(np.uint64) * np.uint64(selector.itemsize)
            yield WindowGroup(addresses, rows, selector, tokens)


def chosen_starts(
    starts: npt.NDArray[np.int64], samples: npt.NDArray[np.int64], n_tokens: int, length: int
) -> npt.NDArray[np.int64]:
    """Return starts[samples]; ValueError for a window of `n_tokens` from there that exceeds `length` tokens."""
    chosen = starts[samples]
    outside = (chosen < 0) | (chosen > length - n_tokens)
    if outside.any():
        sample = int(samples[outside.argmax()])
        raise ValueError(f"sample {sample} is {n_tokens} tokens from token {starts[sample]} of {length}")
    return chosen


def check_inside(tokens: Tokens, start: int, n_tokens: int) -> None:
    """Raise ValueError unless the window lies in the array: kernels get addresses and cannot check."""
    if not 0 <= start <= len(tokens) - n_tokens:
        raise ValueError(f"a window is {n_tokens} tokens from token {start} of {len(tokens)}")


@functools.lru_cache(maxsize=8)
def row_numbers(n_rows: int) -> RowNumbers:
    """Return 0, 1, ..., n_rows - 1; the array is shared and must not be written to."""
    return np.arange(n_rows)
