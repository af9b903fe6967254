"""Windows of tokens in mapped shards -> whole batches, by one kernel call a dtype.

A dataset says which window (shard, first token) fills which row; this module opens the shards, finds the windows'
addresses and calls the kernel. Shards open on first use and at most MAX_OPEN stay open.
"""

from __future__ import annotations

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
# What a kernel is told the dtype by. A shard's kind is its place here + 2; 0 is "not open", 1 "no kernel".
_LIKE = [np.empty(0, code) for code in ("u1", "u2", "u4", "i1", "i2", "i4", "i8")]
_KINDS = {like.dtype: kind for kind, like in enumerate(_LIKE, start=2)}
_NOT_OPEN, _NO_KERNEL = 0, 1


class Group(NamedTuple):
    """Windows of one dtype, ready for a kernel; `keep` holds the memory behind the addresses."""

    addresses: npt.NDArray[np.uint64]
    rows: npt.NDArray[np.int64]
    like: Tokens
    keep: object


class Shards:
    """Token arrays that open on first use: `openers[s]()` returns shard s, and again after it was evicted."""

    def __init__(self, openers: Sequence[Callable[[], Tokens]]) -> None:
        self._openers = openers
        self._open: dict[int, Tokens] = {}
        self._lock = threading.Lock()
        # Address and dtype of open shards: without these two arrays a batch of 32 spent 30 us in Python, a third of it.
        self._bases = np.zeros(len(openers), np.uint64)
        self._kinds = np.zeros(len(openers), np.int8)

    def __getitem__(self, shard: int) -> Tokens:
        tokens = self._open.get(shard)
        return self._load(shard) if tokens is None else tokens

    def _load(self, shard: int) -> Tokens:
        with self._lock:
            return self._load_locked(shard)

    def _load_locked(self, shard: int) -> Tokens:
        tokens = self._openers[shard]()
        if tokens.dtype == np.uint64 and tokens.dtype.isnative:
            tokens = tokens.view(np.int64)  # what a cast to int64 gives, without a copy
        while len(self._open) >= MAX_OPEN:
            evicted = next(iter(self._open))
            self._kinds[evicted] = _NOT_OPEN
            del self._open[evicted]
        ready = tokens.ndim == 1 and tokens.flags.aligned and tokens.flags.c_contiguous
        self._bases[shard] = tokens.__array_interface__["data"][0]
        self._open[shard] = tokens
        self._kinds[shard] = _KINDS.get(tokens.dtype, _NO_KERNEL) if ready else _NO_KERNEL
        return tokens

    def close(self) -> None:
        """Let go of every mapping; views, and a batch being filled, stay valid."""
        self._open = {}
        self._kinds[:] = _NOT_OPEN

    def groups(self, shards: npt.NDArray[np.int64], starts: npt.NDArray[np.int64], n_tokens: int) -> Iterator[Group]:
        """The windows [starts, starts + n_tokens) of `shards`, grouped by dtype; window k fills row k.

        A dtype without a kernel (big-endian, float, unaligned) is copied to int64 first.
        """
        if not len(shards):
            return
        rows = np.arange(len(shards))
        keep = self._open  # taken first: should another thread close the dataset, the memory behind `kinds` stays
        kinds = self._kinds[shards]
        if kinds[0] > _NO_KERNEL and (kinds == kinds[0]).all() and len(self._openers) <= MAX_OPEN:
            like = _LIKE[kinds[0] - 2]
            addresses = self._bases[shards] + starts.view(np.uint64) * np.uint64(like.itemsize)
            yield Group(addresses, rows, like, keep)
            return
        for first in range(0, len(shards), MAX_OPEN):  # so that no call needs more than MAX_OPEN open shards
            part = slice(first, first + MAX_OPEN)
            yield from self._mixed_groups(shards[part].tolist(), starts[part], rows[part], n_tokens)

    def _mixed_groups(
        self, shards: list[int], starts: npt.NDArray[np.int64], rows: npt.NDArray[np.int64], n_tokens: int
    ) -> Iterator[Group]:
        arrays = [self[shard] for shard in shards]
        kinds = self._kinds[shards]
        bases = np.array([array.__array_interface__["data"][0] for array in arrays], np.uint64)
        for kind in dict.fromkeys(kinds.tolist()):
            chosen = np.flatnonzero(kinds == kind)
            if kind > _NO_KERNEL:
                like = _LIKE[kind - 2]
                addresses = bases[chosen] + starts[chosen].view(np.uint64) * np.uint64(like.itemsize)
                yield Group(addresses, rows[chosen], like, arrays)
            else:
                copies = np.empty((len(chosen), n_tokens), np.int64)
                for copy, k in zip(copies, chosen, strict=True):
                    copy[:] = arrays[k][starts[k] : starts[k] + n_tokens]
                first, stride = np.uint64(copies.__array_interface__["data"][0]), np.uint64(copies.strides[0])
                addresses = first + np.arange(len(chosen), dtype=np.uint64) * stride
                yield Group(addresses, rows[chosen], _LIKE[-1], copies)


def fill_pairs(groups: Iterator[Group], out: Outputs, eos: int | None) -> None:
    """Fill the arrays in `out` (input_ids, labels, doc_ids; [B, L]) from windows of L + 1 tokens.

    With `eos`, labels behind an EOS are -100 and doc_ids may be asked for. Raises OverflowError when the outputs are
    int32 and a token does not fit.
    """
    like = next(iter(out.values()))
    spare = {name: out.get(name) for name in ("input_ids", "labels", "doc_ids")}
    wanted = ("input_ids", "labels") if eos is None else ("input_ids", "labels", "doc_ids")
    input_ids, labels, *rest = (np.empty_like(like) if spare[name] is None else spare[name] for name in wanted)
    for group in groups:
        if eos is None:
            misfit = kernels.fill_plain(group.addresses, group.rows, group.like, input_ids, labels)
        else:
            misfit = kernels.fill_packed(group.addresses, group.rows, group.like, eos, input_ids, labels, *rest)
        _refuse(misfit, group)


def fill_windows(groups: Iterator[Group], out: Tokens) -> None:
    """Fill `out` [B, n_tokens] with the windows as they are; OverflowError as in `fill_pairs`."""
    for group in groups:
        _refuse(kernels.fill_tokens(group.addresses, group.rows, group.like, out), group)


def _refuse(misfit: int, group: Group) -> None:
    if misfit:
        raise OverflowError(f"a token of {group.like.dtype} does not fit into int32 outputs: ask for dtype='int64'")
