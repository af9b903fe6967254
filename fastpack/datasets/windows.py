"""Windows of tokens in mapped shards -> whole batches, by one kernel call a dtype.

A dataset says which window (shard, first token) fills which row; this module opens the shards, finds the windows'
addresses and calls the kernel. Shards open on first use and at most MAX_OPEN stay open.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastpack import kernels

# A mapping holds a file descriptor until it is closed; common limits are 256 to 1024 descriptors a process.
MAX_OPEN = 128

Tokens = npt.NDArray[Any]
Outputs = dict[str, npt.NDArray[Any]]
# What a kernel is told the dtype by.
_LIKES = {np.dtype(code): np.empty(0, code) for code in ("u1", "u2", "u4", "i1", "i2", "i4", "i8")}


class Group(NamedTuple):
    """Windows of one dtype, ready for a kernel; `keep` holds the memory behind the addresses."""

    addresses: npt.NDArray[np.uint64]
    rows: npt.NDArray[np.int64]
    like: Tokens
    keep: object


class Windows:
    """The samples of a dataset: windows of `n_tokens` tokens, `step` apart, of token arrays that open on first use.

    openers: `openers[s]()` returns the array of shard s, and again after it was evicted. n_windows: windows a shard.
    """

    def __init__(
        self, openers: Sequence[Callable[[], Tokens]], n_windows: npt.ArrayLike, n_tokens: int, step: int
    ) -> None:
        self._openers, self._n_tokens, self._step = openers, n_tokens, step
        self.cumulative = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.asarray(n_windows, np.int64))])
        self._open: dict[int, Tokens] = {}
        self._lock = threading.Lock()
        # For the fast way: where open shards lie (0: not open) and their dtype, as long as all have one dtype, with a
        # kernel, and nothing is ever evicted.
        self._bases = np.zeros(len(openers), np.uint64)
        self._like: Tokens | None = None
        self._uniform = len(openers) <= MAX_OPEN

    def shard(self, number: int) -> Tokens:
        """The token array of a shard."""
        tokens = self._open.get(number)
        if tokens is None:
            with self._lock:
                tokens = self._load(number)
        return tokens

    def _load(self, number: int) -> Tokens:
        tokens = self._openers[number]()
        if tokens.dtype == np.uint64 and tokens.dtype.isnative:
            tokens = tokens.view(np.int64)  # what a cast to int64 gives, without a copy
        while len(self._open) >= MAX_OPEN:
            del self._open[next(iter(self._open))]
        self._open[number] = tokens
        like = _like(tokens)
        self._uniform = self._uniform and like is not None and (self._like is None or self._like is like)
        if self._uniform:
            self._like = like
            self._bases[number] = _address(tokens)
        return tokens

    def close(self) -> None:
        """Let go of every mapping; views, and a batch being filled, stay valid."""
        with self._lock:
            self._open = {}
            self._bases = np.zeros_like(self._bases)

    def groups(self, indices: npt.NDArray[np.int64], negative: bool = False) -> Iterator[Group]:
        """The windows `indices` (int64 [B]) grouped by dtype; window k fills row k.

        negative: whether negative indices count from the end. Raises IndexError. A dtype without a kernel (big-endian,
        float, unaligned) is copied to int64 first.
        """
        n_rows = len(indices)
        # `keep` is taken first: should another thread close the dataset now, the memory behind the bases stays.
        keep, bases, like = self._open, self._bases, self._like
        if self._uniform and like is not None and len(bases) <= MAX_OPEN:
            addresses = np.empty(n_rows, np.uint64)
            step_bytes = self._step * like.itemsize
            if kernels.locate_windows(self.cumulative, indices, bases, step_bytes, addresses) == n_rows:
                yield Group(addresses, _rows(n_rows), like, keep)
                return
        shards, starts = self._place(indices, negative)
        for first in range(0, n_rows, MAX_OPEN):  # so that no call needs more than MAX_OPEN open shards
            part = slice(first, first + MAX_OPEN)
            yield from self._mixed_groups(shards[part].tolist(), starts[part], _rows(n_rows)[part])

    def _place(
        self, indices: npt.NDArray[np.int64], negative: bool
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Shard and first token of each window."""
        if negative:
            indices = np.where(indices < 0, indices + self.cumulative[-1], indices)
        shards, starts = np.empty_like(indices), np.empty_like(indices)
        n_good = kernels.locate_many(self.cumulative, indices, shards, starts)
        if n_good < len(indices):
            raise IndexError(f"Index {indices[n_good]} out of range [0, {self.cumulative[-1]})")
        starts *= self._step
        return shards, starts

    def _mixed_groups(
        self, shards: list[int], starts: npt.NDArray[np.int64], rows: npt.NDArray[np.int64]
    ) -> Iterator[Group]:
        arrays = [self.shard(number) for number in shards]
        likes = [_like(array) for array in arrays]
        for like in {id(like): like for like in likes}.values():
            chosen = [k for k, other in enumerate(likes) if other is like]
            if like is not None:
                bases = np.array([_address(arrays[k]) for k in chosen], np.uint64)
                addresses = bases + starts[chosen].view(np.uint64) * np.uint64(like.itemsize)
                yield Group(addresses, rows[chosen], like, arrays)
            else:
                yield self._copied([arrays[k] for k in chosen], starts[chosen], rows[chosen])

    def _copied(self, arrays: list[Tokens], starts: npt.NDArray[np.int64], rows: npt.NDArray[np.int64]) -> Group:
        copies = np.empty((len(arrays), self._n_tokens), np.int64)
        for copy, array, start in zip(copies, arrays, starts.tolist(), strict=True):
            copy[:] = array[start : start + self._n_tokens]
        addresses = np.uint64(_address(copies)) + np.arange(len(arrays), dtype=np.uint64) * np.uint64(copies.strides[0])
        return Group(addresses, rows, _LIKES[copies.dtype], copies)


def _like(tokens: Tokens) -> Tokens | None:
    """The array that tells kernels the dtype; None when there is no kernel for `tokens`."""
    ready = tokens.ndim == 1 and tokens.flags.aligned and tokens.flags.c_contiguous
    return _LIKES.get(tokens.dtype) if ready else None


def _address(tokens: Tokens) -> int:
    address: int = tokens.__array_interface__["data"][0]
    return address


@functools.lru_cache(maxsize=8)
def _rows(n_rows: int) -> npt.NDArray[np.int64]:
    return np.arange(n_rows)


def fill_pairs(groups: Iterator[Group], out: Outputs, eos: int | None) -> None:
    """Fill the arrays in `out` (input_ids, labels, doc_ids; [B, L]) from windows of L + 1 tokens.

    With `eos`, labels behind an EOS are -100 and doc_ids may be asked for. Raises OverflowError when the outputs are
    int32 and a token does not fit.
    """
    like = next(iter(out.values()))
    wanted = ("input_ids", "labels") if eos is None else ("input_ids", "labels", "doc_ids")
    arrays = [out[name] if name in out else np.empty_like(like) for name in wanted]
    for group in groups:
        if eos is None:
            misfit = kernels.fill_plain(group.addresses, group.rows, group.like, *arrays)
        else:
            misfit = kernels.fill_packed(group.addresses, group.rows, group.like, eos, *arrays)
        _refuse(misfit, group)


def fill_windows(groups: Iterator[Group], out: Tokens) -> None:
    """Fill `out` [B, n_tokens] with the windows as they are; OverflowError as in `fill_pairs`."""
    for group in groups:
        _refuse(kernels.fill_tokens(group.addresses, group.rows, group.like, out), group)


def _refuse(misfit: int, group: Group) -> None:
    if misfit:
        raise OverflowError(f"a token of {group.like.dtype} does not fit into int32 outputs: ask for dtype='int64'")
