"""`pack` by ranks gives the bytes of a local run, also when ranks are killed."""

from __future__ import annotations

import gzip
import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pack_sources import settings_of
from ranks import run, run_and_kill

from fastpack.cli import main
from fastpack.distributed.pack_tasks import collect_pack, plan_pack
from fastpack.distributed.plan import clear
from fastpack.distributed.ranks import run_rank
from fastpack.documents.create_index import create_raw_index
from fastpack.documents.raw_index import write_raw_index
from fastpack.errors import JobError
from fastpack.packing.pack import pack_each, pack_encoded_data
from fastpack.packing.settings import Source
from fastpack.packing.source_batches import lines_before, read_batches, read_chunk


def write_lines(path: Path, n_lines: int, seed: int) -> None:
    rng = random.Random(seed)
    path.parent.mkdir(exist_ok=True)
    lines = []
    for number in range(n_lines):
        text: Any = "".join(rng.choices("abcü ", k=rng.randrange(200)))
        lines.append("{torn" if number % 41 == 3 else json.dumps({"text": None if number % 29 == 1 else text}))
    data = "\n".join(lines).encode() + b"\n" * rng.randrange(2)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


def config_of(src: Any, dst: Path | None) -> dict[str, Any]:
    given = {"src_path": src, "dst_path": dst, "jq_pattern": ".text", "num_cpus": 1, "eod_token": "<|endoftext|>"}
    return {"settings": given, "tokenizer": {"variant_key": "builtin_bytes", "config": {}}}


@pytest.fixture
def corpus(tmp_path: Path) -> list[Path]:
    """Write indexed, unindexed, compressed, empty and small files."""
    paths = [tmp_path / "in" / name for name in ("a.jsonl", "b.jsonl", "c.jsonl.gz", "d.jsonl", "e.jsonl", "f.jsonl")]
    for seed, (path, n_lines) in enumerate(zip(paths, (400, 300, 100, 0, 3, 5), strict=True)):
        write_lines(path, n_lines, seed)
    with pytest.warns(UserWarning, match="faulty line"):
        create_raw_index(paths[0], drop_faulty_entries=True)
    return paths


@pytest.mark.parametrize("world_size", [1, 3])
@pytest.mark.parametrize("bytes_per_task", [3000, 10_000, None])
def test_concatenated_tasks_equal_a_local_run(
    corpus: list[Path], tmp_path: Path, world_size: int, bytes_per_task: int | None
) -> None:
    local = pack_encoded_data(config_of(corpus, tmp_path / "local.pbin"))
    plan = plan_pack(settings_of(config_of(corpus, tmp_path / "distributed.pbin")), bytes_per_task=bytes_per_task)
    assert bytes_per_task is None or len(plan.tasks) > 4
    for rank in reversed(range(world_size)):
        run_rank(plan, rank, world_size)
    (distributed,) = collect_pack(plan)
    assert (tmp_path / "distributed.pbin").read_bytes() == (tmp_path / "local.pbin").read_bytes()
    assert distributed.skipped == local.skipped
    assert len(distributed.skipped) > 20
    assert (distributed.documents, distributed.tokens) == (local.documents, local.tokens)
    assert distributed.engine == local.engine
    clear(plan)
    assert not list(tmp_path.glob("*.parts"))


def test_per_source_output_files(corpus: list[Path], tmp_path: Path) -> None:
    local = pack_each(config_of(corpus, tmp_path / "local"))
    plan = plan_pack(settings_of(config_of(corpus, tmp_path / "distributed"), per_source=True), bytes_per_task=15000)
    run_rank(plan, 0, 1)
    distributed = collect_pack(plan)
    assert [result.skipped for result in distributed] == [result.skipped for result in local]
    for one in (tmp_path / "local").iterdir():
        assert one.read_bytes() == (tmp_path / "distributed" / one.name).read_bytes()
    (tmp_path / "distributed" / "b.pbin").unlink()
    clear(plan)
    settings = settings_of(config_of(corpus, tmp_path / "distributed"), per_source=True, if_exists="skip")
    plan = plan_pack(settings, bytes_per_task=15000)
    run_rank(plan, 0, 1)
    assert [result.kept_existing for result in collect_pack(plan, if_exists="skip")] == [
        True, False, True, True, True, True,
    ]  # fmt: skip
    assert (tmp_path / "distributed" / "b.pbin").read_bytes() == (tmp_path / "local" / "b.pbin").read_bytes()


def test_first_faulty_document_is_reported_as_in_a_local_run(corpus: list[Path], tmp_path: Path) -> None:
    for source in corpus[:2]:
        config = config_of([source], tmp_path / "x.pbin")
        with pytest.raises(ValueError, match=r"line \d+ at byte \d+") as local:
            pack_encoded_data(config, on_faulty="error")
        plan = plan_pack(settings_of(config, on_error="raise"), bytes_per_task=4000)
        with pytest.raises(JobError, match="failed") as distributed:
            run_rank(plan, 0, 1)
        assert str(local.value) in str(distributed.value)
        with pytest.raises(JobError, match="are not done"):
            collect_pack(plan)


LINES = st.binary(max_size=9).map(lambda line: line.replace(b"\n", b""))


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.binary(max_size=9).map(lambda line: line.replace(b"\n", b"")), max_size=30), st.booleans(), st.data()
)
def test_every_line_is_in_one_chunk(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], ends: bool, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("lines")
    text = b"\n".join(lines) + b"\n" * ends
    (folder / "a.jsonl").write_bytes(text)
    n_chunks = data.draw(st.integers(1, max(1, len(text) + 2)))
    create_raw_index(folder / "a.jsonl", validate=False)
    for source in (Source(str(folder / "a.jsonl"), None), Source(str(folder / "a.jsonl"), str(folder / "a.idx"))):
        whole = [row for piece in read_batches(source, 0, 1 << 20) for row in piece.batch.rows.tolist()]
        found = []
        for chunk in range(n_chunks):
            n_before = len(found)
            for piece in read_chunk(source, chunk, n_chunks, 8):
                assert lines_before(source, chunk, n_chunks) == n_before
                assert piece.first_row == len(found) - n_before
                assert piece.lines.tolist() == list(range(piece.first_row + 1, piece.next_row + 1))
                found += piece.batch.rows.tolist()
        assert found == whole


def test_shuffled_index_keeps_its_order(tmp_path: Path) -> None:
    rows = [(30, 9), (0, 9), (20, 9), (10, 9)]
    (tmp_path / "a.jsonl").write_text("".join(f'"line {k:02}"\n' for k in range(4)))
    write_raw_index(tmp_path / "a.idx", rows)
    source = Source(str(tmp_path / "a.jsonl"), str(tmp_path / "a.idx"))
    for n_chunks in range(1, 9):
        pieces = [piece for chunk in range(n_chunks) for piece in read_chunk(source, chunk, n_chunks, 1)]
        assert [tuple(row) for piece in pieces for row in piece.batch.rows.tolist()] == rows


def test_command_line(corpus: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["pack", *map(str, corpus), "--tokenizer", "bytes", "--json"]
    distributed = [*words, "-o", str(tmp_path / "distributed.pbin"), "--task-bytes", "9000"]
    assert main([*words, "-o", str(tmp_path / "local.pbin")]) == 0
    local = json.loads(capsys.readouterr().out)
    assert main([*distributed, "--rank", "1", "--world-size", "2"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["rank"], result["world_size"], result["done_before"]) == (1, 2, 0)
    assert result["left"] > 0
    assert main([*distributed, "--collect"]) == 1
    assert f"{result['left']} of " in capsys.readouterr().err
    assert main([*distributed, "--rank", "0", "--world-size", "2"]) == 0
    assert json.loads(capsys.readouterr().out)["left"] == 0
    assert main([*distributed, "--collect"]) == 0
    collected = json.loads(capsys.readouterr().out)
    assert {**collected, "path": 0, "seconds": 0} == {**local, "path": 0, "seconds": 0}
    assert (tmp_path / "distributed.pbin").read_bytes() == (tmp_path / "local.pbin").read_bytes()
    assert not (tmp_path / "distributed.pbin.parts").exists()
    assert main([*distributed, "--rank", "0", "--world-size", "2"]) == 1
    assert "exists. Pass --force to overwrite it." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--world-size 2", "only with --rank, --collect or"),
        ("--task-bytes 2", "only with --rank, --collect or"),
        ("--rank 0", "needs --world-size"),
        ("--rank 2 --world-size 2", "rank 2 of 2"),
        ("--rank 0 --world-size 2 --collect", "cannot be combined with --rank"),
        ("--collect --world-size 2", "takes no --world-size"),
        ("--collect --dry-run", "--dry-run: not with"),
        ("--rank 0 --world-size 1 --resume", "--resume: not with"),
        ("--collect --task-bytes 0", "at least 1"),
    ],
)
def test_conflicting_options(words: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pack", "a.jsonl", "--tokenizer", "bytes", *words.split()]) == 2
    assert message in capsys.readouterr().err


def test_rank_from_slurm(corpus: list[Path], tmp_path: Path) -> None:
    words = ["pack", "in", "--tokenizer", "bytes", "-o", "distributed.pbin", "--task-bytes", "9000", "--json"]
    done = run([*words, "--rank", "slurm"], tmp_path, {"SLURM_PROCID": "1", "SLURM_NTASKS": "3"})
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["rank"], result["world_size"]) == (1, 3)


@pytest.mark.parametrize("seed", [pytest.param(n, marks=pytest.mark.long if n else pytest.mark.slow) for n in range(3)])
def test_killed_ranks_can_be_rerun(tmp_path: Path, seed: int) -> None:
    for number in range(3):
        write_lines(tmp_path / "in" / f"{number}.jsonl", 20_000, number)
    pack_encoded_data(config_of([str(tmp_path / "in")], tmp_path / "local.pbin"))
    words = ["pack", "in", "--tokenizer", "bytes", "-o", "distributed.pbin", "--task-bytes", "30000"]
    assert run_and_kill(words, tmp_path, 2 + seed, kills=4, seed=seed) > 0
    collected = run([*words, "--collect"], tmp_path)
    assert collected.returncode == 0, collected.stderr
    assert (tmp_path / "distributed.pbin").read_bytes() == (tmp_path / "local.pbin").read_bytes()
    assert not list(tmp_path.glob("*.parts"))


def test_interrupted_rank_reports_how_to_continue(corpus: list[Path], tmp_path: Path) -> None:
    plan = plan_pack(settings_of(config_of(corpus, tmp_path / "distributed.pbin")), bytes_per_task=9000)

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as stopped:
        run_rank(plan, 0, 1, stop)
    (note,) = stopped.value.__notes__
    assert re.fullmatch(r"stopped at \d+ %; run the same rank again to continue", note)
    assert run_rank(plan, 0, 1).done_before == 1
