"""Blends of several token files: how they are written, how many samples each one gives, and in which order."""

from __future__ import annotations

import math
import os
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from fastpack import kernels
from fastpack.datasets.gpt.document_source import Numbers
from fastpack.datasets.gpt.splits import normalized
from fastpack.datasets.permutations import index_dtype
from fastpack.io import PathLike

MAX_DATASETS = 32_766  # dataset numbers are int16
SURPLUS = 0.005  # of samples that each file of a blend provides beyond its share
RECENT = 1 << 20  # samples whose files are kept in memory, 2 bytes each
UNLIMITED = np.iinfo(np.int64).max
CHECKED = 100_000_000  # steps (samples times files) that are computed at once, to find a file of too few samples

BlendLike: TypeAlias = PathLike | Sequence[PathLike | float]


class Blend(NamedTuple):
    """Paths of token files and, unless they are weighted by their numbers of samples, a weight for each."""

    paths: list[str]
    weights: list[float] | None


def parse_blend(blend: BlendLike) -> Blend:
    """Return the paths and weights of a path, a list of paths, or of [weight, path, weight, path, ...].

    Weights may be numbers or strings. Raises ValueError for a list of another form, or a weight that is not positive.
    """
    if isinstance(blend, (str, os.PathLike)):
        return Blend([os.fspath(blend)], None)
    items = list(blend)
    if not items:
        raise ValueError("the blend has no paths")
    weights = [_weight(item) for item in items[::2]] if len(items) % 2 == 0 else [None]
    if all(weight is None for weight in weights):
        return Blend([_path(item) for item in items], None)
    numbers = [weight for weight in weights if weight is not None]
    if len(numbers) < len(weights) or not all(0 < number < math.inf for number in numbers):
        raise ValueError(f"blend={items!r:.200}: a positive weight is needed before each path, or none at all")
    if len(numbers) > MAX_DATASETS:
        raise ValueError(f"a blend of {len(numbers)} files: at most {MAX_DATASETS} are possible")
    return Blend([_path(item) for item in items[1::2]], numbers)


def _weight(item: Any) -> float | None:
    try:
        return float(item)
    except (TypeError, ValueError):
        return None


def _path(item: Any) -> str:
    if not isinstance(item, (str, os.PathLike)):
        raise ValueError(f"{item!r} in a blend is not a path: pass paths, or a weight before each path")
    return os.fspath(item).strip()


def samples_per_file(weights: Sequence[float], n_samples: int, surplus: float = 0.0) -> list[int]:
    """Return how many samples each file gives, rounded up, or with a surplus, has to provide."""
    return [math.ceil(math.ceil(n_samples * weight) * (1 + surplus)) for weight in weights]


class BlendOrder:
    """The file of each sample of a blend, and the sample's number there; computed as far as it is asked for.

    Stored are the samples of each file before every `interval` samples, at most an eighth of a byte a sample; what
    follows is computed again where it is asked for, with the last blocks kept.

    Parameters
    ----------
    weights
        One per file, of sum 1 but for rounding.
    sizes
        The samples that each file has.
    n_samples
        The length of the blend; None: all samples of all files, so that each file is used up exactly.
    """

    def __init__(self, weights: Sequence[float], sizes: Sequence[int], n_samples: int | None) -> None:
        self._sizes = np.array(sizes, np.int64)
        self._weights = np.array(weights, np.float64)
        self._limits = self._sizes if n_samples is None else np.full(len(sizes), UNLIMITED)
        self.n_samples = int(self._sizes.sum()) if n_samples is None else n_samples
        self._interval = max(512, 32 * len(sizes))
        self._attach()

    def _attach(self) -> None:
        self._lock = threading.Lock()
        # Memory that is not written to yet takes no space.
        shape = -(-self.n_samples // self._interval), len(self._sizes)
        self._before = np.empty(shape, index_dtype(self.n_samples))
        self._counts = np.zeros(len(self._sizes), np.int64)  # after the blocks that are computed
        self._n_computed = 0
        self._recent: OrderedDict[int, npt.NDArray[np.int16]] = OrderedDict()

    def _block(self, number: int) -> npt.NDArray[np.int16]:
        """Return the files of the samples of a block; the lock is held."""
        if number in self._recent:
            self._recent.move_to_end(number)
            return self._recent[number]
        while self._n_computed < number:
            self._next_block()
        if number == self._n_computed:
            files = self._next_block()
        else:
            files = self._computed(number, self._before[number].astype(np.int64))
        self._recent[number] = files
        if len(self._recent) * self._interval > max(RECENT, self._interval):
            self._recent.popitem(last=False)
        return files

    def _next_block(self) -> npt.NDArray[np.int16]:
        self._before[self._n_computed] = self._counts
        files = self._computed(self._n_computed, self._counts)
        self._n_computed += 1
        return files

    def _computed(self, number: int, counts: Numbers) -> npt.NDArray[np.int16]:
        """Return the files of a block, given the samples of each file before it, which advance."""
        first = number * self._interval
        files = np.empty(min(self._interval, self.n_samples - first), np.int16)
        kernels.blend_datasets(self._weights, self._limits, first, counts, files)
        return files

    def first_exhausted(self) -> int | None:
        """Return the number of the first file that has fewer samples than the blend takes of it.

        None if there is no such file, or if finding out would take long: `locate` raises then.
        """
        if bool((self._weights * self.n_samples + 2 <= self._sizes).all()):
            return None  # no file is ever more than one sample ahead of its share
        if self.n_samples * len(self._sizes) > CHECKED:
            return None
        with self._lock:
            while self._n_computed < len(self._before):
                self._next_block()
        short = np.flatnonzero(self._counts > self._sizes)
        return int(short[0]) if len(short) else None

    def locate(self, samples: Numbers) -> tuple[npt.NDArray[np.int64], Numbers]:
        """Return the file of each sample, and its number there; IndexError if the file has fewer samples."""
        files, numbers = np.empty_like(samples), np.empty_like(samples)
        with self._lock:
            for k, sample in enumerate(samples.tolist()):
                number, within = divmod(sample, self._interval)
                block = self._block(number)
                files[k] = file = block[within]
                numbers[k] = self._before[number, file] + np.count_nonzero(block[:within] == file)
        if bool((numbers >= self._sizes[files]).any()):
            file = int(files[(numbers >= self._sizes[files]).argmax()])
            raise IndexError(
                f"the blend takes more samples of its file number {file} than the {self._sizes[file]} it has"
            )
        return files, numbers

    def __getstate__(self) -> dict[str, Any]:
        left_out = ("_lock", "_before", "_counts", "_n_computed", "_recent")
        return {name: value for name, value in vars(self).items() if name not in left_out}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._attach()


def weighted_order(weights: Sequence[float], sizes: Sequence[int], n_samples: int) -> BlendOrder:
    """Return a blend of a length, by weight."""
    return BlendOrder(normalized(weights), sizes, n_samples)


def exhaustive_order(sizes: Sequence[int]) -> BlendOrder:
    """Return a blend of all samples of all files."""
    total = float(sum(sizes))
    return BlendOrder([size / total for size in sizes], sizes, None)
