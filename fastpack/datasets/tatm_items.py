"""The items of a `TatmMemmapDataset` and their options (as tatm)."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, TypeVar

import numpy as np

Option = TypeVar("Option", bound=StrEnum)


class SplitType(StrEnum):
    """The splits of a dataset."""

    TRAIN = "train"
    VALIDATION = "validation"


class TokenOutputFormat(StrEnum):
    """The types of the arrays of an item."""

    TORCH = "torch"
    NP = "numpy"


@dataclass(kw_only=True)
class TatmMemmapDatasetItem:
    """A sample of `TatmMemmapDataset`; `item["token_ids"]` is `item.token_ids`."""

    token_ids: Any = None
    document_ids: Any = None
    document_mask: Any = None

    def __getitem__(self, name: str) -> Any:
        if name not in (field.name for field in fields(self)):
            raise KeyError(f"{name} not found in dataset item.")
        return getattr(self, name)


def torch_collate_fn(batch: Sequence[TatmMemmapDatasetItem]) -> dict[str, Any]:
    """Stack the fields of items (as tatm): tensors for items in "torch" format, otherwise arrays."""
    names = [field.name for field in fields(batch[0]) if batch[0][field.name] is not None]
    stacked = {name: np.stack([np.asarray(item[name]) for item in batch]) for name in names}
    is_numpy = all(isinstance(batch[0][name], np.ndarray) for name in names)
    return stacked if is_numpy else to_torch(stacked)


def to_torch(value: Any) -> Any:
    """Return arrays as tensors."""
    # By name: only fastpack.torch imports torch, only when tensors are requested.
    return importlib.import_module("fastpack.torch").from_arrays(value)


def chosen_option(kind: type[Option], value: str, name: str) -> Option:
    """Return the member of an enumeration; ValueError for another value."""
    try:
        return kind(value)
    except ValueError:
        raise ValueError(f"Invalid {name} {value}. Valid values are {[one.value for one in kind]}.") from None
