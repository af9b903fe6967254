"""`write_manifest`: contents, location, and independence of the number of threads."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastpack
from fastpack.errors import FormatError, JobError
from fastpack.io import TargetExists
from fastpack.tokens.manifest import manifest_writer as building
from fastpack.tokens.manifest.manifest_file import Manifest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shards = tmp_path / "data" / "shards"
    (shards / "more").mkdir(parents=True)
    np.save(shards / "b.npy", np.array([1, 2, 9, 3, 9], np.uint16))
    np.save(shards / "c.npy", np.array([[9, 1], [2, 9]], np.int64))
    np.save(shards / "d.npy", np.array([9, 9, 9], ">u4"))
    np.save(shards / "more" / "e.npy", np.array([], np.uint8))
    (shards / "a.bin").write_bytes(np.array([9, 4, 9, 9, 1], np.uint16).tobytes())
    (shards / "notes.txt").write_text("not a shard")
    return shards


def said(path: Any) -> list[tuple[Any, ...]]:
    found = Manifest(path)
    columns = (found.names(), found.lengths.tolist(), found.tokens.tolist(), found.documents.tolist())
    return list(zip(*columns, strict=True))


def test_it_describes_the_shards(folder: Path) -> None:
    calls: list[tuple[int, int]] = []
    result = fastpack.write_manifest(folder, eos_token_id=9, progress=lambda *call: calls.append(call))
    assert said(result.path) == [("a.bin", 5, 5, 3), ("b.npy", 5, 5, 2), ("c.npy", 2, 4, 2), ("d.npy", 3, 3, 3)]
    assert (result.shards, result.tokens, result.documents) == (4, 17, 10)
    assert result.bytes == sum(path.stat().st_size for path in folder.iterdir() if path.suffix in (".npy", ".bin"))
    assert result.dtypes == ["int64", "uint16", "uint32"]
    assert not result.checksums
    assert not result.kept_existing
    assert calls == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert result.manifest_bytes == (folder / "manifest.fpm").stat().st_size
    assert said(fastpack.write_manifest(folder, folder / "deep.fpm", file_pattern="**/*.npy").path)[3] == (
        "more/e.npy",
        0,
        0,
        -1,
    )


def test_bytes_do_not_depend_on_threads(folder: Path) -> None:
    pytest.importorskip("xxhash")
    for number in range(200):
        np.save(folder / f"x{number}.npy", np.arange(number, dtype=np.uint16))
    written = set()
    for threads, options in itertools.product((1, 7), ({}, {"eos_token_id": 9, "checksums": True})):
        result = fastpack.write_manifest(folder, num_threads=threads, if_exists="overwrite", **options)
        data = (folder / "manifest.fpm").read_bytes()
        written.add((bool(options), data[56:]))  # behind the time of writing
        assert result.shards == 204
    assert len(written) == 2


def test_checksums_are_those_of_the_files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    xxhash = pytest.importorskip("xxhash")
    monkeypatch.setattr(building, "_READ_BYTES", 24)  # so that headers, tokens and tails are read in many pieces
    with (folder / "b.npy").open("ab") as file:
        file.write(b"a tail of more than one piece, behind the tokens")
    result = fastpack.write_manifest(folder, checksums=True, eos_token_id=9)
    assert result.documents == 10
    found = Manifest(result.path)
    for number, name in enumerate(found.names()):
        assert found.checksums[number].tobytes() == xxhash.xxh3_128((folder / name).read_bytes()).digest()


def test_the_manifest_is_in_the_folder_or_above(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    above = fastpack.write_manifest(folder, tmp_path / "data" / "all.fpm", file_pattern="*.npy")
    assert [row[0] for row in said(above.path)] == ["shards/b.npy", "shards/c.npy", "shards/d.npy"]
    dataset = fastpack.MemoryMappedDataset(above.path, 5, "shards/b.npy")
    assert dataset[0]["labels"].tolist() == [2, 9, 3, 9]
    with pytest.raises(ValueError, match="because it contains relative paths"):
        fastpack.write_manifest(folder, folder / "more" / "manifest.fpm")
    with pytest.raises(ValueError, match=r"must end in \.fpm"):
        fastpack.write_manifest(folder, folder / "manifest.npy")
    monkeypatch.chdir(folder)
    assert [row[0] for row in said(fastpack.write_manifest(".").path)] == ["a.bin", "b.npy", "c.npy", "d.npy"]
    assert fastpack.MemoryMappedDataset("manifest.fpm", 5)._files[0].path == "b.npy"


def test_an_existing_manifest_is_kept_or_replaced(folder: Path) -> None:
    first = fastpack.write_manifest(folder, file_pattern="*.bin", eos_token_id=9)
    with pytest.raises(TargetExists):
        fastpack.write_manifest(folder)
    kept = fastpack.write_manifest(folder, if_exists="skip")
    assert (kept.kept_existing, kept.shards, kept.documents) == (True, 1, first.documents)
    assert fastpack.write_manifest(folder, if_exists="overwrite").shards == 4


def test_errors_match_those_of_the_dataset(folder: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"No files matching '\*\.tokens'"):
        fastpack.write_manifest(folder, file_pattern="*.tokens")
    with pytest.raises(FileNotFoundError, match=r"'\*\.npy', '\*\.bin', '\*\.pbin' or '\*\.ds'"):
        fastpack.write_manifest(folder.parent)
    with pytest.raises(ValueError, match=r"dtype=uint16 is for \.bin shards"):
        fastpack.write_manifest(folder, file_pattern="*.npy", dtype="uint16")
    with pytest.raises(ValueError, match="dtype 'tokens' is unknown"):
        fastpack.write_manifest(folder, dtype="tokens")
    (folder / "z.bin").touch()
    with pytest.raises(ValueError, match=r"cannot mmap an empty file: .*z\.bin"):
        fastpack.write_manifest(folder)
    (folder / "z.bin").unlink()
    (folder / "z.npy").write_bytes((folder / "b.npy").read_bytes()[:-1])
    with pytest.raises(FormatError, match=r"z\.npy: at byte 137"):
        fastpack.write_manifest(folder)
    np.save(folder / "z.npy", np.zeros(3, np.complex128))
    with pytest.raises(JobError, match=r"z\.npy: the dtype complex128 cannot be in a manifest"):
        fastpack.write_manifest(folder)
    assert not list(folder.glob("*.fpm*"))


def test_headerless_shards_have_the_given_dtype(folder: Path) -> None:
    (folder / "a.bin").write_bytes(np.arange(8, dtype=np.uint16).tobytes())
    assert fastpack.write_manifest(folder, folder / "guess.fpm", file_pattern="*.bin").dtypes == ["uint32"]
    assert fastpack.write_manifest(folder, folder / "u2.fpm", file_pattern="*.bin", dtype="uint16").dtypes == ["uint16"]
    dataset = fastpack.MemoryMappedDataset(folder / "u2.fpm", 8, "*.bin")
    assert dataset[0]["labels"].tolist() == [*range(1, 8)]
    (folder / "metadata.yaml").write_text("tokenized_info: {dtype: uint16}")
    said_so = fastpack.write_manifest(folder, file_pattern="*.bin", dtype="metadata")
    assert said_so.dtypes == ["uint16"]
    assert said_so.warnings == []
