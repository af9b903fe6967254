"""Datasets compare the recorded tokenizers of their files with each other, and with `eos_token_id`."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastpack
from fastpack.datasets import recorded_tokenizers
from fastpack.errors import DataWarning
from fastpack.tokens import tokenizer_fingerprint
from fastpack.tokens.tokenizer_fingerprint import record_fingerprint

ONE = fastpack.TokenizerFingerprint("one", "", 300, 256)
TWO = fastpack.TokenizerFingerprint("two", "", 400, 256)
DIFFERENT = "have different tokenizers, one and two: vocabulary sizes 300 and 400"


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    for name in ("a", "b"):
        np.save(tmp_path / f"{name}.npy", np.arange(250, 260, dtype=np.uint16))
    record_fingerprint(tmp_path / "a.npy", ONE)
    return tmp_path


def test_shards_of_different_tokenizers(shards: Path) -> None:
    assert len(fastpack.MemoryMappedDataset(shards, 5)) == 4
    record_fingerprint(shards / "b.npy", TWO)
    with pytest.raises(ValueError, match=rf"a\.npy and .*b\.npy {DIFFERENT}.*mix_tokenizers=True"):
        fastpack.MemoryMappedDataset(shards, 5)
    with pytest.warns(DataWarning, match=DIFFERENT):
        assert len(fastpack.MemoryMappedDataset(shards, 5, mix_tokenizers=True)) == 4


def packed(folder: Path, name: str, fingerprint: Any) -> Path:
    path = folder / f"{name}.pbin"
    with fastpack.PackedWriter(path, 2) as writer:
        writer.append(np.arange(250, 262))
        writer.fingerprint = fingerprint
    return path


@pytest.mark.parametrize("kind", ["mixture", "combined"])
def test_combining_datasets(tmp_path: Path, kind: str) -> None:
    def combine(*fingerprints: Any, **options: Any) -> Any:
        datasets: list[Any] = []
        for n, fingerprint in enumerate(fingerprints):
            path = packed(tmp_path, f"{len(list(tmp_path.iterdir()))}-{n}", fingerprint)
            datasets.append(fastpack.PackedMemMapDatasetContinuous(path, "input_ids", 4, False))
        datasets.append(fastpack.CombinedDataset([]) if kind == "combined" else datasets[0])
        if kind == "mixture":
            return fastpack.MixtureDataset(datasets, [str(n) for n in range(len(datasets))], **options)
        return fastpack.CombinedDataset(datasets, **options)

    assert len(combine(ONE, ONE, None)) >= 9
    with pytest.raises(ValueError, match=DIFFERENT):
        combine(ONE, None, TWO)
    with pytest.warns(DataWarning, match=DIFFERENT):
        mixed = combine(ONE, TWO, mix_tokenizers=True)
    assert len(pickle.loads(pickle.dumps(mixed))) == len(mixed)
    with pytest.raises(ValueError, match=DIFFERENT):  # also within datasets that combine others
        fastpack.CombinedDataset([combine(ONE), combine(TWO)])


def test_another_eos_token(shards: Path, tmp_path: Path) -> None:
    expected = "eos_token_id is 7, but the tokenizer one ended documents in 256"
    path = packed(tmp_path, "packed", ONE)
    opened: list[Callable[..., object]] = [
        lambda **eos: fastpack.MemoryMappedDataset(shards, 5, "a.npy", True, **eos),
        lambda **eos: fastpack.PackedMemMapDatasetContinuous(path, "input_ids", 4, False, **eos),
        lambda **eos: fastpack.PackedMemMapDatasetMegatron(path, "input_ids", 4, **eos),
    ]
    for open_dataset in opened:
        open_dataset(eos_token_id=256)
        with pytest.warns(DataWarning, match=expected):
            open_dataset(eos_token_id=7)


@pytest.mark.parametrize("name", ["megatron", "datatrove", "litdata", "mds"])
def test_datasets_of_other_formats(tmp_path: Path, name: str) -> None:
    source = packed(tmp_path, "packed", ONE)
    path = fastpack.convert(source, tmp_path / "other", format=name).output
    expected = "eos_token_id is 7, but the tokenizer one ended documents in 256"
    with pytest.warns(DataWarning, match=expected):
        fastpack.PackedMemMapDatasetContinuous(path, "input_ids", 4, False, eos_token_id=7)
    if name != "mds":  # which has no shards
        with pytest.warns(DataWarning, match=expected):
            fastpack.MemoryMappedDataset(path, 4, pack_sequences=True, eos_token_id=7)
    one = fastpack.PackedMemMapDatasetContinuous(path, "input_ids", 4, False)
    two = fastpack.PackedMemMapDatasetContinuous(packed(tmp_path, "two", TWO), "input_ids", 4, False)
    with pytest.raises(ValueError, match=DIFFERENT):
        fastpack.CombinedDataset([pickle.loads(pickle.dumps(one)), two])


def test_tatm_warns(tmp_path: Path) -> None:
    for name, fingerprint in (("a", ONE), ("b", TWO)):
        np.arange(10, dtype=np.uint16).tofile(tmp_path / f"{name}.bin")
        record_fingerprint(tmp_path / f"{name}.bin", fingerprint)
    with pytest.warns(DataWarning, match=f"{DIFFERENT}|ended documents in 256"):
        fastpack.tatm.TatmMemmapDataset(f"{tmp_path}/", 4, token_output_format="numpy")


def test_reads_at_open_and_per_batch(shards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One side file is read for each shard that has one, at open, and none later."""
    reads: list[str] = []
    read = tokenizer_fingerprint._read_side
    monkeypatch.setattr(tokenizer_fingerprint, "_read_side", lambda path: [reads.append(path), read(path)][1])
    dataset = fastpack.MemoryMappedDataset(shards, 5)
    assert [Path(path).name for path in reads] == ["a.npy.fptok"]
    dataset.batch([0, 1])
    assert dataset[1]
    assert len(reads) == 1


def test_shards_in_a_store_are_not_compared() -> None:
    assert recorded_tokenizers.tokenizer_of_shards(["s3://bucket/a.npy"], False, 7) is None


def test_blocks_across_files_of_different_tokenizers(shards: Path) -> None:
    record_fingerprint(shards / "b.npy", TWO)
    with pytest.raises(ValueError, match=DIFFERENT):
        fastpack.PackedMemMapDatasetContinuous(shards, "x", 5, False)
    with pytest.warns(DataWarning, match=DIFFERENT):
        fastpack.PackedMemMapDatasetContinuous(shards, "x", 5, False, mix_tokenizers=True)


def test_shards_of_a_manifest(shards: Path) -> None:
    record_fingerprint(shards / "b.npy", TWO)
    path = fastpack.write_manifest(shards).path
    with pytest.raises(ValueError, match=DIFFERENT):
        fastpack.MemoryMappedDataset(path, 5)
    with pytest.warns(DataWarning, match=DIFFERENT):
        fastpack.MemoryMappedDataset(path, 5, mix_tokenizers=True)


def test_the_warning_names_the_line_that_opens_the_dataset(shards: Path, tmp_path: Path) -> None:
    path = packed(tmp_path, "packed", ONE)
    opened: list[Callable[..., object]] = [
        lambda: fastpack.MemoryMappedDataset(shards, 5, "a.npy", True, eos_token_id=7),
        lambda: fastpack.PackedMemMapDatasetContinuous(path, "input_ids", 4, False, eos_token_id=7),
        lambda: fastpack.PackedMemMapDatasetContinuous(shards, "input_ids", 4, False, eos_token_id=7),
        lambda: fastpack.PackedMemMapDatasetMegatron(path, "input_ids", 4, eos_token_id=7),
    ]
    for open_dataset in opened:
        with pytest.warns(DataWarning, match="eos_token_id is 7") as warned:
            open_dataset()
        assert [Path(warning.filename).name for warning in warned] == [Path(__file__).name]
