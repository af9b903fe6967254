"""Validation of sample and document numbers, and conversion to int64."""

from __future__ import annotations

import operator
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

_PLAIN = {int, np.int64}
_LARGEST = np.iinfo(np.int64).max


def item_number(index: SupportsIndex) -> int:
    """Return `index` as an int.

    Raises TypeError for anything except an integer. A bool is refused because a list of bools is mostly a mask.
    """
    if type(index) is int:
        return index
    if isinstance(index, bool) or str(getattr(index, "dtype", "")).endswith("bool"):
        raise TypeError("an index must be an integer, not a bool (numpy.flatnonzero makes indices of a mask)")
    try:
        return operator.index(index)
    except TypeError:
        raise TypeError(f"an index must be an integer, not {type(index).__name__} ({index!r:.60})") from None


def position_of(index: SupportsIndex, n_items: int) -> int:
    """Return the position of an item; a negative index counts from the end. Raises as `item_number`, or IndexError."""
    number = item_number(index)
    position = number + n_items if number < 0 else number
    if not 0 <= position < n_items:
        raise IndexError(f"Index {number} out of range for {n_items} samples")
    return position


def item_numbers(indices: Any) -> npt.NDArray[np.int64]:
    """Return `indices` as a new int64 array of shape [n], which no other code writes to while it is used.

    indices: a sequence, an array or a tensor of integers. Raises TypeError for anything else (bools and floats
    included, whatever their values), ValueError for any number of dimensions except one, and IndexError for a number
    beyond 64 bits.
    """
    if not isinstance(indices, np.ndarray):
        if not hasattr(indices, "__array__"):
            return _from_sequence(indices)
        indices = np.asarray(indices)  # a tensor
    if indices.ndim != 1:
        raise ValueError(f"indices of shape {indices.shape}: one dimension is needed")
    kind = indices.dtype.kind
    if kind == "O" or not len(indices):
        return _from_sequence(indices.tolist())
    if kind not in "iu":
        hint = " (numpy.flatnonzero makes indices of a mask)" if kind == "b" else ""
        raise TypeError(f"indices must be integers, not {indices.dtype}{hint}")
    if kind == "u" and indices.dtype.itemsize == 8 and indices.max() > _LARGEST:
        raise IndexError(f"Index {indices.max()} out of range")
    return np.array(indices, np.int64)


def _from_sequence(indices: Any) -> npt.NDArray[np.int64]:
    if isinstance(indices, range):
        indices = list(indices)
    try:
        types = set(map(type, indices))
    except TypeError:
        raise TypeError(f"indices must be a sequence of integers, not {type(indices).__name__}") from None
    numbers = indices if types <= _PLAIN else [item_number(index) for index in indices]
    try:
        return np.array(numbers, np.int64)
    except OverflowError:
        raise IndexError(f"Index {max(numbers, key=abs)} out of range") from None
