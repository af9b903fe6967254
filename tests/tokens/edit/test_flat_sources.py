"""Editing operations on files without document boundaries, whose documents end with a given token."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import Cli
from token_formats import path_of, read_tokens, write_tokens

import fastpack
from fastpack.distributed.edit_tasks import collect_edit, plan_merge, plan_shuffling
from fastpack.distributed.ranks import run_rank
from fastpack.tokens.formats import FORMATS, format_named

FLAT = [row.name for row in FORMATS if row.create is not None and not row.stores_documents]
EOS = 0
RNG = np.random.default_rng(0)
DOCUMENTS = [[*RNG.integers(1, 60_000, number % 9).tolist(), EOS] for number in range(600)]

OPERATIONS: dict[str, Any] = {
    "merge": lambda source, target, **options: fastpack.merge_packed_data([source], target, **options),
    "filter": lambda *paths, **options: fastpack.filter_packed_data(*paths, fastpack.KeepRules(lacks=(7,)), **options),
    "shuffle": lambda *paths, **options: fastpack.shuffle_tokenized_data(*paths, seed=1, **options),
    "chunk": lambda source, target, **options: fastpack.create_shuffled_dataset_chunk(
        [source], target, 1, 3, global_seed=1, **options
    ),
}


@pytest.fixture(params=FLAT)
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    return write_tokens(tmp_path / "in", request.param, DOCUMENTS, "uint16")


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    return write_tokens(tmp_path, "pbin", DOCUMENTS, "uint16")


@pytest.mark.parametrize("operation", OPERATIONS)
def test_eos_gives_the_documents(source: Path, packed: Path, tmp_path: Path, operation: str) -> None:
    edit = OPERATIONS[operation]
    expected = edit(packed, tmp_path / "expected.pbin")
    with pytest.raises(ValueError, match="does not store document boundaries: pass eos_token_id, the token that ends"):
        edit(source, tmp_path / "out.pbin")
    planned = edit(source, tmp_path / "out.pbin", eos_token_id=EOS, dry_run=True)
    assert not (tmp_path / "out.pbin").exists()
    result = edit(source, tmp_path / "out.pbin", eos_token_id=EOS)
    assert (tmp_path / "out.pbin").read_bytes() == (tmp_path / "expected.pbin").read_bytes()
    assert (result.documents, result.tokens, result.bytes) == (expected.documents, expected.tokens, expected.bytes)
    assert (planned.documents, planned.tokens, planned.bytes) == (expected.documents, expected.tokens, expected.bytes)


def test_several_sources_and_a_folder_of_shards(tmp_path: Path, packed: Path) -> None:
    (tmp_path / "shards").mkdir()
    for number in range(3):
        np.save(tmp_path / "shards" / f"{number}.npy", np.concatenate(DOCUMENTS).astype(np.uint16))
    result = fastpack.shuffle_tokenized_data(tmp_path / "shards", tmp_path / "s.pbin", seed=1, eos_token_id=EOS)
    assert sorted(read_tokens(result.path)) == sorted(DOCUMENTS * 3)  # type: ignore[arg-type]
    shards = sorted((tmp_path / "shards").iterdir())
    merged = fastpack.merge_packed_data([packed, *shards], tmp_path / "m.idx", eos_token_id=EOS)
    assert read_tokens(merged.path) == DOCUMENTS * 4  # type: ignore[arg-type]


def test_tokens_after_the_last_eos_are_a_document(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([1, 0, 2, 3], np.uint32))
    for operation in ("merge", "shuffle"):
        result = OPERATIONS[operation](tmp_path / "a.npy", tmp_path / f"{operation}.pbin", eos_token_id=0)
        assert sorted(read_tokens(result.path)) == [[1, 0], [2, 3]]


@pytest.mark.parametrize("operation", OPERATIONS)
def test_tokens_that_edits_do_not_read_are_refused(tmp_path: Path, operation: str) -> None:
    np.array([1, 0, 2, 0], np.uint16).tofile(tmp_path / "guess.bin")
    np.save(tmp_path / "float.npy", np.array([1, 0], np.float32))
    with (tmp_path / "odd.npy").open("wb") as file:
        np.lib.format.write_array(file, np.array([1, 0], np.uint16), (2, 0))
    for name, expected in (
        ("guess.bin", "convert it first, with dtype="),
        ("float.npy", "a flat array of integers: convert it first"),
        ("odd.npy", "a flat array of integers: convert it first"),
    ):
        with pytest.raises(fastpack.FormatError, match=expected):
            OPERATIONS[operation](tmp_path / name, tmp_path / "out.pbin", eos_token_id=0)
    assert not (tmp_path / "out.pbin").exists()


@pytest.mark.parametrize("name", FLAT)
def test_ranks_write_the_same_documents(tmp_path: Path, packed: Path, name: str) -> None:
    (tmp_path / "in").mkdir()
    source = write_tokens(tmp_path / "in", name, DOCUMENTS, "uint16")
    target = tmp_path / "out.pbin"
    options: dict[str, Any] = {"bytes_per_task": 1000, "if_exists": "overwrite"}
    plans = {
        "shuffle": lambda: plan_shuffling("shuffle pbin", [source], target, {"seed": 1, "eos_token_id": 0}, **options),
        "merge": lambda: plan_merge([source], target, eos_token_id=0, **options),
    }
    for operation, make in plans.items():
        plan = make()
        assert len(plan.tasks) > 2
        run_rank(plan, 0, 1)
        collect_edit(plan, if_exists="overwrite")
        expected = OPERATIONS[operation](packed, tmp_path / f"{operation}.pbin").path
        assert target.read_bytes() == Path(expected).read_bytes()


def test_the_commands(tmp_path: Path, packed: Path, cli: Cli) -> None:
    source = write_tokens(tmp_path, "llmc", DOCUMENTS, "uint16")
    chunk = ["-o", tmp_path / "c.pbin", "--chunk-id", 0, "--num-chunks", 2, "--seed", 1]
    for words in (
        ["merge", source, tmp_path / "m.pbin"],
        ["shuffle", source, tmp_path / "s.pbin", "--seed", 1],
        ["filter", source, tmp_path / "f.pbin", "--min-length", 1],
        ["chunk", source, *chunk],
    ):
        error = cli(*words, code=1).err
        assert "pass --eos-token-id" in error
        assert cli.json(*words, "--eos-token-id", 0)["documents"] == (300 if words[0] == "chunk" else 600)
    (tmp_path / "a.jsonl").write_text("{}\n")
    cli("shuffle", tmp_path / "a.jsonl", tmp_path / "b", "--eos-token-id", 0, code=2)


def test_a_raw_file_may_begin_like_json(tmp_path: Path, cli: Cli) -> None:
    np.save(tmp_path / "a.npy", np.array([1, 0], np.uint16))
    (tmp_path / "tokens.bin").write_bytes(np.array([ord("{"), 256 * 3, 0] * 1000, np.uint16).tobytes())
    error = cli("shuffle", tmp_path / "tokens.bin", tmp_path / "b.pbin", "--seed", 1, "--eos-token-id", 0, code=1).err
    assert "convert it first, with --dtype" in error


# ---- documents without tokens


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("name", [row.name for row in FORMATS if row.create is not None and row.stores_documents])
def test_empty_documents_are_dropped_and_counted(tmp_path: Path, name: str, operation: str) -> None:
    documents: list[list[int]] = [[], *([[1, 0], [], [], [2, 3, 0]] * 5), []]
    source = write_tokens(tmp_path, "pbin", documents, "uint16")
    target = path_of(tmp_path, name, "out")
    kept = read_tokens(OPERATIONS[operation](source, tmp_path / "expected.pbin").path)
    planned = OPERATIONS[operation](source, target, format=name, dry_run=True)
    result = OPERATIONS[operation](source, target, format=name)
    stored = kept if format_named(name).stores_empty else [document for document in kept if document]
    assert read_tokens(result.path, format=name, dtype="uint16" if name == "olmo" else None) == stored
    assert (result.documents, result.n_empty_dropped) == (len(stored), len(kept) - len(stored))
    assert (planned.documents, planned.n_empty_dropped) == (result.documents, result.n_empty_dropped)
    assert (planned.bytes, result.left_out) == (result.bytes, 0)


def test_ranks_drop_and_count_empty_documents(tmp_path: Path, cli: Cli) -> None:
    source = write_tokens(tmp_path, "pbin", [[], [1, 0], [], [2, 0]] * 50, "uint16")
    for words in (["shuffle", source, tmp_path / "s", "--seed", 1], ["merge", source, tmp_path / "m"]):
        words += ["--format", "mds", "--task-bytes", 64]
        cli(*words, "--rank", 0, "--world-size", 1)
        out = cli(*words, "--collect").out
        assert "100 documents, 200 tokens" in out
        assert "100 documents without tokens dropped" in out
        assert sorted(read_tokens(Path(str(words[2])))) == [[1, 0]] * 50 + [[2, 0]] * 50
