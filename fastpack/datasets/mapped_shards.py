"""Token shards that are mapped on first use, and unmapped when the process has too many mappings.

A mapping needs no open file. Linux allows a process 65,530 mappings (vm.max_map_count), of which torch and CUDA take
some thousands; without a free one, threads and arrays fail as well. All datasets together therefore stay below
MAX_OPEN_IN_ALL, each one below its share of that.
"""

from __future__ import annotations

import errno
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from fastpack import io as files
from fastpack.datasets.window_groups import Tokens, address_of, dtype_selector

MAX_OPEN = 32_768
MAX_OPEN_IN_ALL = 57_344

Opener: TypeAlias = Callable[[], Tokens]


class LazyOpeners(Sequence[Opener]):
    """The openers of `n_shards` shards, each made on access by `make(number)`: there may be 50,000."""

    def __init__(self, n_shards: int, make: Callable[[int], Opener]) -> None:
        self._n_shards, self._make = n_shards, make

    def __len__(self) -> int:
        return self._n_shards

    def __getitem__(self, number: Any) -> Any:
        return self._make(number)


class Mappings:
    """The shards that are mapped. Arrays are only added; to unmap some, another object replaces this one.

    So a holder of this object may use the addresses in `bases` (0: not mapped), whatever other threads do.
    """

    __slots__ = ("arrays", "bases", "dtype_selector")

    def __init__(self, n_shards: int) -> None:
        self.arrays: dict[int, Tokens] = {}
        self.bases = np.zeros(n_shards, np.uint64)
        self.dtype_selector: Tokens | None = None  # of the shards in `bases`


class MappedShards:
    """The token arrays of a dataset's shards.

    Parameters
    ----------
    openers
        `openers[s]()` maps shard s; it is called again after the shard was unmapped.
    """

    def __init__(self, openers: Sequence[Opener]) -> None:
        self.openers = openers
        self.mappings = Mappings(len(openers))
        # Whether all shards mapped so far have one dtype with a kernel: then one kernel call finds all addresses.
        self.uniform = True
        self.max_open = self._limit = MAX_OPEN
        self._lock = threading.Lock()
        self._at_random = False
        _all_shards.add(self)
        _all_shards.count(len(openers))
        weakref.finalize(self, _all_shards.count, -len(openers)).atexit = False

    def __len__(self) -> int:
        return len(self.openers)

    def shard(self, number: int) -> Tokens:
        """Return the token array of a shard."""
        tokens = self.mappings.arrays.get(number)
        if tokens is None:
            with self._lock:
                # Another thread may have mapped it meanwhile and use that mapping: it must not be replaced.
                tokens = self.mappings.arrays.get(number)
                if tokens is None:
                    tokens = self._load(number)
        return tokens

    def _load(self, number: int) -> Tokens:
        tokens = self._open(number)
        if tokens.dtype == np.uint64 and tokens.dtype.isnative:
            tokens = tokens.view(np.int64)  # what a cast to int64 gives, without a copy
        if len(self.mappings.arrays) >= (limit := min(self._limit, self._share())):
            self._unmap(limit // 2)
        mappings, selector = self.mappings, dtype_selector(tokens)
        mappings.arrays[number] = tokens
        known = mappings.dtype_selector
        self.uniform = self.uniform and selector is not None and (known is None or known is selector)
        if self.uniform:
            mappings.dtype_selector = selector
            mappings.bases[number] = address_of(tokens)
        if self._at_random:
            files.read_at_random(address_of(tokens), tokens.nbytes)
        return tokens

    def _open(self, number: int) -> Tokens:
        try:
            return self.openers[number]()
        except OSError as error:
            if error.errno != errno.ENOMEM or not self.mappings.arrays:
                raise
        # The rest of the process took the mappings that the system allows: keep fewer from now on.
        self._limit = max(1, len(self.mappings.arrays) // 2)
        self._unmap(self._limit // 2)
        return self.openers[number]()

    def _share(self) -> int:
        """Return how many shards this dataset may map, in proportion to its shards."""
        n_shards = _all_shards.n_shards
        return MAX_OPEN if n_shards <= MAX_OPEN_IN_ALL else max(1, MAX_OPEN_IN_ALL * len(self.openers) // n_shards)

    def shrink(self) -> None:
        """Unmap what exceeds a share that has become smaller; a busy dataset does so with its next shard."""
        if len(self.mappings.arrays) > self._share() and self._lock.acquire(blocking=False):
            try:
                self._unmap(self._share())
            finally:
                self._lock.release()

    def _unmap(self, keep: int) -> None:
        """Keep only the `keep` shards mapped last; what another thread uses stays until it is done."""
        old, new = self.mappings, Mappings(len(self.openers))
        for number in list(old.arrays)[len(old.arrays) - keep :]:
            new.arrays[number] = old.arrays[number]
            new.bases[number] = old.bases[number]
        new.dtype_selector = old.dtype_selector
        self.mappings = new

    def read_at_random(self) -> None:
        """Advise the OS that shards are read at random, those mapped later included."""
        if not self._at_random:
            with self._lock:
                self._at_random = True
                for tokens in self.mappings.arrays.values():
                    files.read_at_random(address_of(tokens), tokens.nbytes)

    def close(self) -> None:
        """Release every mapping; views of them, and a batch that is being filled, stay valid."""
        with self._lock:
            self._unmap(0)


class _AllShards:
    """The `MappedShards` of this process, and the number of shards they have together."""

    def __init__(self) -> None:
        self._datasets: weakref.WeakSet[MappedShards] = weakref.WeakSet()
        self.n_shards = 0

    def add(self, shards: MappedShards) -> None:
        self._datasets.add(shards)

    def count(self, n_shards: int) -> None:
        """Add `n_shards` to the total; beyond MAX_OPEN_IN_ALL, shrink all datasets to their shares."""
        self.n_shards += n_shards
        if n_shards > 0 and self.n_shards > MAX_OPEN_IN_ALL:
            for shards in list(self._datasets):
                shards.shrink()


_all_shards = _AllShards()
