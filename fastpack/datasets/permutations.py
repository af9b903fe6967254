"""Permutations by seed: torch.randperm's and NumPy's legacy shuffle, and one that is computed at any position."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fastpack import kernels

Indices: TypeAlias = npt.NDArray[Any]  # int32 where they fit, else int64; see index_dtype

WIDE_FROM = 0xFFFFFFFF // 20  # torch.randperm draws 64 bits per element from this length on
# In every key of order="feistel": resuming a training run needs the same order. Another network needs another number.
FEISTEL_VERSION = 1


def index_dtype(n: int) -> np.dtype[Any]:
    """Return the dtype of indices below `n`: int32 if they fit, else int64."""
    return np.dtype(np.int32 if n < 1 << 31 else np.int64)


class TorchGenerator:
    """torch's CPU generator after `manual_seed(seed)`, to the extent that `torch.randperm` needs it."""

    def __init__(self, seed: int) -> None:
        self._state = np.empty(625, np.uint32)
        kernels.seed_generator(self._state, seed & 0xFFFFFFFF)

    def copy(self) -> TorchGenerator:
        """Return a generator in the same state."""
        generator = TorchGenerator.__new__(TorchGenerator)
        generator._state = self._state.copy()
        return generator

    def permutation(self, n: int) -> Indices:
        """Return `torch.randperm(n, generator=self)` as int32 [n] if the indices fit, else int64."""
        return self.shuffle(np.arange(n, dtype=index_dtype(n)))

    def shuffle(self, values: Indices) -> Indices:
        """Permute `values` in place to `values[torch.randperm(len(values), generator=self)]`, and return it."""
        kernels.shuffle(self._state, len(values) >= WIDE_FROM, values)
        return values


class LegacyGenerator:
    """The generator `numpy.random.RandomState(seed)`, to the extent that its `shuffle` needs it."""

    def __init__(self, seed: int) -> None:
        self._state = np.empty(625, np.uint32)
        kernels.seed_generator(self._state, seed)

    def shuffle(self, values: Indices) -> None:
        """Permute `values`, of 4 or 8 bytes each, in place as `RandomState.shuffle`."""
        kernels.legacy_shuffle(self._state, values.view(np.int32 if values.itemsize == 4 else np.int64))


class FeistelOrder:
    """A permutation of 0..n-1 that is computed at any position and takes no memory; see `kernels.feistel`."""

    def __init__(self, n: int, seed: int, epoch: int, stream: int = 0) -> None:
        self.n = n
        self._keys = feistel_keys(seed, epoch, stream)

    def take(self, first: int, step: int, count: int) -> Indices:
        return self.at(np.arange(first, first + step * count, step, dtype=np.int64))

    def at(self, positions: npt.NDArray[np.int64]) -> Indices:
        out = np.empty(len(positions), index_dtype(self.n))
        kernels.feistel(self.n, self._keys, positions, out)
        return out


def feistel_keys(seed: int, epoch: int, stream: int = 0) -> npt.NDArray[np.uint64]:
    """Return uint64 [4], the keys of permutation `stream` of (seed, epoch): SplitMix64, seeded by all three in turn.

    Unlike torch's seed + epoch, (seed 42, epoch 1) and (seed 43, epoch 0) are different orders.
    """
    state = splitmix(feistel_state(seed, epoch) ^ stream)
    return np.array([splitmix(state + k * 0x9E3779B97F4A7C15) for k in range(4)], np.uint64)


def feistel_state(seed: int, epoch: int) -> int:
    """Return the state from which the keys of every stream of (seed, epoch) follow."""
    return splitmix(splitmix(FEISTEL_VERSION ^ seed) ^ epoch)


def splitmix(state: int) -> int:
    """Return the output of SplitMix64 in this state."""
    mask = 0xFFFFFFFFFFFFFFFF
    value = (state + 0x9E3779B97F4A7C15) & mask
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & mask
    value = (value ^ value >> 27) * 0x94D049BB133111EB & mask
    return value ^ value >> 31
