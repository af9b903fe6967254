"""Samples -> one batch: what torch's `default_collate` does, with NumPy arrays in leased memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fastpack.loading.buffers import BufferPool


def collate(samples: Sequence[Any], pool: BufferPool) -> Any:
    """Collate samples into a batch, by the type of the first sample.

    Arrays (and objects with `__array__`) are stacked. Python and NumPy numbers become int64, float64 and bool arrays
    [B]; NumPy scalars keep their dtype. Mappings, tuples, named tuples and lists are collated by element. Strings and
    bytes become a list.

    Raises
    ------
    TypeError
        For any other type.
    ValueError
        If shapes, keys or lengths differ.
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
        elements = [collate(element, pool) for element in zip(*samples, strict=True)]
        if hasattr(first, "_fields"):
            return type(first)(*elements)
        return tuple(elements) if isinstance(first, tuple) else elements
    raise TypeError(f"cannot collate {type(first).__name__}: give the loader a collate_fn")


def _numbers(samples: Sequence[Any], pool: BufferPool) -> Any:
    numbers = np.asarray(samples)
    if numbers.dtype.hasobject or numbers.ndim != 1:
        raise TypeError(f"cannot convert {samples[:3]!r} to one array of numbers: give the loader a collate_fn")
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
        raise TypeError("arrays of Python objects cannot be collated: give the loader a collate_fn")
    return np.stack(arrays, out=pool.lease((len(arrays), *first.shape), dtype))
