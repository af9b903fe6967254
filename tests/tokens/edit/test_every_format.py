"""Editing operations from and to every token format, compared by digest with the same operation on packed files."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import Cli

import fastpack
from fastpack.distributed.edit_tasks import collect_edit, plan_merge, plan_shuffling
from fastpack.distributed.ranks import run_rank
from fastpack.tokens.digest import token_digest
from fastpack.tokens.formats import FORMATS, format_named
from fastpack.tokens.interop_formats import FOLDERS, output_files

pytest.importorskip("xxhash", reason="digests need xxhash")

WRITABLE = [row.name for row in FORMATS if row.create is not None]
STORED = [name for name in WRITABLE if format_named(name).stores_documents]
EOS = 0
DOCUMENTS = [[number % 200 + 1] * (number % 7) + [EOS] for number in range(500)]


def path_of(folder: Path, name: str) -> Path:
    return folder / f"x{''.join(format_named(name).suffixes[:1])}"


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    with fastpack.PackedWriter(tmp_path / "source.pbin", 2) as writer:
        writer.append_many(np.concatenate(DOCUMENTS), list(map(len, DOCUMENTS)))
    return tmp_path / "source.pbin"


OPERATIONS: dict[str, Callable[..., fastpack.EditResult]] = {
    "merge": lambda source, target, **options: fastpack.merge_packed_data([source], target, **options),
    "filter": lambda *paths, **options: fastpack.filter_packed_data(
        *paths, fastpack.KeepRules(min_length=3), **options
    ),
    "filter by tokens": lambda *paths, **options: fastpack.filter_packed_data(
        *paths, fastpack.KeepRules(lacks=(7,)), **options
    ),
    "shuffle": lambda *paths, **options: fastpack.shuffle_tokenized_data(*paths, seed=1, **options),
    "chunk": lambda source, target, **options: fastpack.create_shuffled_dataset_chunk(
        [source], target, 1, 3, global_seed=1, **options
    ),
}


def digest_of(path: Any, name: str) -> str:
    dtype = "uint16" if name in ("bin", "olmo") else None
    with fastpack.open_tokens(path, format=name, dtype=dtype, eos_token_id=EOS) as tokens:
        return token_digest(tokens)


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("name", WRITABLE)
def test_the_same_documents_are_written_in_every_format(
    packed: Path, tmp_path: Path, name: str, operation: str
) -> None:
    expected = OPERATIONS[operation](packed, tmp_path / "expected.pbin")
    target = path_of(tmp_path, name)
    planned = OPERATIONS[operation](packed, target, format=name, dry_run=True)
    assert {path.name for path in tmp_path.iterdir()} == {"source.pbin", "expected.pbin"}
    result = OPERATIONS[operation](packed, target, format=name)
    assert digest_of(result.path, name) == digest_of(expected.path, "pbin")
    assert (result.documents, result.tokens) == (expected.documents, expected.tokens)
    files = [path for path in map(Path, output_files(name, result.path)) if path.name != "index.json"]
    assert result.bytes == sum(path.stat().st_size for path in files)
    assert replace(planned, written=True) == result


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("name", STORED)
def test_every_format_with_document_boundaries_is_a_source(
    packed: Path, tmp_path: Path, name: str, operation: str
) -> None:
    source = fastpack.convert(packed, tmp_path / "in", format=name).output
    result = OPERATIONS[operation](source, tmp_path / "out.pbin")
    expected = OPERATIONS[operation](packed, tmp_path / "expected.pbin")
    assert digest_of(result.path, "pbin") == digest_of(expected.path, "pbin")


@pytest.mark.parametrize("suffix", [".idx", ".ds", ".npy", ".bin", ".pbin"])
def test_the_suffix_of_the_target_names_its_format(packed: Path, tmp_path: Path, suffix: str) -> None:
    result = fastpack.merge_packed_data(packed, tmp_path / f"x{suffix}")
    names = {".idx": "megatron", ".ds": "datatrove"}
    assert fastpack.open_tokens(result.path).format == names.get(suffix, suffix[1:])


def test_several_files_are_merged_into_a_folder(packed: Path, tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    shutil.copy(packed, tmp_path / "more")
    for name in FOLDERS:
        result = fastpack.merge_packed_data([packed, tmp_path / "more"], tmp_path / name, format=name)
        assert (result.documents, result.sources) == (1000, 2)
        assert fastpack.merge_packed_data([tmp_path / name], tmp_path / f"{name}.pbin").documents == 1000
        (tmp_path / f"{name}.pbin").unlink()


@pytest.mark.parametrize("size", [1, 4])
@pytest.mark.parametrize("name", WRITABLE)
def test_tokens_of_other_sizes(tmp_path: Path, name: str, size: int) -> None:
    with fastpack.PackedWriter(tmp_path / "a.pbin", size) as writer:
        writer.append_many([1, 255, 0, 2, 0], [3, 2])
    target = path_of(tmp_path, name)
    if (name, size) == ("nanogpt", 4):
        with pytest.raises(ValueError, match="nanogpt stores uint16, and the tokens take 4 bytes"):
            fastpack.shuffle_tokenized_data(tmp_path / "a.pbin", target, seed=1, format=name)
        assert not target.exists()
        return
    for edit in (fastpack.shuffle_tokenized_data, fastpack.merge_packed_data):
        options = {"seed": 1} if edit is fastpack.shuffle_tokenized_data else {}
        result = edit(tmp_path / "a.pbin", target, format=name, if_exists="overwrite", **options)  # type: ignore[operator]
        dtype = {1: "uint8", 4: "uint32"}[size] if name == "olmo" else None
        dtype = {1: "uint16", 4: "uint32"}[size] if name == "bin" else dtype
        with fastpack.open_tokens(result.path, format=name, dtype=dtype, eos_token_id=0) as tokens:
            assert sorted(tokens.document(i).tolist() for i in range(2)) == [[1, 255, 0], [2, 0]]


def test_an_id_that_megatron_cannot_hold_is_refused(tmp_path: Path) -> None:
    with fastpack.PackedWriter(tmp_path / "a.pbin", 4) as writer:
        writer.append_many([1 << 31, 0], [2])
    with pytest.raises(ValueError, match="token 2147483648"):
        fastpack.merge_packed_data(tmp_path / "a.pbin", tmp_path / "a.idx")
    assert [path.name for path in tmp_path.iterdir()] == ["a.pbin"]


def test_a_target_that_is_a_source_is_refused(packed: Path, tmp_path: Path) -> None:
    source = fastpack.convert(packed, tmp_path / "in", format="megatron").output
    for target in ("in.idx", "in.bin", "in"):
        with pytest.raises(ValueError, match="must be different"):
            fastpack.shuffle_tokenized_data(source, tmp_path / target, if_exists="overwrite", format="megatron")


@pytest.mark.parametrize("name", WRITABLE)
def test_ranks_write_the_same_documents(packed: Path, tmp_path: Path, name: str) -> None:
    target = path_of(tmp_path, name)
    for plan, expected in (
        (
            plan_shuffling("shuffle pbin", [packed], target, {"seed": 1}, bytes_per_task=1000, format=name),
            OPERATIONS["shuffle"](packed, tmp_path / "s.pbin"),
        ),
        (
            plan_merge([packed], target, bytes_per_task=1000, format=name, if_exists="overwrite"),
            OPERATIONS["merge"](packed, tmp_path / "m.pbin"),
        ),
    ):
        assert len(plan.tasks) > 2
        run_rank(plan, 0, 1)
        result = collect_edit(plan, if_exists="overwrite")
        assert (result.documents, result.tokens) == (expected.documents, expected.tokens)
        assert digest_of(result.path, name) == digest_of(expected.path, "pbin")


def test_the_commands(packed: Path, tmp_path: Path, cli: Cli) -> None:
    found = cli.json("shuffle", packed, tmp_path / "s", "--seed", 1, "--format", "mds")
    assert (found["documents"], found["path"]) == (500, str(tmp_path / "s"))
    assert cli.json("merge", tmp_path / "s", packed, tmp_path / "m.idx")["documents"] == 1000
    assert cli.json("filter", tmp_path / "m", tmp_path / "f.ds", "--min-length", 3)["left_out"] > 0
    chunk = ["chunk", str(tmp_path / "m"), "-o", str(tmp_path / "c"), "--chunk-id", "0", "--num-chunks", "2"]
    assert cli.json(*chunk, "--format", "litdata", "--write-checksums")["documents"] == 500
    (tmp_path / "a.jsonl").write_text("{}\n")
    cli("shuffle", tmp_path / "a.jsonl", tmp_path / "b", "--format", "mds", code=2)
