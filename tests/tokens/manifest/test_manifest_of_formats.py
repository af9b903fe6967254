"""Manifests of token files of other systems: written, checked, inspected, and opened as datasets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from command_line import Cli
from token_formats import write_tokens

import fastpack
from fastpack.tokens.interop_formats import FOLDER_FORMATS
from fastpack.tokens.tokenizer_fingerprint import record_fingerprint

FORMATS = ("megatron", "datatrove", "olmo", "llmc")
DOCUMENTS = [[*range(1, number % 9 + 1), 300 + number, 0] for number in range(60)]
FLAT = [token for document in DOCUMENTS for token in document]


@pytest.fixture(params=FORMATS)
def shards(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return a folder of three shards of a format, named a-0, a-1, a-2."""
    for number in range(3):
        (tmp_path / "made").mkdir()
        write_tokens(tmp_path / "made", request.param, DOCUMENTS[number::3], "uint16")
        for file in (tmp_path / "made").iterdir():
            file.rename(tmp_path / file.name.replace("a.", f"a-{number}.", 1))
        (tmp_path / "made").rmdir()
    return tmp_path


def test_its_facts_and_samples(shards: Path, cli: Cli) -> None:
    result = fastpack.write_manifest(shards)
    known = not any(shards.glob("a-0.bin")) or any(shards.glob("a-0.idx"))  # llm.c stores no boundaries
    assert (result.shards, result.tokens, result.dtypes, result.warnings) == (3, len(FLAT), ["uint16"], [])
    assert result.documents == (len(DOCUMENTS) if known else None)
    assert fastpack.write_manifest(shards, eos_token_id=0, if_exists="overwrite").documents == len(DOCUMENTS)
    facts = fastpack.inspect(result.path)
    assert (facts.kind, facts.files, facts.tokens, facts.documents) == ("manifest", 3, len(FLAT), len(DOCUMENTS))
    assert fastpack.verify(result.path, vocab_size=400, eos_token_id=0).findings == []
    dataset = fastpack.PackedMemMapDatasetContinuous(result.path, "x", 8, False)
    parts = [[token for document in DOCUMENTS[number::3] for token in document] for number in range(3)]
    expected = [part[first : first + 8] for part in parts for first in range(0, len(part) - 7, 8)]
    assert dataset.batch(range(len(dataset)))["x"].tolist() == expected
    assert [dataset[i]["x"].tolist() for i in range(len(dataset))] == expected
    with fastpack.open_tokens(result.path, eos_token_id=0) as tokens:
        assert [tokens.document(i).tolist() for i in range(20)] == DOCUMENTS[::3]
    cli("preview", result.path, "--eos-token-id", 0)


def test_checksums_and_patterns(shards: Path) -> None:
    pytest.importorskip("xxhash")
    suffix = next(path.suffix for path in shards.iterdir() if path.suffix in (".bin", ".ds", ".npy"))
    (shards / "sub").mkdir()
    result = fastpack.write_manifest(shards, checksums=True, file_pattern=f"**/*{suffix}")
    assert (result.shards, result.checksums) == (3, True)
    assert fastpack.verify(result.path).is_sound


def test_verify_finds_a_damaged_shard(shards: Path) -> None:
    path = fastpack.write_manifest(shards).path
    for file in shards.iterdir():
        if ".ds.index" in file.name or file.suffix in (".idx", ".gz") or (file.suffix == ".bin" and not _has_idx(file)):
            file.write_bytes(file.read_bytes()[:-3])
            break
    report = fastpack.verify(path)
    assert not report.is_sound
    assert any(str(shards) in finding.file for finding in report.findings)


def _has_idx(path: Path) -> bool:
    return path.with_suffix(".idx").exists()


def test_a_changed_shard_is_an_error(shards: Path) -> None:
    dataset = fastpack.PackedMemMapDatasetContinuous(fastpack.write_manifest(shards).path, "x", 8, False)
    for file in shards.iterdir():
        if file.suffix in (".bin", ".ds", ".npy"):
            file.write_bytes(file.read_bytes() + b"\0\0")
    with pytest.raises(fastpack.FormatError, match="manifest"):
        _ = dataset[0]


@pytest.mark.parametrize("name", FOLDER_FORMATS)
def test_folders_with_an_index_need_no_manifest(tmp_path: Path, name: str) -> None:
    path = write_tokens(tmp_path, name, DOCUMENTS, "uint16")
    with pytest.raises(fastpack.JobError, match=r"index\.json, which describes its shards: open it without a manifest"):
        fastpack.write_manifest(path)


def test_flat_shards_open_as_blocks_too(tmp_path: Path) -> None:
    for number in range(2):
        np.save(tmp_path / f"{number}.npy", np.arange(20, dtype=np.int32) + number)
    dataset = fastpack.PackedMemMapDatasetContinuous(fastpack.write_manifest(tmp_path).path, "x", 10, False)
    assert dataset[2]["x"].tolist() == list(range(1, 11))
    np.save(tmp_path / "2.npy", np.zeros(20, np.float32))
    path = fastpack.write_manifest(tmp_path, if_exists="overwrite").path
    with pytest.raises(fastpack.FormatError, match="expected a flat array of integers"):
        fastpack.PackedMemMapDatasetContinuous(path, "x", 10, False)


@pytest.mark.parametrize("name", ["megatron", "pbin"])
def test_shards_of_different_tokenizers(tmp_path: Path, name: str) -> None:
    suffix = {"megatron": ".bin", "pbin": ".pbin"}[name]
    for number in range(2):
        path = write_tokens(tmp_path, name, DOCUMENTS, "uint16")
        for file in [*tmp_path.glob("a.*")]:
            file.rename(tmp_path / f"{number}{file.suffix}")
        fingerprint = fastpack.TokenizerFingerprint(f"t{number}", "", 400 + number, 0)
        record_fingerprint(tmp_path / f"{number}{suffix}", fingerprint)
    result = fastpack.write_manifest(tmp_path)
    path = Path(result.path)
    assert "have different tokenizers, t0 and t1" in result.warnings[0]
    assert "different tokenizers" in fastpack.inspect(path).warnings[0]
    with pytest.raises(ValueError, match="have different tokenizers, t0 and t1"):
        fastpack.PackedMemMapDatasetContinuous(path, "x", 8, False)
    with pytest.warns(fastpack.DataWarning, match="have different tokenizers"):
        fastpack.PackedMemMapDatasetContinuous(path, "x", 8, False, mix_tokenizers=True)
