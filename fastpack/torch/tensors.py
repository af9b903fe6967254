"""Conversion of NumPy arrays to tensors that share their memory."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from fastpack.errors import MissingExtra

try:
    # Any, so that type checkers report the same with and without torch.
    torch: Any = importlib.import_module("torch")
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise  # installed but broken
    raise MissingExtra("torch", "torch", "fastpack.torch") from error

if TYPE_CHECKING:
    # pyright takes this package for torch where torch is not installed.
    from torch._tensor import Tensor as Tensor  # pyright: ignore[reportMissingImports]
else:
    Tensor = torch.Tensor

_tensor = torch.from_numpy


def from_arrays(value: Any) -> Any:
    """Convert NumPy arrays in nested dicts, lists and tuples to tensors that share their memory.

    Parameters
    ----------
    value
        An array, or a dict, list or tuple that holds arrays at any depth. Other values are kept.

    Returns
    -------
    object
        The tensors, in dicts, lists and tuples of the same types.

    Examples
    --------
    >>> import numpy as np, fastpack.torch
    >>> fastpack.torch.from_arrays({"input_ids": np.arange(3)})
    {'input_ids': tensor([0, 1, 2])}
    """
    if type(value) is dict:  # the type of a batch comes first: a check for Mapping costs as much as making a tensor
        return {name: _tensor(one) if type(one) is np.ndarray else from_arrays(one) for name, one in value.items()}
    if isinstance(value, np.ndarray):
        return _tensor(value)
    if isinstance(value, Mapping):
        return {name: from_arrays(one) for name, one in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(from_arrays, value))
    return type(value)(map(from_arrays, value)) if isinstance(value, (list, tuple)) else value
