"""Datasets by their names in a Modalities configuration: `DatasetFactory` and `dataset_from_config`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from fastpack.datasets.base import Dataset
from fastpack.datasets.dummy import DummyDataset, DummySampleConfig
from fastpack.datasets.jsonl import MemMapDataset, TextTokenizer
from fastpack.datasets.map_dataset import MapDataset
from fastpack.datasets.mixture import CombinedDataset
from fastpack.datasets.packed_blocks import PackedMemMapDatasetContinuous
from fastpack.datasets.packed_megatron import PackedMemMapDatasetMegatron
from fastpack.documents.raw_index import read_raw_index
from fastpack.io import PathLike, RemotePath


class DatasetFactory:
    """Create datasets by Modalities' functions and argument names; errors are those of the datasets.

    Examples
    --------
    >>> import fastpack
    >>> len(fastpack.DatasetFactory.get_combined_dataset([["a"], ["b", "c"]]))
    3
    """

    @staticmethod
    def get_dummy_dataset(
        num_samples: int, sample_definition: Sequence[DummySampleConfig | Mapping[str, Any]]
    ) -> DummyDataset:
        """Return a `DummyDataset`.

        Parameters
        ----------
        num_samples, sample_definition
            As for `DummyDataset`.

        Returns
        -------
        DummyDataset
            The dataset.
        """
        return DummyDataset(num_samples, sample_definition)

    @staticmethod
    def get_mem_map_dataset(
        raw_data_path: PathLike,
        tokenizer: TextTokenizer | Callable[[str], list[int]],
        sample_key: str,
        index_path: PathLike | None = None,
        jq_pattern: str = ".text",
    ) -> MemMapDataset:
        """Return a `MemMapDataset`.

        Parameters
        ----------
        raw_data_path, tokenizer, sample_key, index_path, jq_pattern
            As for `MemMapDataset`.

        Returns
        -------
        MemMapDataset
            The dataset.
        """
        return MemMapDataset(raw_data_path, tokenizer, sample_key, index_path, jq_pattern)

    @staticmethod
    def get_raw_index(raw_index_path: PathLike) -> list[tuple[int, int]]:
        """Return byte offset and byte length of each line of a raw file, from its index, without unpickling.

        Parameters
        ----------
        raw_index_path
            The index.

        Returns
        -------
        list of tuple
            (byte offset, byte length) of each line.
        """
        return [(offset, length) for offset, length in read_raw_index(raw_index_path).tolist()]

    @staticmethod
    def get_packed_mem_map_dataset_continuous(
        raw_data_path: PathLike,
        sequence_length: int,
        sample_key: str,
        reuse_last_target: bool = True,
        *,
        eos_token_id: int | None = None,
    ) -> PackedMemMapDatasetContinuous:
        """Return a `PackedMemMapDatasetContinuous` of blocks that give sequence_length inputs.

        Blocks have sequence_length + 1 tokens with reuse_last_target, otherwise sequence_length.

        Parameters
        ----------
        raw_data_path, sample_key, reuse_last_target, eos_token_id
            As for `PackedMemMapDatasetContinuous`.
        sequence_length
            Input tokens of a sample.

        Returns
        -------
        fastpack.PackedMemMapDatasetContinuous
            The dataset.
        """
        block_size = sequence_length + 1 if reuse_last_target else sequence_length
        return PackedMemMapDatasetContinuous(
            raw_data_path, sample_key, block_size, reuse_last_target, eos_token_id=eos_token_id
        )

    @staticmethod
    def get_packed_mem_map_dataset_megatron(
        raw_data_path: PathLike,
        sequence_length: int,
        sample_key: str,
        *,
        compat: Literal["modalities-0.5"] | None = None,
        eos_token_id: int | None = None,
    ) -> PackedMemMapDatasetMegatron:
        """Return a `PackedMemMapDatasetMegatron` of blocks of sequence_length + 1 tokens.

        Parameters
        ----------
        raw_data_path, sample_key, compat, eos_token_id
            As for `PackedMemMapDatasetMegatron`.
        sequence_length
            Input tokens of a sample.

        Returns
        -------
        fastpack.PackedMemMapDatasetMegatron
            The dataset.
        """
        return PackedMemMapDatasetMegatron(
            raw_data_path, sample_key, sequence_length + 1, compat=compat, eos_token_id=eos_token_id
        )

    @staticmethod
    def get_combined_dataset(datasets: Sequence[MapDataset[Any]]) -> CombinedDataset:
        """Return a `CombinedDataset`.

        Parameters
        ----------
        datasets
            As for `CombinedDataset`.

        Returns
        -------
        CombinedDataset
            The dataset.
        """
        return CombinedDataset(datasets)


def dataset_from_config(
    component: Mapping[str, Any], *, tokenizer: TextTokenizer | Callable[[str], list[int]] | None = None
) -> Dataset:
    """Create the dataset of a component of a Modalities configuration.

    Parameters
    ----------
    component
        A mapping with the keys component_key ("dataset"), variant_key and config. variant_key is one of
        packed_mem_map_dataset_continuous, packed_mem_map_dataset_megatron, mem_map_dataset, combined and dummy_dataset;
        config is as in Modalities, with interpolations resolved. The datasets of a combined one are components or
        datasets. packed_mem_map_dataset_megatron takes block_size or sequence_length (one less). In addition to
        Modalities' options, packed datasets take eos_token_id, and packed_mem_map_dataset_megatron takes compat.
    tokenizer
        The tokenizer of a mem_map_dataset; by default an object in its configuration.

    Returns
    -------
    Dataset
        The dataset of the variant.

    Raises
    ------
    ValueError
        If a key is unknown, missing or of a wrong type; the message names it.
    FileNotFoundError
        If a file does not exist.

    Examples
    --------
    >>> import fastpack
    >>> definition = [{"sample_key": "input_ids", "sample_shape": [4], "sample_type": "int"}]
    >>> config = {"num_samples": 2, "sample_definition": definition}
    >>> component = {"component_key": "dataset", "variant_key": "dummy_dataset", "config": config}
    >>> fastpack.dataset_from_config(component)
    DummyDataset(samples=2, keys='input_ids', seed=0)
    """
    if not isinstance(component, Mapping):
        raise ValueError(f"found {component!r}, expected a mapping with component_key, variant_key and config")
    for key in component:
        if key not in ("component_key", "variant_key", "config"):
            raise ValueError(f"{key}: unknown key in a dataset component (it has component_key, variant_key, config)")
    if component.get("component_key") != "dataset":
        raise ValueError(f"component_key: found {component.get('component_key')!r}, expected 'dataset'")
    variant, config = component.get("variant_key"), component.get("config")
    if variant not in _VARIANTS:
        raise ValueError(f"variant_key: unknown dataset {variant!r} (known: {', '.join(_VARIANTS)})")
    if not isinstance(config, Mapping):
        raise ValueError(f"config: found {config!r}, expected a mapping")
    build, required, optional = _VARIANTS[variant]
    options = dict(config)
    if variant == "mem_map_dataset":
        options["tokenizer"] = _tokenizer(options.get("tokenizer"), tokenizer)
    if variant == "combined" and isinstance(config.get("datasets"), (list, tuple)):
        options["datasets"] = [
            dataset_from_config(one, tokenizer=tokenizer) if isinstance(one, Mapping) else one
            for one in config["datasets"]
        ]
    _check(options, variant, required, optional)
    return build(**options)


def _megatron(block_size: int | None = None, sequence_length: int | None = None, **options: Any) -> Any:
    if (block_size is None) == (sequence_length is None):
        raise ValueError("config: a packed_mem_map_dataset_megatron takes either block_size or sequence_length")
    length = block_size - 1 if sequence_length is None and block_size is not None else sequence_length
    return DatasetFactory.get_packed_mem_map_dataset_megatron(sequence_length=length, **options)  # type: ignore[arg-type]


def _tokenizer(configured: Any, given: Any) -> Any:
    if given is not None:
        return given
    if configured is None or isinstance(configured, Mapping):
        raise ValueError("config.tokenizer: give tokenizer=, an object with tokenize(text): none is created here")
    return configured


Variant = tuple[Callable[..., Dataset], tuple[str, ...], tuple[str, ...]]  # builder, required options, further options
_VARIANTS: dict[str, Variant] = {
    "packed_mem_map_dataset_continuous": (
        DatasetFactory.get_packed_mem_map_dataset_continuous,
        ("raw_data_path", "sequence_length", "sample_key"),
        ("reuse_last_target", "eos_token_id"),
    ),
    "packed_mem_map_dataset_megatron": (
        _megatron,
        ("raw_data_path", "sample_key"),
        ("block_size", "sequence_length", "eos_token_id", "compat"),
    ),
    "mem_map_dataset": (
        DatasetFactory.get_mem_map_dataset,
        ("raw_data_path", "tokenizer", "sample_key"),
        ("index_path", "jq_pattern"),
    ),
    "combined": (DatasetFactory.get_combined_dataset, ("datasets",), ()),
    "dummy_dataset": (DatasetFactory.get_dummy_dataset, ("num_samples", "sample_definition"), ()),
}
_KINDS: dict[str, tuple[type[Any] | tuple[type[Any], ...], str]] = {
    "raw_data_path": ((str, Path, RemotePath), "a path"),
    "index_path": ((str, Path, RemotePath, type(None)), "a path"),
    "sample_key": (str, "a name"),
    "jq_pattern": (str, "a jq pattern"),
    "sequence_length": (int, "a whole number above 1"),
    "block_size": (int, "a whole number above 1"),
    "num_samples": (int, "a whole number"),
    "reuse_last_target": (bool, "true or false"),
    "eos_token_id": ((int, type(None)), "a token id"),
    "datasets": ((list, tuple), "a list of datasets"),
    "sample_definition": ((list, tuple), "a list of sample definitions"),
}


def _check(options: Mapping[str, Any], variant: str, required: tuple[str, ...], optional: tuple[str, ...]) -> None:
    for key, value in options.items():
        if key not in required + optional:
            known = ", ".join(required + optional)
            raise ValueError(f"config.{key}: {variant} has no such option (it has: {known})")
        kind, name = _KINDS.get(key, (object, ""))
        wrong = not isinstance(value, kind) or (isinstance(value, bool) and key != "reuse_last_target")
        if wrong or (key in ("sequence_length", "block_size") and value < 2):
            raise ValueError(f"config.{key}: found {value!r}, expected {name}")
    for key in required:
        if key not in options:
            raise ValueError(f"config.{key} is missing: {variant} needs it")
