"""A dataset as a JSON value, from which it is opened again: class, arguments, and a fingerprint of its files."""

from __future__ import annotations

import hashlib
import importlib
import inspect
import os
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from typing import Any

import numpy as np

from fastpack.datasets.base import Dataset

# Where the classes of datasets are, which a description names.
MODULES = {
    "CombinedDataset": "fastpack.datasets.mixture",
    "DummyDataset": "fastpack.datasets.dummy",
    "GPTDataset": "fastpack.datasets.gpt.gpt_dataset",
    "MemMapDataset": "fastpack.datasets.jsonl",
    "MemoryMappedDataset": "fastpack.datasets.flat_windows",
    "MixtureDataset": "fastpack.datasets.mixture",
    "PackedMemMapDatasetBase": "fastpack.datasets.packed_documents",
    "PackedMemMapDatasetContinuous": "fastpack.datasets.packed_blocks",
    "PackedMemMapDatasetMegatron": "fastpack.datasets.packed_megatron",
    "PlannedDataset": "fastpack.datasets.planned",
    "TatmMemmapDataset": "fastpack.datasets.tatm",
    "WebDataset": "fastpack.webdataset.dataset",
}
JSON_TYPES = (str, int, float, bool, type(None))
NEEDS_DATASET = "pass fastpack.trace() the dataset of the run, dataset=..."


def describe_dataset(dataset: Any) -> dict[str, Any]:
    """Return the class, the arguments and a fingerprint of a dataset, as JSON values.

    The arguments of a dataset that is not of fastpack are None. Raises ValueError for a dataset without a length.
    """
    try:
        n_samples = len(dataset)
    except TypeError:
        raise ValueError(f"a {type(dataset).__name__} cannot be described: it has no length") from None
    # The classes of fastpack.torch have the names and arguments of their base classes.
    found = next(one for one in type(dataset).__mro__ if one.__module__.split(".")[:2] != ["fastpack", "torch"])
    arguments = None
    if isinstance(dataset, Dataset):
        given, options = dataset._arguments
        named = inspect.signature(_maker(found)).bind(*given, **options).arguments
        arguments = {name: _json_value(value) for name, value in named.items()}
    return {
        "class": found.__name__,
        "arguments": arguments,
        "samples": n_samples,
        "fingerprint": fingerprint(dataset) if isinstance(dataset, Dataset) else "",
    }


def _maker(found: Any) -> Any:
    """Return what makes a dataset of this class of its recorded arguments: the class, or what it has instead."""
    return getattr(found, "_described", found)


def _json_value(value: Any) -> Any:
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return {str(name): _json_value(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_json_value(one) for one in value]
    if isinstance(value, JSON_TYPES):
        return value
    if is_dataclass(value) and not isinstance(value, type):
        return _json_value(asdict(value))
    if hasattr(value, "__len__") and hasattr(value, "__getitem__"):
        return {"dataset": describe_dataset(value)}
    return {"object": type(value).__name__}


class Unopened:
    """Stands for a dataset of another library, or for an argument that is no JSON value."""

    def __init__(self, kind: str, n_samples: int = 0) -> None:
        self._kind, self._n_samples = kind, n_samples

    def __len__(self) -> int:
        return self._n_samples

    def __getitem__(self, index: Any) -> Any:
        return self(index)

    def __call__(self, *_arguments: Any) -> Any:
        raise ValueError(f"a {self._kind} is not opened from the description of a run: {NEEDS_DATASET}")


def fingerprint(dataset: Dataset) -> str:
    """Return a digest of the number of samples and of what else identifies the files."""
    return _digest(len(dataset), dataset._identity())


def _digest(n_samples: int, identity: bytes) -> str:
    return hashlib.blake2b(str(n_samples).encode() + identity, digest_size=8).hexdigest()


def open_described(description: Mapping[str, Any]) -> Any:
    """Open the dataset of a description, or a stand-in for one of another library; ValueError if the files differ."""
    name, arguments = description["class"], description["arguments"]
    if arguments is None:
        return Unopened(name, description["samples"])
    if name not in MODULES:
        raise ValueError(f"the run's dataset is a {name}, which is not a class of fastpack: {NEEDS_DATASET}")
    found = getattr(importlib.import_module(MODULES[name]), name)
    opened = {name: _opened(value) for name, value in arguments.items()}
    try:
        dataset = _maker(found)(**opened)
    except (AttributeError, TypeError) as error:
        raise ValueError(
            f"the {name} of the run is not opened from its description ({error}): {NEEDS_DATASET}"
        ) from error
    check_described(dataset, description)
    return dataset


def check_described(dataset: Any, description: Mapping[str, Any]) -> None:
    """Raise ValueError unless a dataset has the samples of the description."""
    if len(dataset) != description["samples"]:
        found = f"it has {len(dataset)} samples, the run's had {description['samples']}"
    elif not isinstance(dataset, Dataset) or description["arguments"] is None:
        return
    else:
        known = (fingerprint(dataset), _digest(len(dataset), b""))  # the second where version 1 had no identity
        if description["fingerprint"] in known:
            return
        found = f"its fingerprint is {known[0]}, the run's was {description['fingerprint']}"
    raise ValueError(f"{dataset!r} is not the dataset of the run: its files changed ({found})")


def _opened(value: Any) -> Any:
    if isinstance(value, Mapping) and set(value) == {"dataset"}:
        return open_described(value["dataset"])
    if isinstance(value, Mapping) and set(value) == {"object"}:
        return Unopened(value["object"])
    return [_opened(one) for one in value] if isinstance(value, list) else value
