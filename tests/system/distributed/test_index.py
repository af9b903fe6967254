"""`index` by ranks gives the bytes, warnings and errors of a local run."""

from __future__ import annotations

import json
import random
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ranks import run, run_and_kill

from fastpack.cli import main
from fastpack.distributed.index_tasks import collect_index, plan_index
from fastpack.distributed.plan import clear
from fastpack.distributed.ranks import run_rank
from fastpack.documents.create_index import create_raw_index
from fastpack.documents.create_indices import create_raw_indices
from fastpack.errors import JobError

LINES = st.sampled_from([b'{"a": 1}', b"", b"{torn", b"12", b'"\xff"', b'{"text": "gr\xc3\xbcn"}', b" " * 70])


def outcome(work: Callable[[], Any]) -> tuple[Any, ...]:
    """Return the result, or the error with its notes, and the warnings."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            result = [(one.entries, one.dropped, one.bytes, one.written) for one in work()]
        except ValueError as error:
            result = [type(error), str(error), error.__notes__]
    return result, [str(warning.message) for warning in seen]


def run_distributed(
    source: Any, target: Path | None, drop: bool, validate: bool, n_bytes: int | None, size: int
) -> Any:
    plan = plan_index(source, target, validate=validate, bytes_per_task=n_bytes)
    for rank in range(size):
        run_rank(plan, rank, size)
    results = collect_index(plan, drop_faulty_entries=drop)
    clear(plan)
    return results


@settings(deadline=None, max_examples=80)
@given(st.lists(LINES, max_size=40), st.booleans(), st.booleans(), st.booleans(), st.integers(1, 300))
def test_any_lines(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], ends: bool, drop: bool, validate: bool, n_bytes: int
) -> None:
    folder = tmp_path_factory.mktemp("index")
    source = folder / "a.jsonl"
    source.write_bytes(b"\n".join(lines) + b"\n" * ends)
    n_bytes = max(n_bytes, source.stat().st_size // 5)
    options = {"validate": validate, "drop_faulty_entries": drop}
    local = outcome(lambda: [create_raw_index(source, folder / "local.idx", **options)])
    assert outcome(lambda: run_distributed(source, folder / "distributed.idx", drop, validate, n_bytes, 2)) == local
    assert (folder / "distributed.idx").exists() == (folder / "local.idx").exists()
    if (folder / "distributed.idx").exists():
        assert (folder / "distributed.idx").read_bytes() == (folder / "local.idx").read_bytes()


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    rng = random.Random(0)
    for name, n_lines in {"a": 3000, "b": 1, "c/d": 800}.items():
        path = tmp_path / "in" / f"{name}.jsonl"
        path.parent.mkdir(exist_ok=True, parents=True)
        lines = (json.dumps({"text": "x" * rng.randrange(300)}) if k % 50 else "{oops" for k in range(1, n_lines + 1))
        path.write_text("\n".join(lines))
    return tmp_path / "in"


def test_several_files(corpus: Path) -> None:
    local = outcome(lambda: create_raw_indices(corpus, drop_faulty_entries=True))
    bytes_of = {path: path.read_bytes() for path in corpus.rglob("*.idx")}
    assert len(bytes_of) == 3
    for path in bytes_of:
        path.unlink()
    assert outcome(lambda: run_distributed(corpus, None, True, True, 50_000, 3)) == local
    assert {path: path.read_bytes() for path in corpus.rglob("*.idx")} == bytes_of
    assert not list(corpus.rglob("*.parts"))


def test_command_line(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["index", str(corpus / "a.jsonl"), "--json"]
    command = [*words, "--index-path", str(tmp_path / "distributed.idx"), "--task-bytes", "100000"]
    assert main([*words, "--index-path", str(tmp_path / "local.idx")]) == 1
    error = capsys.readouterr().err
    assert "line 50 at byte" in error
    for rank in "01":
        assert main([*command, "--rank", rank, "--world-size", "2"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["left"] == 0
    assert main([*command, "--collect"]) == 1
    assert capsys.readouterr().err == error
    assert not (tmp_path / "distributed.idx").exists()
    assert main([*words, "--index-path", str(tmp_path / "local.idx"), "--drop-faulty"]) == 0
    local = capsys.readouterr()
    assert main([*command, "--collect", "--drop-faulty"]) == 0  # the tasks do not depend on it
    collected = capsys.readouterr()
    assert {**json.loads(collected.out), "path": 0} == {**json.loads(local.out), "path": 0}
    assert collected.err == local.err
    assert (tmp_path / "distributed.idx").read_bytes() == (tmp_path / "local.idx").read_bytes()
    assert not (tmp_path / "distributed.idx.parts").exists()
    assert main([*command, "--collect", "--repair-legacy"]) == 2


def test_changed_source_is_detected(corpus: Path) -> None:
    source = corpus / "a.jsonl"
    plan = plan_index(source, bytes_per_task=100_000)
    run_rank(plan, 0, 1)
    source.write_text(source.read_text().replace("{oops", '"oop"'))
    with pytest.raises(JobError, match="changed"):
        collect_index(plan, drop_faulty_entries=True)
    with pytest.raises(JobError, match="are not done"):  # as in a new command
        collect_index(plan_index(source, bytes_per_task=100_000))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_killed_ranks_can_be_rerun(tmp_path: Path, seed: int) -> None:
    line = json.dumps({"text": "x" * 300}) + "\n"
    (tmp_path / "a.jsonl").write_text(line * 60_000)
    create_raw_index(tmp_path / "a.jsonl", tmp_path / "local.idx")
    words = ["index", "a.jsonl", "--task-bytes", "150000"]
    assert run_and_kill(words, tmp_path, 3, kills=4, seed=seed) > 0
    collected = run([*words, "--collect"], tmp_path)
    assert collected.returncode == 0, collected.stderr
    assert (tmp_path / "a.idx").read_bytes() == (tmp_path / "local.idx").read_bytes()
