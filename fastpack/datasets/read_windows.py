"""Windows read by position instead of mapped: a file that shrinks raises an error instead of killing the process."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fastpack.datasets.mapped_shards import LazyOpeners
from fastpack.datasets.open_segments import OpenSegments
from fastpack.datasets.window_groups import (
    Tokens,
    WindowGroup,
    copied_group,
    dtype_selector,
    row_addresses,
    selector_of,
)
from fastpack.datasets.windows import Windows, chosen_starts, row_numbers
from fastpack.io import is_remote
from fastpack.item_numbers import item_numbers
from fastpack.tokens.flat.shards import not_flat_error
from fastpack.tokens.manifest.manifest_shards import first_odd
from fastpack.tokens.token_segment import TokenSegment


def shard_openers(shards: Sequence[TokenSegment]) -> LazyOpeners:
    """Return the openers of the shards; a shard is accessed only when its opener is."""
    return LazyOpeners(len(shards), lambda number: shards[number].open)


class ReadWindows(Windows):
    """`Windows` of shards that are read by `pread`: FormatError where a file has become too short.

    A window costs a system call and a copy (2 us). Raises ValueError for a shard that is not a flat array.
    """

    def __init__(self, shards: Sequence[TokenSegment], n_windows: npt.ArrayLike, n_tokens: int, step: int) -> None:
        super().__init__(shard_openers(shards), n_windows, n_tokens, step)
        if (odd := first_odd(shards)) is not None:
            raise not_flat_error(odd)
        self.files = OpenSegments(shards)
        self._selector: Tokens | None = None
        self._is_known = False
        self._local = threading.local()

    def window(self, number: int, start: int) -> Tokens:
        """Read the window of shard `number` that begins at its token `start`."""
        dtype = self.files.segments[number].dtype
        out = np.empty(self.n_tokens * dtype.itemsize, np.uint8)
        self._read(number, start, out)
        return out.view(dtype)

    def groups(self, indices: npt.NDArray[np.int64], negative: bool = False) -> Iterator[WindowGroup]:
        """Yield groups as `Windows.groups`, of windows read into memory; each is valid until the next one."""
        shards, starts = self.positions(indices, negative)
        selector = self._one_selector()
        if selector is not None:
            addresses, owner = self.files.locate(shards, starts * selector.itemsize, self.n_tokens * selector.itemsize)
            yield WindowGroup(addresses, row_numbers(len(indices)), selector, owner)
            return
        dtypes = [self.files.segments[number].dtype for number in shards.tolist()]
        kinds = dict.fromkeys(dtypes)
        for dtype in kinds:
            rows = row_numbers(len(indices))
            if len(kinds) > 1:
                rows = np.array([k for k, other in enumerate(dtypes) if other == dtype])
            windows = self._memory(len(rows), self.n_tokens * dtype.itemsize)
            self.files.read_many(shards[rows], starts[rows] * dtype.itemsize, windows)
            tokens = windows.view(dtype)
            selector = dtype_selector(tokens.reshape(-1))
            if selector is None:
                yield copied_group(list(tokens), rows)
            else:
                yield WindowGroup(row_addresses(tokens), rows, selector, tokens)

    def _memory(self, n_rows: int, n_bytes: int) -> npt.NDArray[np.uint8]:
        """Return uint8 [n_rows, n_bytes], reused by this thread's next group: new pages cost as much as reading."""
        kept: npt.NDArray[np.uint8] | None = getattr(self._local, "kept", None)
        if kept is None or len(kept) < n_rows * n_bytes:
            kept = self._local.kept = np.empty(n_rows * n_bytes, np.uint8)
        return kept[: n_rows * n_bytes].reshape(n_rows, n_bytes)

    def _one_selector(self) -> Tokens | None:
        """Return what selects the kernel, if all shards are objects in stores that one kernel can read in place."""
        if not self._is_known:
            segments = self.files.segments
            if is_remote(segments[0].path):
                kinds = {(one.dtype, one.offset % one.dtype.itemsize) for one in segments}
                (dtype, within), *more = kinds
                self._selector = None if more or within else selector_of(dtype)
            self._is_known = True
        return self._selector

    def _read(self, number: int, start: int, out: npt.NDArray[np.uint8]) -> None:
        self.files.read(number, start * self.files.segments[number].dtype.itemsize, out)

    def dtype_of(self, number: int) -> np.dtype[Any]:
        """Return the dtype of a shard's tokens."""
        return self.files.segments[number].dtype

    def read(self, number: int, start: int, out: Tokens) -> None:
        """Fill `out` with the tokens of shard `number` from token `start` on."""
        self._read(number, start, out.view(np.uint8))

    def will_need(self, indices: Any, negative: bool = False) -> None:
        """Hint the OS, or the block cache of a store, to read these windows."""
        shards, starts = self.positions(item_numbers(indices), negative)
        selector = self._one_selector()
        if selector is not None:
            self.files.will_need_many(shards, starts * selector.itemsize, self.n_tokens * selector.itemsize)
            return
        for number, start in zip(shards.tolist(), starts.tolist(), strict=True):
            size = self.files.segments[number].dtype.itemsize
            self.files.will_need(number, start * size, self.n_tokens * size)

    def close(self) -> None:
        super().close()
        self.files.close()


class ReadChosenWindows(ReadWindows):
    """Windows at given positions of one shard: window i begins at token starts[i] (int64 [n])."""

    def __init__(self, shard: TokenSegment, starts: npt.NDArray[np.int64], n_tokens: int) -> None:
        super().__init__([shard], [len(starts)], n_tokens, 1)
        self.starts = starts

    def positions(
        self, indices: npt.NDArray[np.int64], negative: bool
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return positions as `Windows.positions`; ValueError for a window outside the shard."""
        shards, samples = super().positions(indices, negative)
        return shards, chosen_starts(self.starts, samples, self.n_tokens, self.files.segments[0].length)
