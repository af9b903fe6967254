"""A dataset as a JSON value, from which it is opened again: class, arguments, and a fingerprint of its files."""

from __future__ import annotations

import hashlib
import importlib
import inspect
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from fastpack.datasets.base import Dataset
from fastpack.datasets.window_dataset import WindowDataset

# Where the classes of datasets are, which a description names.
MODULES = {
    "CombinedDataset": "fastpack.datasets.mixture",
    "GPTDataset": "fastpack.datasets.gpt.gpt_dataset",
    "MemoryMappedDataset": "fastpack.datasets.flat_windows",
    "MixtureDataset": "fastpack.datasets.mixture",
    "PackedMemMapDatasetContinuous": "fastpack.datasets.packed_blocks",
    "PackedMemMapDatasetMegatron": "fastpack.datasets.packed_megatron",
    "PlannedDataset": "fastpack.datasets.planned",
    "TatmMemmapDataset": "fastpack.datasets.tatm",
    "WebDataset": "fastpack.webdataset.dataset",
}
JSON_TYPES = (str, int, float, bool, type(None))


def describe_dataset(dataset: Any) -> dict[str, Any]:
    """Return the class, the arguments and a fingerprint of a dataset of fastpack, as JSON values.

    Raises ValueError if an argument is no JSON value, a path, or a dataset.
    """
    if not isinstance(dataset, Dataset):
        raise ValueError(f"a {type(dataset).__name__} cannot be described: pass a dataset of fastpack")
    # The classes of fastpack.torch have the names and arguments of their base classes.
    found = next(one for one in type(dataset).__mro__ if one.__module__.split(".")[:2] != ["fastpack", "torch"])
    given, options = dataset._arguments
    named = inspect.signature(_maker(found)).bind(*given, **options).arguments
    arguments = {name: _json_value(value, f"{found.__name__}({name}=...)") for name, value in named.items()}
    return {
        "class": found.__name__,
        "arguments": arguments,
        "samples": len(dataset),
        "fingerprint": fingerprint(dataset),
    }


def _maker(found: Any) -> Any:
    """Return what makes a dataset of this class of its recorded arguments: the class, or what it has instead."""
    return getattr(found, "_described", found)


def _json_value(value: Any, where: str) -> Any:
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Dataset):
        return {"dataset": describe_dataset(value)}
    if isinstance(value, Mapping):
        return {str(name): _json_value(one, where) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_json_value(one, where) for one in value]
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, JSON_TYPES):
        return value
    raise ValueError(f"{where} is a {type(value).__name__}, which a description cannot contain")


def fingerprint(dataset: Dataset) -> str:
    """Return a digest of the number of samples and of what else identifies the files."""
    digest = hashlib.blake2b(str(len(dataset)).encode(), digest_size=8)
    if isinstance(dataset, WindowDataset):
        digest.update(dataset._windows.cumulative.tobytes())
    else:
        digest.update(dataset._identity())
    return digest.hexdigest()


def open_described(description: Mapping[str, Any]) -> Dataset:
    """Open the dataset of a description; ValueError if the files are others."""
    name = description["class"]
    if name not in MODULES:
        raise ValueError(f"the run's dataset is a {name}: pass trace() the dataset, which it cannot open")
    found = getattr(importlib.import_module(MODULES[name]), name)
    arguments = {name: _opened(value) for name, value in description["arguments"].items()}
    dataset: Dataset = _maker(found)(**arguments)
    if len(dataset) != description["samples"] or fingerprint(dataset) != description["fingerprint"]:
        raise ValueError(
            f"{dataset!r} is not the dataset of the run, which had {description['samples']} samples: its files changed"
        )
    return dataset


def _opened(value: Any) -> Any:
    if isinstance(value, Mapping) and set(value) == {"dataset"}:
        return open_described(value["dataset"])
    return [_opened(one) for one in value] if isinstance(value, list) else value
