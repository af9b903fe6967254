"""Samples -> one batch: what torch's `default_collate` does, with NumPy arrays in leased memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fastpack.loading.buffers import BufferPool


def collate(samples: Sequence[Any], pool: BufferPool) -> Any:
    """The samples as a batch, by the kind of the first.

    Arrays (and whatever has `__array__`) are stacked; Python and NumPy numbers become int64, float64 and bool arrays
    [B], NumPy scalars keep their dtype; mappings, tuples and named tuples become one of batches; lists a list of
    batches; texts and bytes stay a list. Raises TypeError for anything else, ValueError where shapes, keys or lengths
    differ.
    """
    first = samples[0]
    if isinstance(first, (str, bytes)):
        return list(samples)
    if isinstance(first, (bool, int, float, np.generic)):
        return _numbers(samples, pool)
    if hasattr(first, "__array__"):
        return _stack([np.asarray(sample) for sample in samples], pool)
    if isinstance(first, Mapping):
        return {key: collate([sample[key] for sample in samples], pool) for key in first}
    if isinstance(first, Sequence):
        if any(len(sample) != len(first) for sample in samples):
            raise ValueError("each sample of a batch must have the same number of elements")
        parts = [collate(part, pool) for part in zip(*samples, strict=True)]
        if hasattr(first, "_fields"):
            return type(first)(*parts)
        return tuple(parts) if isinstance(first, tuple) else parts
    raise TypeError(f"cannot make a batch of {type(first).__name__}: give the loader a collate_fn")


def _numbers(samples: Sequence[Any], pool: BufferPool) -> Any:
    numbers = np.asarray(samples)
    if numbers.dtype.hasobject or numbers.ndim != 1:
        raise TypeError(f"cannot make one array of numbers of {samples[:3]!r}: give the loader a collate_fn")
    out = pool.lease(numbers.shape, numbers.dtype)
    out[:] = numbers
    return out


def _stack(arrays: list[Any], pool: BufferPool) -> Any:
    first = arrays[0]
    different = next((array for array in arrays if array.shape != first.shape), None)
    if different is not None:
        raise ValueError(f"samples of a batch differ in shape: {first.shape} and {different.shape}")
    dtype = np.result_type(*{array.dtype for array in arrays})
    if dtype.hasobject:
        raise TypeError("arrays of Python objects make no batch: give the loader a collate_fn")
    return np.stack(arrays, out=pool.lease((len(arrays), *first.shape), dtype))
