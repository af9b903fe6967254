"""Datasets by the names of Modalities' configurations, and the random samples of DummyDataset."""

from __future__ import annotations

import inspect
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import fastpack
from fastpack import DatasetFactory, DummyDataset, dataset_from_config

CONTINUOUS, MEGATRON = "packed_mem_map_dataset_continuous", "packed_mem_map_dataset_megatron"


@pytest.fixture
def packed(tmp_path: Path) -> str:
    with fastpack.PackedWriter(tmp_path / "a.pbin", 2) as writer:
        writer.append_many(np.arange(100), [20, 30, 50])
    return str(tmp_path / "a.pbin")


def component(variant: str, **config: Any) -> dict[str, Any]:
    return {"component_key": "dataset", "variant_key": variant, "config": config}


def test_block_sizes_follow_from_sequence_lengths(packed: str) -> None:
    make = DatasetFactory.get_packed_mem_map_dataset_continuous
    assert make(raw_data_path=packed, sequence_length=8, sample_key="ids").block_size == 9
    assert make(packed, 8, "ids", True)[1]["ids"].tolist() == list(range(8, 17))
    assert make(packed, 8, "ids", False)[1]["ids"].tolist() == list(range(8, 16))
    megatron = DatasetFactory.get_packed_mem_map_dataset_megatron(packed, sequence_length=8, sample_key="ids")
    assert megatron.block_size == 9
    combined = DatasetFactory.get_combined_dataset(datasets=[make(packed, 8, "ids"), megatron])
    assert combined[-1]["ids"].tolist() == megatron[-1]["ids"].tolist()


def test_argument_names_and_order_match_modalities() -> None:
    expected = {
        "get_dummy_dataset": ["num_samples", "sample_definition"],
        "get_mem_map_dataset": ["raw_data_path", "tokenizer", "sample_key", "index_path", "jq_pattern"],
        "get_raw_index": ["raw_index_path"],
        "get_packed_mem_map_dataset_continuous": [
            "raw_data_path",
            "sequence_length",
            "sample_key",
            "reuse_last_target",
        ],
        "get_packed_mem_map_dataset_megatron": ["raw_data_path", "sequence_length", "sample_key"],
        "get_combined_dataset": ["datasets"],
    }
    for name, names in expected.items():
        parameters = inspect.signature(getattr(DatasetFactory, name)).parameters.values()
        assert [one.name for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD] == names


def test_raw_files(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"body": "ab"}\n{"body": "c"}\n')
    fastpack.create_raw_index(path)
    assert DatasetFactory.get_raw_index(tmp_path / "x.idx") == [(0, 14), (15, 13)]
    configured = component("mem_map_dataset", raw_data_path=str(path), sample_key="ids", jq_pattern=".body")
    for dataset in (
        DatasetFactory.get_mem_map_dataset(path, len, "ids", jq_pattern=".body"),
        dataset_from_config(configured, tokenizer=len),
        dataset_from_config(component("mem_map_dataset", **configured["config"], tokenizer=len)),
        dataset_from_config(component("combined", datasets=[configured]), tokenizer=len),
    ):
        assert [dataset[i] for i in range(len(dataset))] == [2, 1]
    for tokenizer in ({}, {"tokenizer": {"component_key": "tokenizer"}}):
        with pytest.raises(ValueError, match=r"config\.tokenizer: give tokenizer="):
            dataset_from_config(component("mem_map_dataset", **configured["config"], **tokenizer))


def test_components(packed: str) -> None:
    base = {"raw_data_path": packed, "sample_key": "ids"}
    blocks = dataset_from_config(component(CONTINUOUS, **base, sequence_length=8))
    assert type(blocks) is fastpack.PackedMemMapDatasetContinuous
    assert (blocks.block_size, blocks.reuse_last_target) == (9, True)
    apart = dataset_from_config(component(CONTINUOUS, **base, sequence_length=8, reuse_last_target=False))
    assert (apart.block_size, apart.reuse_last_target) == (8, False)
    for option in ({"block_size": 9}, {"sequence_length": 8}):
        assert dataset_from_config(component(MEGATRON, **base, **option)).block_size == 9
    old = dataset_from_config(component(MEGATRON, **base, block_size=8, compat="modalities-0.5"))
    assert old[0]["ids"].tolist() == [6, 7, 8, 9]
    parts = [component(CONTINUOUS, **base, sequence_length=8), blocks]
    assert len(dataset_from_config(component("combined", datasets=parts))) == 2 * len(blocks)
    definition = [{"sample_key": "x", "sample_shape": [2, 3], "sample_type": "int"}]
    dummy = dataset_from_config(component("dummy_dataset", num_samples=4, sample_definition=definition))
    assert dummy[3]["x"].shape == (2, 3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sequence_length": 1}, r"config\.sequence_length: found 1, expected a whole number above 1"),
        ({"sequence_length": True}, r"config\.sequence_length: found True"),
        ({"sequence_length": "8"}, r"config\.sequence_length: found '8'"),
        ({"reuse_last_target": "yes"}, r"config\.reuse_last_target: found 'yes', expected true or false"),
        ({"block_size": 9}, r"config\.block_size: packed_mem_map_dataset_continuous has no such option"),
        ({"sample_key": None}, r"config\.sample_key: found None, expected a name"),
    ],
)
def test_errors_name_the_key(packed: str, change: dict[str, Any], message: str) -> None:
    config = {"raw_data_path": packed, "sample_key": "ids", "sequence_length": 8}
    with pytest.raises(ValueError, match=message):
        dataset_from_config(component(CONTINUOUS, **(config | change)))


def test_other_errors(packed: str) -> None:
    base = {"raw_data_path": packed, "sample_key": "ids"}
    for wrong, message in (
        (component(CONTINUOUS, **base), r"config\.sequence_length is missing"),
        (component(MEGATRON, **base), "either block_size or sequence_length"),
        (component(MEGATRON, **base, block_size=9, sequence_length=8), "either block_size or sequence_length"),
        (component("coca", **base), r"unknown dataset 'coca' \(known: packed_mem_map_dataset_continuous"),
        (component("combined", datasets="ab"), "expected a list of datasets"),
        (component(CONTINUOUS) | {"component_key": "model"}, "component_key: found 'model', expected 'dataset'"),
        (component(CONTINUOUS) | {"config": None}, "config: found None"),
        (component(CONTINUOUS) | {"name": 1}, "name: unknown"),
        ([], "expected a mapping"),
    ):
        with pytest.raises(ValueError, match=message):
            dataset_from_config(wrong)
    with pytest.raises(FileNotFoundError):
        dataset_from_config(component(CONTINUOUS, raw_data_path="none.pbin", sample_key="ids", sequence_length=8))


def test_dummy_samples() -> None:
    definition = [
        {"sample_key": "image", "sample_shape": (3, 4), "sample_type": "float"},
        SimpleNamespace(sample_key="ids", sample_shape=(2000,), sample_type="int"),
    ]
    dataset = DummyDataset(5, definition)
    assert len(dataset) == dataset.num_samples == 5
    sample = dataset[0]
    assert (sample["image"].shape, sample["image"].dtype) == ((3, 4), np.float64)
    assert (sample["ids"].min(), sample["ids"].max(), sample["ids"].dtype) == (0, 511, np.int64)
    for name, array in dataset[-5].items():
        np.testing.assert_array_equal(array, sample[name])
    assert not np.array_equal(dataset[1]["image"], sample["image"])
    assert not np.array_equal(DummyDataset(5, definition, seed=1)[0]["image"], sample["image"])
    assert len([one for one in dataset]) == 5  # noqa: C416 (iteration ends, by IndexError)
    with pytest.raises(IndexError):
        dataset[5]
    (batch,) = fastpack.StatefulDataLoader(dataset, 5, range(len(dataset)))
    assert batch["image"].shape == (5, 3, 4)
    for wrong in ({"sample_key": "x"}, {"sample_key": "x", "sample_shape": [1], "sample_type": "text"}):
        with pytest.raises(ValueError, match="sample_"):
            DummyDataset(5, [wrong])
    with pytest.raises(ValueError, match="sample_shape"):
        DummyDataset(5, [{"sample_key": "x", "sample_shape": [-1], "sample_type": "int"}])
