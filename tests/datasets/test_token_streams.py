"""Windows of the token files of every format are those of a packed file with the same tokens."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from command_line import Cli

import fastpack
from fastpack.errors import DataWarning, FormatError
from fastpack.tokens.formats import FORMATS, format_named
from fastpack.tokens.interop_formats import INTEROP_FORMATS, output_path

NAMES = [row.name for row in FORMATS if row.create is not None]
LENGTHS = [5, 1, 90, 33, 2, 64, 300, 7] * 3
TOKENS = np.random.default_rng(0).integers(1, 30_000, sum(LENGTHS))


def write(folder: Path, name: str, tokens: npt.NDArray[np.int64] = TOKENS, lengths: list[int] = LENGTHS) -> Path:
    """Write documents in a format; return the path that `open_tokens` accepts."""
    row = format_named(name)
    assert row.create is not None
    folder.mkdir(exist_ok=True)
    path = folder / f"a{''.join(row.suffixes[:1])}"
    with row.create(path, np.dtype("uint16"), "overwrite") as writer:
        writer.append_many(tokens, lengths)
    return Path(output_path(name, path))


def options_of(name: str) -> dict[str, Any]:
    return {"nanogpt": {"format": "nanogpt"}, "bin": {"dtype": "uint16"}}.get(name, {})


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    return write(tmp_path / "packed", "pbin")


@pytest.mark.parametrize("reuse", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_blocks_are_those_of_a_packed_file(name: str, reuse: bool, packed: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "other", name)
    with (
        fastpack.PackedMemMapDatasetContinuous(packed, "text", 32, reuse, eos_token_id=7) as expected,
        fastpack.PackedMemMapDatasetContinuous(path, "text", 32, reuse, eos_token_id=7, **options_of(name)) as found,
    ):
        assert len(found) == len(expected) > 40
        indices = np.random.default_rng(1).permutation(len(expected))
        for dataset in (found, pickle.loads(pickle.dumps(found))):
            for output in (["input_ids", "labels", "doc_ids"], None):
                for key, rows in expected.batch(indices, outputs=output).items():
                    np.testing.assert_array_equal(dataset.batch(indices, outputs=output)[key], rows)
            for index in (0, 5, -1):
                np.testing.assert_array_equal(dataset[index]["text"], expected[index]["text"])
            assert [block.tolist() for block in dataset[3:9]["text"]] == [
                block.tolist() for block in expected[3:9]["text"]
            ]
            dataset.will_need(indices[:4])
            dataset.check_unchanged()


@pytest.mark.parametrize("name", ["mds", "litdata", "npy"])
def test_blocks_cross_files(name: str, packed: Path, tmp_path: Path) -> None:
    folder = tmp_path / "many"
    if name == "npy":
        folder.mkdir()
        for number, some in enumerate(np.split(TOKENS.astype(np.uint16), [3, 4, 700])):
            np.save(folder / f"{number}.npy", some)
    else:
        fastpack.convert(packed, folder, format=name)
    expected = fastpack.PackedMemMapDatasetContinuous(packed, "text", 16, True)
    found = fastpack.PackedMemMapDatasetContinuous(folder, "text", 16, True)
    np.testing.assert_array_equal(found.batch(range(len(found)))["text"], expected.batch(range(len(expected)))["text"])


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("pbin", "mds")])
def test_windows_are_those_of_npy_shards(name: str, tmp_path: Path) -> None:
    shards = tmp_path / "shards"
    shards.mkdir()
    np.save(shards / "a.npy", TOKENS.astype(np.uint16))
    path = write(tmp_path / "other", name)
    expected = fastpack.MemoryMappedDataset(shards, 33, pack_sequences=True, eos_token_id=7)
    for io in ("mmap", "pread"):
        options = options_of(name)
        found = fastpack.MemoryMappedDataset(path, 33, pack_sequences=True, eos_token_id=7, io=io, **options)
        for dataset in (found, pickle.loads(pickle.dumps(found))):
            assert len(dataset) == len(expected)
            for key, rows in expected.batch(range(len(expected))).items():
                np.testing.assert_array_equal(dataset.batch(range(len(expected)))[key], rows)
            np.testing.assert_array_equal(dataset[3]["labels"], expected[3]["labels"])
            dataset.check_unchanged()


def test_mds_has_no_shards(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="PackedMemMapDatasetContinuous"):
        fastpack.MemoryMappedDataset(write(tmp_path / "mds", "mds"), 8)


def test_documents_of_a_stream(packed: Path, tmp_path: Path) -> None:
    expected = fastpack.PackedMemMapDatasetContinuous(packed, "text", 8, True, load_index=True)
    found = fastpack.PackedMemMapDatasetContinuous(write(tmp_path / "o", "megatron"), "text", 8, True, load_index=True)
    np.testing.assert_array_equal(found.index_base, expected.index_base)
    with pytest.raises(ValueError, match="document boundaries are unknown"):
        fastpack.PackedMemMapDatasetContinuous(write(tmp_path / "p", "npy"), "text", 8, True, load_index=True)


def test_a_replaced_file_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path / "o", "datatrove")
    with fastpack.PackedMemMapDatasetContinuous(path, "text", 8, True) as dataset:
        state = pickle.dumps(dataset)
        write(tmp_path / "o", "datatrove", TOKENS[:-7], LENGTHS[:-1])
        with pytest.raises(FormatError):
            dataset.check_unchanged()
        with pytest.raises(FormatError, match="the one the dataset was made of"):
            pickle.loads(state)


def test_a_file_shorter_than_a_block(tmp_path: Path) -> None:
    path = write(tmp_path / "o", "megatron", TOKENS[:5], [5])
    with pytest.raises(ValueError, match=r"Block size \(8\) is larger than the total number of tokens \(5\)"):
        fastpack.PackedMemMapDatasetContinuous(path, "text", 8, True)


@pytest.mark.parametrize("name", [row.name for row in INTEROP_FORMATS if row.name != "nanogpt"])
def test_bench_reads_them(name: str, tmp_path: Path, cli: Cli) -> None:
    path = write(tmp_path / "other", name)
    words = ("--kernels", "cython", "--seq-len", "32", "--batch-size", "4", "--seconds", "0.01")
    assert cli.json("bench", path, *words)["samples"] == (len(TOKENS) - 33) // 32 + 1


def test_a_guessed_dtype_is_a_warning(tmp_path: Path) -> None:
    path = write(tmp_path / "o", "bin", TOKENS[:1500], [1500])
    with pytest.warns(DataWarning, match="uint16"):
        fastpack.PackedMemMapDatasetContinuous(path, "text", 8, True)
