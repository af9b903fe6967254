"""`merge`, `shuffle` and `chunk` by ranks: any documents, changed sources, errors and existing outputs."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest
from command_line import Cli
from distributed_sources import write_tokens
from hypothesis import given, settings
from hypothesis import strategies as st
from packed_files import packed_bytes

from fastpack import EditResult
from fastpack.cli import main
from fastpack.distributed import edit_tasks
from fastpack.distributed.edit_tasks import collect_edit, plan_merge, plan_shuffling
from fastpack.distributed.plan import clear
from fastpack.distributed.ranks import run_rank
from fastpack.errors import JobError
from fastpack.io import TargetExists
from fastpack.tokens.edit import merge


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_tokens(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


DOCUMENTS = st.lists(st.lists(st.integers(0, 255), max_size=9), max_size=25)


@settings(deadline=None, max_examples=30)
@given(
    documents=DOCUMENTS, more=DOCUMENTS, size=st.sampled_from([1, 2, 4]), n_tasks=st.integers(1, 12), seed=st.integers()
)
def test_any_documents_and_task_sizes(
    documents: list[list[int]],
    more: list[list[int]],
    size: int,
    n_tasks: int,
    seed: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("edit")
    one, two, target = folder / "a.pbin", folder / "b.pbin", folder / "distributed"
    for path, content in ((one, documents), (two, more)):
        path.write_bytes(packed_bytes(content, 5, size))
    expected = list(documents)
    random.Random(seed).shuffle(expected)
    n_bytes = -(-(one.stat().st_size + two.stat().st_size) // n_tasks)
    plan = plan_shuffling("shuffle pbin", [one], target, {"seed": seed}, bytes_per_task=n_bytes)
    assert finish(plan).documents == len(documents)
    assert target.read_bytes() == packed_bytes(expected, 5, size)
    target.unlink()
    assert finish(plan_merge([one, two], target, bytes_per_task=n_bytes)).sources == 2
    assert target.read_bytes() == packed_bytes([*documents, *more], 5, size)


def finish(plan: Any) -> EditResult:
    for rank in range(2):
        run_rank(plan, rank, 2)
    return collect_edit(plan)


def test_unfinished_tasks_are_named_and_nothing_is_written(folder: Path, cli: Cli) -> None:
    words = ["shuffle", "a.pbin", "distributed.pbin", "--seed", "1", "--task-bytes", "2000"]
    cli(*words, "--rank", "1", "--world-size", "2")
    assert "tasks are not done: 000000, 000002" in cli(*words, "--collect", code=1).err
    assert not Path("distributed.pbin").exists()


@pytest.mark.parametrize("command", ["merge a.pbin b.pbin distributed", "shuffle a.pbin distributed --seed 1"])
def test_changed_source_gives_another_plan(folder: Path, command: str, cli: Cli) -> None:
    cli(*command.split(), "--rank", "0", "--world-size", "1")
    Path("a.pbin").write_bytes(packed_bytes([[1, 2, 3]], 5, 2))
    assert "are not done: 000000" in cli(*command.split(), "--collect", code=1).err
    cli(*command.split(), "--rank", "0", "--world-size", "1")
    cli(*command.split(), "--collect")
    assert Path("distributed").read_bytes()[12:18] == bytes([1, 0, 2, 0, 3, 0])


@pytest.mark.parametrize("kind", ["merge", "shuffle"])
@pytest.mark.parametrize("late", [False, True])
def test_source_that_changes_after_planning_is_named(folder: Path, kind: str, late: bool) -> None:
    if kind == "merge":
        plan = plan_merge(["a.pbin"], "distributed", bytes_per_task=3000)
    else:
        plan = plan_shuffling("shuffle pbin", ["a.pbin"], "distributed", {"seed": 1}, bytes_per_task=3000)
    if late:
        run_rank(plan, 0, 1)
    os.utime("a.pbin", ns=(1, 1))
    with pytest.raises(JobError, match=r"a\.pbin has changed since the job was planned"):
        collect_edit(plan) if late else run_rank(plan, 0, 1)
    assert not Path("distributed").exists()


def test_order_is_computed_once_per_process(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def make(*arguments: Any, **options: Any) -> Any:
        made.append(arguments)
        return edit_tasks.shuffled_documents(*arguments, **options)

    monkeypatch.setitem(edit_tasks._EDITS, "shuffle pbin", make)
    plan = plan_shuffling("shuffle pbin", ["a.pbin"], "distributed", {"seed": 123}, bytes_per_task=500)
    assert len(plan.tasks) > 10
    run_rank(plan, 0, 1)
    assert len(made) == 1
    clear(plan)


def test_source_error_is_computed_once_per_process(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def fail(*arguments: Any, **_options: Any) -> Any:
        made.append(arguments)
        raise ValueError("damaged")

    monkeypatch.setitem(edit_tasks._EDITS, "shuffle pbin", fail)
    plan = plan_shuffling("shuffle pbin", ["a.pbin"], "distributed", {"seed": 124}, bytes_per_task=500)
    with pytest.raises(JobError, match="damaged"):
        run_rank(plan, 0, 1)
    assert len(made) == 1


def test_failures_are_reported_and_counted(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], cli: Cli
) -> None:
    Path("n.pbin").write_bytes(packed_bytes([[5] * 1000], 5, 2))
    words = ["merge", "n.pbin", "distributed", "--rank", "0", "--world-size", "1", "--task-bytes", "50"]

    def copy(source: Any, start: int, *given: Any) -> Any:
        if start >= 500:
            raise ValueError(f"token {start} cannot be read")
        return merge.read_tokens(source, start, *given)

    monkeypatch.setattr("fastpack.cli.progress.LOG_EVERY", 0)
    with monkeypatch.context() as context:
        context.setattr(edit_tasks, "read_tokens", copy)
        assert main(words) == 1
    lines = capsys.readouterr().err.splitlines()
    assert [line.split("%")[0] for line in lines[:2]] == ["merge: 2", "merge: 5"]
    assert lines[20] == "task 000020 failed: token 500 cannot be read"
    assert len([line for line in lines if line.startswith("task ")]) == 10  # the others are only counted
    assert lines[-2].startswith("merge (20 tasks failed): 100%, ")
    assert lines[-2].endswith("MiB/s, 0 s left")
    assert lines[-1].startswith("fastpack: error: 20 of 40 tasks of rank 0 failed; task 000020: token 500 cannot be")
    lines = cli(*words).err.splitlines()
    assert [line.split("%")[0] for line in lines[:2]] == ["merge: 5", "merge: 10"]  # percent of the remaining work


def test_existence_policies(folder: Path, capsys: pytest.CaptureFixture[str], cli: Cli) -> None:
    words = ["chunk", "a.pbin", "-o", "distributed", "--num-chunks=3", "--chunk-id=1", "--global-seed=5"]
    Path("distributed").write_bytes(b"there")
    with pytest.raises(TargetExists):
        plan_merge(["a.pbin"], "distributed")
    assert "exists. Pass --force to overwrite it." in cli(*words, "--rank", "0", "--world-size", "1", code=1).err
    for rank in (["--rank", "0", "--world-size", "1"], ["--collect"]):
        assert main([*words, *rank, "--if-exists", "skip", "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[1])["kept_existing"]
    assert Path("distributed").read_bytes() == b"there"
    for rank in (["--rank", "0", "--world-size", "1"], ["--collect", "--write-checksums"]):
        assert main([*words, *rank, "--force"]) == 0
    assert main([*words[:3], "local", "--num-chunks=3", "--chunk-id=1", "--global-seed=5"]) == 0
    assert Path("distributed").read_bytes() == Path("local").read_bytes()
    assert Path("distributed.fpsum").exists()


def test_planning_without_a_seed_is_an_error(folder: Path) -> None:
    with pytest.raises(ValueError, match="needs a seed"):
        plan_shuffling("shuffle pbin", ["a.pbin"], "distributed", {"seed": None})
