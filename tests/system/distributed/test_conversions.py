"""`convert` by ranks: every format, shards, changed sources, ids that do not fit, and existing outputs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import Cli
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fastpack
from fastpack import ConvertResult, JobError
from fastpack.distributed.convert_tasks import collect_conversion, plan_conversion
from fastpack.distributed.ranks import run_rank
from fastpack.tokens.formats import FORMATS, format_named

WRITTEN = [row.name for row in FORMATS if row.create is not None]


def write(path: Path, documents: list[list[int]], size: int = 2) -> Path:
    with fastpack.PackedWriter(path, size, if_exists="overwrite") as writer:
        writer.append_many([t for document in documents for t in document], [len(document) for document in documents])
    return path


def distribute(*arguments: Any, n_ranks: int = 2, **options: Any) -> ConvertResult:
    plan = plan_conversion(*arguments, **options)
    for rank in range(n_ranks):
        run_rank(plan, rank, n_ranks)
    return collect_conversion(plan)


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file() and ".parts/" not in str(path))
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


DOCUMENTS = [[5, 6, 7, 0], [0], [65_000, 9, 9, 0], [*range(1, 29), 0], [12, 0], [3, 0], [4, 4, 4, 0], [8, 0]]


@pytest.mark.parametrize("shard_tokens", [None, 9])
@pytest.mark.parametrize("target", WRITTEN)
def test_every_format(tmp_path: Path, target: str, shard_tokens: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: 1.0)  # which litdata records
    packed = write(tmp_path / "a.pbin", DOCUMENTS)
    for source in WRITTEN:
        path = fastpack.convert(packed, tmp_path / f"in_{source}" / "a", format=source, shard_tokens=11).outputs
        given = {"source_format": source, "dtype": "uint16" if source == "bin" else None, "eos_token_id": 0}
        options = {"format": target, "shard_tokens": shard_tokens, **given}
        name = f"b{''.join(format_named(target).suffixes[:1])}"
        folders = tmp_path / f"{source}_one", tmp_path / f"{source}_tasks"
        one = fastpack.convert(path, folders[0] / name, **options)
        many = distribute(path, folders[1] / name, bytes_per_task=13, **options)
        assert contents(folders[1]) == contents(folders[0])
        assert [Path(path).relative_to(folders[1]) for path in many.outputs] == [
            Path(path).relative_to(folders[0]) for path in one.outputs
        ]
        assert (many.n_documents, many.n_tokens, many.dtype) == (one.n_documents, one.n_tokens, one.dtype)


@given(
    documents=st.lists(st.lists(st.integers(0, 255), max_size=9), max_size=25),
    sizes=st.tuples(st.sampled_from([1, 2, 4]), st.sampled_from([1, 2, 4])),
    n_bytes=st.integers(1, 200),
    target=st.sampled_from(["pbin", "datatrove", "megatron", "mds"]),
)
@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_documents_and_task_sizes(
    tmp_path_factory: pytest.TempPathFactory, documents: Any, sizes: tuple[int, int], n_bytes: int, target: str
) -> None:
    folder = tmp_path_factory.mktemp("x")
    paths = [write(folder / f"{size}_{at}.pbin", documents[at::2], size) for at, size in enumerate(sizes)]
    one = fastpack.convert(paths, folder / "one" / "b", format=target)
    many = distribute(paths, folder / "many" / "b", format=target, bytes_per_task=n_bytes, n_ranks=3)
    assert contents(folder / "many") == contents(folder / "one")
    assert many.n_empty_dropped == one.n_empty_dropped


@pytest.mark.parametrize("late", [False, True])
def test_a_changed_source_is_named(tmp_path: Path, late: bool) -> None:
    source = fastpack.convert(write(tmp_path / "a.pbin", DOCUMENTS), tmp_path / "a", format="megatron").output
    plan = plan_conversion(source, tmp_path / "b.ds", bytes_per_task=30)
    if late:
        run_rank(plan, 0, 1)
    os.utime(f"{source}.idx", ns=(1, 1))
    with pytest.raises(JobError, match=r"a\.idx has changed since the job was planned"):
        collect_conversion(plan) if late else run_rank(plan, 0, 1)
    assert not (tmp_path / "b.ds").exists()


def test_an_id_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    source = write(tmp_path / "a.pbin", [[1, 0], [70_000, 0]], 4)
    plan = plan_conversion(source, tmp_path / "b.bin", format="nanogpt", bytes_per_task=2)
    with pytest.raises(JobError, match="token 70000 at position 2 does not fit uint16: nanogpt stores uint16"):
        run_rank(plan, 0, 1)
    assert not (tmp_path / "b.bin").exists()


def test_the_tokenizer_and_existing_outputs(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "hello"}\n{"text": "world"}\n')
    source = fastpack.pack(tmp_path / "a.jsonl", tmp_path / "a.pbin", tokenizer="bytes", num_workers=1).path
    result = distribute(source, tmp_path / "b.ds", shard_tokens=6)
    assert [fastpack.read_fingerprint(path) for path in result.outputs] == [fastpack.read_fingerprint(source)] * 2
    with pytest.raises(FileExistsError):
        plan_conversion(source, tmp_path / "b.ds", shard_tokens=6)
    plan = plan_conversion(source, tmp_path / "b.ds", shard_tokens=6, if_exists="skip")
    assert not plan.needed
    assert collect_conversion(plan, if_exists="skip").outputs == result.outputs
    with pytest.raises(ValueError, match="pass eos_token_id"):
        np.save(tmp_path / "raw.npy", np.arange(9, dtype=np.uint16))
        plan_conversion(tmp_path / "raw.npy", tmp_path / "c.pbin")


def test_the_commands_of_a_rank_and_of_the_last_step(tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "a.pbin", DOCUMENTS)
    words = ["convert", "a.pbin", "-o", "b.npy", "--shard-tokens", "20", "--task-bytes", "30"]
    assert cli(*words, "--rank", 0, "--world-size", 1).out.startswith("rank 0 of 1: 4 tasks done; all ranks are done")
    assert "b.npy: npy: 3 shards, 8 documents, 48 tokens of uint16" in cli(*words, "--collect").out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.pbin", *(f"b_0000{k}.npy" for k in range(3))]
