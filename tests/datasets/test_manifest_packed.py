"""A dataset of a manifest of packed files equals their CombinedDataset; files are opened on first use."""

from __future__ import annotations

import os
import pickle
import re
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fastpack
from fastpack.datasets.factory import dataset_from_config
from fastpack.datasets.mixture import CombinedDataset
from fastpack.datasets.packed_blocks import PackedMemMapDatasetContinuous
from fastpack.errors import DataWarning, FormatError
from fastpack.tokens.manifest.manifest_file import Manifest

EOD = 2
LEGACY = Path(__file__).parents[1] / "golden" / "modalities" / "legacy" / "v0.2.0"


def write_packed(path: Path, lengths: list[int], token_size: int = 2) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(len(path.name) + sum(lengths))
    with fastpack.PackedWriter(path, token_size) as writer:
        for length in lengths:
            writer.append(np.append(rng.integers(3, 250, length - 1), EOD))
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(3):
        write_packed(tmp_path / f"{number}.pbin", [20, 30 + number])
    fastpack.write_manifest(tmp_path)
    return tmp_path


def opened(folder: Path, block_size: int = 8, **options: Any) -> PackedMemMapDatasetContinuous:
    return PackedMemMapDatasetContinuous(folder / "manifest.fpm", "text", block_size, True, **options)


@settings(max_examples=25)
@given(
    st.dictionaries(
        st.sampled_from(["a", "b", "sub/c", "sub/deep/d"]),
        st.tuples(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.sampled_from([1, 2, 4])),
        min_size=1,
    ),
    st.integers(2, 9),
    st.booleans(),
    st.sampled_from([None, EOD]),
)
def test_a_manifest_equals_the_combined_dataset_of_its_files(
    tmp_path_factory: Any, files: Any, block_size: int, reuse: bool, eos: int | None
) -> None:
    folder = tmp_path_factory.mktemp("packed")
    options = {"sample_key": "text", "block_size": block_size, "reuse_last_target": reuse, "eos_token_id": eos}
    parts = []
    for name, (lengths, token_size) in sorted(files.items(), key=lambda item: item[0].split("/")):
        path = write_packed(folder / f"{name}.pbin", lengths, token_size)
        if sum(lengths) >= block_size:
            parts.append(PackedMemMapDatasetContinuous(path, **options))
    np.save(folder / "other.npy", np.arange(50, dtype=np.uint16))
    fastpack.write_manifest(folder, file_pattern="**/*.*")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if not parts:
            with pytest.raises(ValueError, match="is larger than the total number of tokens"):
                PackedMemMapDatasetContinuous(folder / "manifest.fpm", **options)
            return
        found = PackedMemMapDatasetContinuous(folder / "manifest.fpm", **options)
    assert len(caught) == int(len(parts) < len(files))
    combined = CombinedDataset(parts)
    assert len(found) == len(combined)
    assert found.token_size_in_bytes == max(token_size for _, token_size in files.values())
    for dataset in (found, pickle.loads(pickle.dumps(found))):
        for number in (*range(len(found)), -1):
            expected = combined[number]["text"]
            assert dataset[number]["text"].dtype == expected.dtype
            np.testing.assert_array_equal(dataset[number]["text"], expected)
        for one, expected in zip(
            dataset[1:3]["text"], [combined[k]["text"] for k in range(len(found))][1:3], strict=True
        ):
            np.testing.assert_array_equal(one, expected)
    order = np.random.default_rng(0).permutation(len(found))
    outputs = ("input_ids", "labels", "doc_ids", "position_ids") if eos else ("input_ids", "labels")
    for name, array in combined.batch(order, outputs).items():
        np.testing.assert_array_equal(found.batch(order, outputs)[name], array)
    np.testing.assert_array_equal(found.batch(order)["text"], combined.batch(order, dtype="int64")["text"])
    with pytest.raises(IndexError):
        found[len(found)]
    found.check_unchanged()
    found.close()
    with pytest.raises(ValueError, match="is closed"):
        found[0]


def test_the_manifest_provides_the_facts(folder: Path) -> None:
    manifest_file = Manifest(folder / "manifest.fpm")
    assert (manifest_file.names(), manifest_file.documents.tolist(), manifest_file.tokens.tolist()) == (
        ["0.pbin", "1.pbin", "2.pbin"],
        [2, 2, 2],
        [50, 51, 52],
    )
    assert manifest_file.offsets.tolist() == [12, 12, 12]
    np.save(folder / "a.npy", np.arange(5))  # flat shards take precedence
    fastpack.write_manifest(folder, if_exists="overwrite", eos_token_id=1, checksums=True)
    assert Manifest(folder / "manifest.fpm").names() == ["a.npy"]
    fastpack.write_manifest(folder, file_pattern="*.pbin", eos_token_id=1, if_exists="overwrite")
    assert Manifest(folder / "manifest.fpm").documents.tolist() == [2, 2, 2]


def test_files_are_accessed_on_first_use_only(folder: Path) -> None:
    expected = opened(folder)[0]["text"]
    (folder / "1.pbin").unlink()
    (folder / "2.pbin").write_bytes(b"")
    dataset = opened(folder)
    np.testing.assert_array_equal(dataset[0]["text"], expected)
    with pytest.raises(FileNotFoundError, match=r"manifest\.fpm names it"):
        dataset[7]
    with pytest.raises(FormatError, match=re.escape("2.pbin: at byte 0: found the end of a file of 0 bytes")):
        dataset.batch([len(dataset) - 1])


def test_a_changed_file_is_detected(folder: Path) -> None:
    dataset = opened(folder)
    dataset.batch(range(len(dataset)))
    path = folder / "1.pbin"
    status = os.stat(path)
    shutil.copy(path, folder / "kept")
    with open(path, "r+b") as file:
        file.seek(12)
        file.write(b"\x09")
    for look in (dataset.check_unchanged, lambda: opened(folder).batch([7])):
        with pytest.raises(FormatError, match="a file that was modified since"):
            look()
    shutil.move(folder / "kept", path)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    opened(folder).batch([7])
    with open(path, "r+b") as file:  # the same size and time, another header
        file.write((51).to_bytes(8, "little") + (1).to_bytes(4, "little"))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(FormatError, match="51 rows of uint8 from byte 12, expected 51 of uint16"):
        opened(folder).batch([7])
    assert not fastpack.verify(folder / "manifest.fpm").is_sound


def test_older_generations(tmp_path: Path) -> None:
    shutil.copy(next(LEGACY.glob("*.pbin")), tmp_path / "4.pbin")
    tokens = np.array([5, 6, 7, 2], ">u4").tobytes()
    (tmp_path / "2.pbin").write_bytes((16).to_bytes(8, "big") + tokens + pickle.dumps([(8, 16)], protocol=4))
    fastpack.write_manifest(tmp_path)
    parts = [PackedMemMapDatasetContinuous(tmp_path / f"{k}.pbin", "x", 3, False) for k in (2, 4)]
    found = PackedMemMapDatasetContinuous(tmp_path / "manifest.fpm", "x", 3, False)
    np.testing.assert_array_equal(found[0]["x"], [5, 6, 7])
    order = np.arange(len(found))[::-1]
    np.testing.assert_array_equal(found.batch(order)["x"], CombinedDataset(parts).batch(order, dtype="int64")["x"])


def test_short_files_raise_a_warning(folder: Path) -> None:
    with pytest.warns(DataWarning, match=r"1 of 3 files, the first being .*0\.pbin, are shorter than a block of 51"):
        assert len(opened(folder, 51)) == 2
    with pytest.raises(ValueError, match=re.escape("Block size (53) is larger than the total number of tokens (52).")):
        opened(folder, 53)


def test_a_manifest_is_refused_where_an_index_is_needed(folder: Path) -> None:
    with pytest.raises(ValueError, match="load_index=True is for one packed file"):
        opened(folder, load_index=True)
    with pytest.raises(ValueError, match="Index was not loaded"):
        _ = opened(folder).index_base
    with pytest.raises(ValueError, match="blocks of its own"):
        _ = opened(folder)._index
    for build in (
        lambda: fastpack.PackedMemMapDatasetBase(folder / "manifest.fpm", "x"),
        lambda: fastpack.PackedMemMapDatasetMegatron(folder / "manifest.fpm", "x", 8),
    ):
        with pytest.raises(ValueError, match="a manifest of packed files opens as PackedMemMapDatasetContinuous"):
            build()


def test_modalities_configurations_and_loaders_accept_a_manifest(folder: Path) -> None:
    config = {"raw_data_path": folder / "manifest.fpm", "sequence_length": 7, "sample_key": "input_ids"}
    component = {"component_key": "dataset", "variant_key": "packed_mem_map_dataset_continuous", "config": config}
    dataset = dataset_from_config(component)
    assert len(dataset) == len(opened(folder))
    combined = dataset_from_config(
        {"component_key": "dataset", "variant_key": "combined", "config": {"datasets": [component, component]}}
    )
    assert len(combined) == 2 * len(dataset)
    np.testing.assert_array_equal(combined[len(dataset)]["input_ids"], dataset[0]["input_ids"])
    loader = fastpack.StatefulDataLoader(dataset, 4, range(len(dataset)), outputs=("input_ids", "labels"))
    seen = np.concatenate([batch["input_ids"] for batch in loader])
    np.testing.assert_array_equal(seen, dataset.batch(range(len(seen)), ("input_ids",))["input_ids"])
