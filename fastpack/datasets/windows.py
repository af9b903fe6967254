"""Windows of tokens in mapped shards -> whole batches, by one kernel call a dtype.

A dataset says which window (shard, first token) fills which row; this module maps the shards, finds the windows'
addresses and calls the kernel. Shards are mapped on first use and stay mapped: a mapping needs no open file.
"""

from __future__ import annotations

import errno
import functools
import threading
import weakref
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastpack import io as files
from fastpack import kernels

# Linux lets a process have 65,530 mappings (vm.max_map_count); torch and CUDA take some thousands of them. Where it has
# no more, threads and arrays fail as well. So all datasets together keep to MAX_OPEN_IN_ALL, each to its part of that.
MAX_OPEN = 32_768
MAX_OPEN_IN_ALL = 57_344
# How many windows of a batch are looked at before its pages are asked for, and how often where all was in memory
# before: asking takes 3.5 us a window, as long as filling its row.
PROBES, CALM, CALM_INTERVAL = 4, 8, 8

Tokens = npt.NDArray[Any]
Opener = Callable[[], Tokens]
Outputs = dict[str, Any]  # arrays, but for "cu_seqlens" and "max_seqlen", which may be left to `fill`
Grids = dict[str, npt.NDArray[Any]]
# What a kernel is told the dtype by.
_LIKES = {np.dtype(code): np.empty(0, code) for code in ("u1", "u2", "u4", "i1", "i2", "i4", "i8")}


class Group(NamedTuple):
    """Windows of one dtype, ready for a kernel; `keep` holds the memory behind the addresses."""

    addresses: npt.NDArray[np.uint64]
    rows: npt.NDArray[np.int64]
    like: Tokens
    keep: object


class Openers(Sequence[Opener]):
    """`make(number)` for each of `n_shards` shards, made when it is asked for: there may be 50,000."""

    def __init__(self, n_shards: int, make: Callable[[int], Opener]) -> None:
        self._n_shards, self._make = n_shards, make

    def __len__(self) -> int:
        return self._n_shards

    def __getitem__(self, number: Any) -> Any:
        return self._make(number)


class _Mapped:
    """The shards that are mapped now. Arrays are only added; to let some go, a new object takes this one's place.

    So whoever holds this object may use the addresses in `bases` (0: not mapped), whatever other threads do.
    """

    __slots__ = ("arrays", "bases", "like")

    def __init__(self, n_shards: int) -> None:
        self.arrays: dict[int, Tokens] = {}
        self.bases = np.zeros(n_shards, np.uint64)
        self.like: Tokens | None = None  # of the shards in `bases`


class Windows:
    """The samples of a dataset: windows of `n_tokens` tokens, `step` apart, of token arrays that open on first use.

    openers: `openers[s]()` returns the array of shard s, and again after it was let go. n_windows: windows a shard.
    """

    def __init__(self, openers: Sequence[Opener], n_windows: npt.ArrayLike, n_tokens: int, step: int) -> None:
        self._openers, self._n_tokens, self._step = openers, n_tokens, step
        self.cumulative = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.asarray(n_windows, np.int64))])
        self._mapped = _Mapped(len(openers))
        self._limit = MAX_OPEN
        self._lock = threading.Lock()
        _alive.add(self)
        _alive.count(len(openers))
        weakref.finalize(self, _alive.count, -len(openers)).atexit = False
        # Whether all shards seen so far have one dtype with a kernel: then addresses come from one kernel call.
        self._uniform = True
        self._at_random = False
        self._calm = 0

    @property
    def uniform(self) -> bool:
        """Whether the shards seen so far have one dtype, so that one kernel call fills a batch."""
        return self._uniform

    def shard(self, number: int) -> Tokens:
        """The token array of a shard."""
        tokens = self._mapped.arrays.get(number)
        if tokens is None:
            with self._lock:
                # Another thread may have been first, and may be using that very mapping: it must not be replaced.
                tokens = self._mapped.arrays.get(number)
                if tokens is None:
                    tokens = self._load(number)
        return tokens

    def window(self, number: int, start: int) -> Tokens:
        """The window of a shard that begins at its token `start`."""
        return self.shard(number)[start : start + self._n_tokens]

    def _load(self, number: int) -> Tokens:
        tokens = self._map(number)
        if tokens.dtype == np.uint64 and tokens.dtype.isnative:
            tokens = tokens.view(np.int64)  # what a cast to int64 gives, without a copy
        if len(self._mapped.arrays) >= (limit := min(self._limit, self._share())):
            self._let_go(limit // 2)
        mapped, like = self._mapped, like_of(tokens)
        mapped.arrays[number] = tokens
        self._uniform = self._uniform and like is not None and (mapped.like is None or mapped.like is like)
        if self._uniform:
            mapped.like = like
            mapped.bases[number] = _address(tokens)
        if self._at_random:
            files.read_at_random(_address(tokens), tokens.nbytes)
        return tokens

    def _map(self, number: int) -> Tokens:
        try:
            return self._openers[number]()
        except OSError as error:
            if error.errno != errno.ENOMEM or not self._mapped.arrays:
                raise
        # Another dataset, or the rest of the process, took what the system allows: do with fewer.
        self._limit = max(1, len(self._mapped.arrays) // 2)
        self._let_go(self._limit // 2)
        return self._openers[number]()

    def _share(self) -> int:
        """How many shards may be mapped here, so that those of all datasets are not too many."""
        n_shards = _alive.n_shards
        return MAX_OPEN if n_shards <= MAX_OPEN_IN_ALL else max(1, MAX_OPEN_IN_ALL * len(self._openers) // n_shards)

    def make_room(self) -> None:
        """Keep to a share that has become smaller; a dataset that is at work does that itself with its next shard."""
        if len(self._mapped.arrays) > self._share() and self._lock.acquire(blocking=False):
            try:
                self._let_go(self._share())
            finally:
                self._lock.release()

    def _let_go(self, keep: int) -> None:
        """Keep only the `keep` shards mapped last; what another thread is using stays until it is done."""
        old, new = self._mapped, _Mapped(len(self._openers))
        for number in list(old.arrays)[len(old.arrays) - keep :]:
            new.arrays[number] = old.arrays[number]
            new.bases[number] = old.bases[number]
        new.like = old.like
        self._mapped = new

    def close(self) -> None:
        """Let go of every mapping; views, and a batch being filled, stay valid."""
        with self._lock:
            self._let_go(0)

    def groups(self, indices: npt.NDArray[np.int64], negative: bool = False) -> Iterator[Group]:
        """The windows `indices` (int64 [B]) grouped by dtype; window k fills row k.

        negative: whether negative indices count from the end. Raises IndexError. A dtype without a kernel (big-endian,
        float, unaligned) is copied to int64 first.
        """
        addresses = np.empty(len(indices), np.uint64)
        mapped = self._locate(indices, addresses)
        if mapped is not None and mapped.like is not None:
            yield Group(addresses, _rows(len(indices)), mapped.like, mapped)
            return
        shards, starts = self._place(indices, negative)
        for first in range(0, len(indices), MAX_OPEN):  # so that no call needs more than MAX_OPEN open shards
            part = slice(first, first + MAX_OPEN)
            yield from self._mixed_groups(shards[part].tolist(), starts[part], _rows(len(indices))[part])

    def _locate(self, indices: npt.NDArray[np.int64], addresses: npt.NDArray[np.uint64]) -> _Mapped | None:
        """Write where the windows lie, shards being mapped as needed; None where that takes more than bases say."""
        mapped, done, n_rows = self._mapped, 0, len(indices)
        while self._uniform:
            if mapped.like is not None:
                step_bytes = self._step * mapped.like.itemsize
                rest = addresses[done:]
                done += kernels.locate_windows(self.cumulative, indices[done:], mapped.bases, step_bytes, rest)
            if done == n_rows:
                return mapped
            index = int(indices[done])
            if not 0 <= index < self.cumulative[-1]:
                return None
            number = kernels.locate(self.cumulative, index)
            last = int(self.cumulative[number + 1] - self.cumulative[number]) - 1
            _check_inside(self.shard(number), last * self._step, self._n_tokens)
            if self._mapped is not mapped:  # shards were let go: this batch may need more than can be mapped
                return None
        return None

    def _place(
        self, indices: npt.NDArray[np.int64], negative: bool
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Shard and first token of each window."""
        places = np.where(indices < 0, indices + self.cumulative[-1], indices) if negative else indices
        shards, starts = np.empty_like(indices), np.empty_like(indices)
        n_good = kernels.locate_many(self.cumulative, places, shards, starts)
        if n_good < len(indices):
            raise IndexError(f"Index {indices[n_good]} out of range [0, {self.cumulative[-1]})")
        starts *= self._step
        return shards, starts

    def _mixed_groups(
        self, shards: list[int], starts: npt.NDArray[np.int64], rows: npt.NDArray[np.int64]
    ) -> Iterator[Group]:
        arrays = [self.shard(number) for number in shards]
        for array, start in zip(arrays, starts.tolist(), strict=True):
            _check_inside(array, start, self._n_tokens)
        likes = [like_of(array) for array in arrays]
        for like in {id(like): like for like in likes}.values():
            chosen = [k for k, other in enumerate(likes) if other is like]
            if like is not None:
                bases = np.array([_address(arrays[k]) for k in chosen], np.uint64)
                addresses = bases + starts[chosen].view(np.uint64) * np.uint64(like.itemsize)
                yield Group(addresses, rows[chosen], like, arrays)
            else:
                windows = zip([arrays[k] for k in chosen], starts[chosen].tolist(), strict=True)
                copies = [array[start : start + self._n_tokens] for array, start in windows]
                yield copied_group(copies, rows[chosen])

    def will_need(self, indices: npt.NDArray[np.int64], negative: bool = False) -> None:
        """Have the system read the pages of these windows that are not in memory from the disk, in the background.

        From the first call on it is told that the shards are read here and there.
        """
        if not self._at_random:
            with self._lock:
                self._at_random = True
                for tokens in self._mapped.arrays.values():
                    files.read_at_random(_address(tokens), tokens.nbytes)
        self._calm += 1
        if self._calm > CALM and self._calm % CALM_INTERVAL:
            return
        for group in self.groups(indices, negative):
            n_bytes = self._n_tokens * group.like.itemsize
            addresses = group.addresses.tolist()
            probes = addresses[:: -(-len(addresses) // PROBES)]
            if isinstance(group.keep, np.ndarray) or all(files.is_in_memory(start, n_bytes) for start in probes):
                continue
            self._calm = 0
            for start in addresses:
                files.will_need(start, n_bytes)


class _Alive:
    """All `Windows` of this process, and how many shards they have together."""

    def __init__(self) -> None:
        self._windows: weakref.WeakSet[Windows] = weakref.WeakSet()
        self.n_shards = 0

    def add(self, windows: Windows) -> None:
        self._windows.add(windows)

    def count(self, n_shards: int) -> None:
        """So many are added; where that is too many, the others make room."""
        self.n_shards += n_shards
        if n_shards > 0 and self.n_shards > MAX_OPEN_IN_ALL:
            for windows in list(self._windows):
                windows.make_room()


_alive = _Alive()


def joined_windows(parts: Sequence[Windows]) -> Windows | None:
    """The windows of several datasets one behind the other, in the mappings of each; None where they differ in kind."""
    kinds = {(type(part), part._n_tokens, part._step) for part in parts}
    if len(kinds) != 1 or type(parts[0]) is not Windows:
        return None
    firsts = [0, *accumulate(len(part._openers) for part in parts)]

    def opener(number: int) -> Opener:
        which = bisect_right(firsts, number) - 1
        return functools.partial(parts[which].shard, number - firsts[which])

    openers = Openers(firsts[-1], opener)
    counts = np.concatenate([np.diff(part.cumulative) for part in parts])
    return Windows(openers, counts, parts[0]._n_tokens, parts[0]._step)


class ChosenWindows(Windows):
    """Windows of one token array that begin anywhere: window i at token starts[i] (int64 [n])."""

    def __init__(self, opener: Opener, starts: npt.NDArray[np.int64], n_tokens: int) -> None:
        super().__init__([opener], [len(starts)], n_tokens, 1)
        self.starts = starts

    def groups(self, indices: npt.NDArray[np.int64], negative: bool = False) -> Iterator[Group]:
        """As `Windows.groups`; ValueError for a window that does not lie in the array."""
        shards, numbers = self._place(indices, negative)
        tokens = self.shard(0)
        starts = starts_of(self.starts, numbers, self._n_tokens, len(tokens))
        like, rows = like_of(tokens), _rows(len(indices))
        if like is None:
            yield from self._mixed_groups(shards.tolist(), starts, rows)
        else:
            addresses = np.uint64(_address(tokens)) + starts.view(np.uint64) * np.uint64(like.itemsize)
            yield Group(addresses, rows, like, tokens)


def starts_of(
    starts: npt.NDArray[np.int64], numbers: npt.NDArray[np.int64], n_tokens: int, n_there: int
) -> npt.NDArray[np.int64]:
    """starts[numbers]; ValueError for a window of `n_tokens` from there that does not lie in `n_there` tokens."""
    chosen = starts[numbers]
    beyond = (chosen < 0) | (chosen > n_there - n_tokens)
    if beyond.any():
        number = int(numbers[beyond.argmax()])
        raise ValueError(f"sample {number} is {n_tokens} tokens from token {starts[number]} of {n_there}")
    return chosen


def _check_inside(tokens: Tokens, start: int, n_tokens: int) -> None:
    """ValueError unless the window lies in the array: kernels get addresses, and cannot look."""
    if not 0 <= start <= len(tokens) - n_tokens:
        raise ValueError(f"a window is {n_tokens} tokens from token {start} of {len(tokens)}")


def copied_group(windows: Sequence[Tokens], rows: npt.NDArray[np.int64]) -> Group:
    """The windows, all of one length, copied to int64."""
    copies = np.empty((len(windows), len(windows[0])), np.int64)
    for copy, window in zip(copies, windows, strict=True):
        copy[:] = window
    return Group(row_addresses(copies), rows, _LIKES[copies.dtype], copies)


def row_addresses(array: Tokens) -> npt.NDArray[np.uint64]:
    """Where each row of a two-dimensional array begins."""
    return np.uint64(_address(array)) + np.arange(len(array), dtype=np.uint64) * np.uint64(array.strides[0])


def like_of(tokens: Tokens) -> Tokens | None:
    """The array that tells kernels the dtype; None when there is no kernel for `tokens`."""
    ready = tokens.ndim == 1 and tokens.flags.aligned and tokens.flags.c_contiguous
    return _LIKES.get(tokens.dtype) if ready else None


def _address(tokens: Tokens) -> int:
    address: int = tokens.__array_interface__["data"][0]
    return address


@functools.lru_cache(maxsize=8)
def _rows(n_rows: int) -> npt.NDArray[np.int64]:
    return np.arange(n_rows)


def fill_grids(groups: Iterator[Group], out: Grids, eos: int | None, rows: npt.NDArray[np.int64] | None = None) -> None:
    """Fill the arrays in `out` (input_ids, labels, doc_ids, position_ids; [n, L]) from windows of L + 1 tokens.

    With `eos`, labels behind an EOS are -100 and doc_ids and position_ids may be asked for. rows: which row window k
    fills (default: row k). Raises OverflowError when the outputs are int32 and a token does not fit.
    """
    kernel: Any = kernels.fill_plain
    wanted: tuple[str, ...] = ("input_ids", "labels")
    if "position_ids" in out:
        kernel, wanted = kernels.fill_documents, ("input_ids", "labels", "doc_ids", "position_ids")
    elif eos is not None:
        kernel, wanted = kernels.fill_packed, ("input_ids", "labels", "doc_ids")
    like = next(iter(out.values()))
    arrays = [out[name] if name in out else np.empty_like(like) for name in wanted]
    eos_argument = () if eos is None else (eos,)
    for group in groups:
        to = group.rows if rows is None else rows[group.rows]
        _refuse(kernel(group.addresses, to, group.like, *eos_argument, *arrays), group)


def fill_windows(groups: Iterator[Group], out: Tokens, rows: npt.NDArray[np.int64] | None = None) -> None:
    """Fill `out` [n, n_tokens] with the windows as they are; rows and OverflowError as in `fill_grids`."""
    for group in groups:
        to = group.rows if rows is None else rows[group.rows]
        _refuse(kernels.fill_tokens(group.addresses, to, group.like, out), group)


def _refuse(misfit: int, group: Group) -> None:
    if misfit:
        raise OverflowError(f"a token of {group.like.dtype} does not fit into int32 outputs: ask for dtype='int64'")
