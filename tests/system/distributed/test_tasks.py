"""Plans, tasks, completion markers and ranks."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastpack.distributed import plan as tasks
from fastpack.distributed.map_concatenate import split_sources, task_bytes
from fastpack.distributed.plan import Plan, Task, check_size, clear, finished, load_plan, results, save_plan
from fastpack.distributed.ranks import find_rank, run_rank
from fastpack.distributed.task_execution import run_task
from fastpack.errors import JobError
from fastpack.io import AtomicFile


def letters(settings: Mapping[str, Any], arguments: Mapping[str, Any], path: str) -> int:
    """Write the letter of the task three times."""
    if arguments["letter"] == settings.get("bad"):
        raise ValueError("a bad letter")
    with AtomicFile(path) as file:
        file.write(arguments["letter"].encode() * 3)
    return 3


def plan_of(folder: Path, **settings: Any) -> Plan:
    tasks = [Task(f"{number}", {"letter": letter}, 1) for number, letter in enumerate("abcdefg")]
    return Plan("letters", str(folder / "x.parts"), settings, [], tasks)


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastpack.distributed.task_execution.task_function", {"letters": letters}.get)


@given(
    st.lists(st.tuples(st.integers(0, 500), st.booleans()), max_size=20),
    st.integers(1, 200),
)
def test_chunks_cover_all_sources_once_and_in_order(sources: list[tuple[int, bool]], n_bytes: int) -> None:
    sizes, whole = [size for size, _ in sources], [stays for _, stays in sources]
    groups = list(split_sources(sizes, whole, n_bytes))
    assert all(groups)
    pieces = [piece for group in groups for piece in group]
    expected = []
    for number, (size, stays) in enumerate(sources):
        n_chunks = 1 if stays else max(1, -(-size // n_bytes))
        expected += [(number, chunk, n_chunks) for chunk in range(n_chunks)]
    assert pieces == expected
    for group in groups:
        n = sum(sizes[source] / n_chunks for source, _, n_chunks in group)
        assert n <= n_bytes or len(group) == 1
    for one, other in pairwise(groups):  # no two groups fit into one task
        if one[-1][2] == other[0][2] == 1:
            assert sum(sizes[source] for source, _, _ in one) + sizes[other[0][0]] > n_bytes


@given(st.integers(0, 1 << 60))
def test_number_of_tasks_is_limited(total: int) -> None:
    assert total / task_bytes(total, None) <= 4096
    assert task_bytes(total, 7) == 7


@pytest.mark.parametrize("size", [1, 2, 3, 10])
def test_ranks_do_every_task_once(tmp_path: Path, size: int) -> None:
    plan = plan_of(tmp_path)
    left = [run_rank(plan, rank, size).left for rank in range(size)]
    assert left[-1] == 0
    assert sorted(left, reverse=True) == left
    done = results(plan)
    assert [Path(done[task.name].path).read_text() for task in plan.tasks] == [letter * 3 for letter in "abcdefg"]
    before = {path: path.stat().st_mtime_ns for path in Path(plan.home).iterdir()}
    assert [run_rank(plan, rank, 2).done_before for rank in range(2)] == [4, 3]  # also with another world size
    assert before == {path: path.stat().st_mtime_ns for path in Path(plan.home).iterdir()}


def test_unfinished_tasks_are_named_with_their_errors(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, bad="c")
    with pytest.raises(JobError, match="7 of 7 tasks are not done: 0, 1, 2, 3, 4, 5, 6 "):
        results(plan)
    with pytest.raises(JobError, match="1 of 4 tasks of rank 0 failed; task 2: a bad letter"):
        run_rank(plan, 0, 2)
    with pytest.raises(JobError, match="4 of 7 tasks are not done: 1, 2, 3, 5; 2 failed: a bad letter"):
        results(plan)
    assert run_rank(replace(plan, unneeded=frozenset("2")), 1, 2).left == 0
    assert set(results(replace(plan, unneeded=frozenset("2")))) == set("013456")


def test_markers_of_other_ranks_are_read_only_when_all_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening 4,096 markers by each of 4,096 ranks takes a file system minutes."""
    plan, read, opened = plan_of(tmp_path), tasks.read_marker, list[str]()

    def noted(plan: Plan, task: Task) -> Any:
        opened.append(task.name)
        return read(plan, task)

    monkeypatch.setattr(tasks, "read_marker", noted)
    for rank in range(6):
        assert run_rank(plan, rank, 7).left == 6 - rank
    assert opened == []
    broken = replace(plan, function=f"{__name__}:absent")
    broken.__dict__["identity"] = plan.identity
    assert run_task(broken, plan.tasks[6], "a")
    assert run_rank(plan, 0, 7).left == 1  # the task with a failure marker
    assert run_rank(plan, 6, 7).left == 0


def test_torn_and_foreign_markers_are_ignored(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    run_rank(plan, 0, 1)
    home = Path(plan.home)
    whole = (home / "1.json").read_text()
    (home / "1.json").write_text(whole[:-4])
    (home / "2.json").write_text(whole.replace(plan.identity, "another"))
    (home / "3.json").write_text("[]")
    assert set(finished(plan)) == set("0456")
    run_rank(plan, 0, 1)
    assert len(finished(plan)) == 7


def test_failed_attempt_keeps_the_marker_of_a_successful_one(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    assert run_task(plan, plan.tasks[0], "a") is None
    broken = replace(plan, function=f"{__name__}:absent")
    broken.__dict__["identity"] = plan.identity
    assert run_task(broken, plan.tasks[0], "b")
    assert finished(plan)["0"].path.endswith(".a")


def test_plans_with_other_settings_or_files_start_again(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    run_rank(plan, 0, 1)
    for other in (plan_of(tmp_path, x=1), replace(plan, stamps=[["a", 1, 2]]), replace(plan, tasks=plan.tasks[:-1])):
        assert other.identity != plan.identity
        assert not finished(other)
    assert plan_of(tmp_path).identity == plan.identity
    torn = tmp_path / "x.parts" / ("b" * 24)  # a plan whose process was killed during its first task
    torn.mkdir()
    (torn / ".000001.rank0-of-2.partial").write_text("x")
    clear(plan)
    assert list(tmp_path.iterdir()) == []


def test_clear_keeps_foreign_files(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    run_rank(plan, 0, 1)
    mine = tmp_path / "x.parts" / "my folder"
    mine.mkdir()
    (mine / "a.json").write_text("{}")
    (tmp_path / "x.parts" / ("a" * 24)).mkdir()
    (tmp_path / "x.parts" / ("a" * 24) / "thesis.tex").write_text("x")
    clear(plan)
    assert sorted(path.name for path in tmp_path.rglob("*")) == sorted(
        ["x.parts", "my folder", "a.json", "a" * 24, "thesis.tex"]
    )


def test_changed_task_files_are_detected(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    run_rank(plan, 0, 1)
    done = finished(plan)["0"]
    check_size(done, 3)
    os.truncate(done.path, 2)
    with pytest.raises(JobError, match="has 2 bytes, not the 3"):
        check_size(done, 3)
    os.unlink(done.path)
    with pytest.raises(JobError, match="which a task wrote, is missing"):
        check_size(done, 3)


def test_saved_plan_can_be_loaded(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, a=[1, "x"])
    save_plan(plan)
    again = load_plan(plan.home)
    assert (again.identity, again.home) == (plan.identity, plan.home)
    saved = Path(plan.home) / "plan.json"
    saved.write_text(json.dumps({**json.loads(saved.read_text()), "version": "0"}))
    with pytest.raises(JobError, match="install the same"):
        load_plan(plan.home)
    with pytest.raises(JobError, match="is not visible"):
        load_plan(str(tmp_path / "absent"))


ARRAY = {"SLURM_ARRAY_TASK_MIN": "0", "SLURM_ARRAY_TASK_MAX": "7", "SLURM_ARRAY_TASK_COUNT": "8"}


@pytest.mark.parametrize(
    ("asked", "size", "environment", "expected"),
    [
        ("2", 5, {}, (2, 5)),
        ("slurm", None, {"SLURM_PROCID": "3", "SLURM_NTASKS": "8"}, (3, 8)),
        ("slurm", None, {**ARRAY, "SLURM_ARRAY_TASK_ID": "5"}, (5, 8)),
        ("slurm", None, {**ARRAY, "SLURM_ARRAY_TASK_ID": "5", "SLURM_PROCID": "0"}, (5, 8)),
        ("slurm", None, {**ARRAY, "SLURM_ARRAY_TASK_ID": "5", "SLURM_PROCID": "1", "SLURM_NTASKS": "4"}, (21, 32)),
        (
            "slurm",
            None,
            {
                "SLURM_ARRAY_TASK_ID": "12",
                "SLURM_ARRAY_TASK_MIN": "4",
                "SLURM_ARRAY_TASK_MAX": "16",
                "SLURM_ARRAY_TASK_COUNT": "4",
            },
            (2, 4),
        ),
        ("torchrun", None, {"RANK": "1", "WORLD_SIZE": "2"}, (1, 2)),
    ],
)
def test_find_rank(asked: str, size: int | None, environment: dict[str, str], expected: tuple[int, int]) -> None:
    assert find_rank(asked, size, environment) == expected


@pytest.mark.parametrize(
    ("asked", "size", "environment", "message"),
    [
        ("5", 5, {}, "rank 5 of 5"),
        ("1", None, {}, "needs --world-size"),
        ("one", 5, {}, "a number from 0, or one of slurm, torchrun"),
        ("²", 5, {}, "a number from 0"),
        ("slurm", None, {}, "not started by Slurm"),
        ("slurm", 4, {"SLURM_PROCID": "3"}, "omit --world-size"),
        ("slurm", None, {"SLURM_PROCID": "3", "SLURM_NTASKS": "2"}, "rank 3 of 2"),
        ("slurm", None, {**ARRAY, "SLURM_ARRAY_TASK_ID": "5", "SLURM_ARRAY_TASK_COUNT": "3"}, "has gaps"),
        ("torchrun", None, {"RANK": "1"}, "WORLD_SIZE is not set"),
        ("torchrun", None, {"RANK": "x", "WORLD_SIZE": "2"}, "RANK is 'x'"),
    ],
)
def test_invalid_ranks(asked: str, size: int | None, environment: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        find_rank(asked, size, environment)


def test_plan_of_another_format_is_rejected(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    save_plan(plan)
    file = Path(plan.home, "plan.json")
    fields = json.loads(file.read_text())
    del fields["format"]  # older plans have no format number
    file.write_text(json.dumps(fields))
    with pytest.raises(JobError, match=r"is the plan of another build of fastpack .* Remove it and start again"):
        load_plan(plan.home)
