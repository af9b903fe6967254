"""`merge`, `shuffle` and `chunk` by ranks give the bytes of a local run, also when ranks are killed."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packed_files import packed_bytes
from ranks import run, run_and_kill

from fastpack import EditResult
from fastpack.cli import main
from fastpack.distributed import edit_tasks
from fastpack.distributed.edit_tasks import collect_edit, plan_merge, plan_shuffling
from fastpack.distributed.plan import clear
from fastpack.distributed.ranks import run_rank
from fastpack.errors import JobError
from fastpack.io import TargetExists
from fastpack.tokens.edit import merge

CHUNK = "--num-chunks 3 --chunk-id 1 --global-seed 5"
COMMANDS = [
    "merge a.pbin b.pbin OUT",
    "merge a.pbin b.pbin wide.pbin OUT --token-size 4",
    "merge b4.pbin a.pbin b4.pbin OUT --compat modalities-0.5",
    "merge few.pbin a.pbin OUT --compat modalities-0.5",
    "merge folder OUT",
    "shuffle a.pbin OUT --seed 7",
    "shuffle b.pbin OUT --seed 7",
    "shuffle a.jsonl OUT --seed 7",
    "shuffle a.jsonl OUT --seed 7 --compat modalities-0.5",
    f"chunk a.pbin b.pbin -o OUT {CHUNK}",
    f"chunk a.jsonl b.jsonl empty.jsonl -o OUT {CHUNK}",
    f"chunk a.jsonl b.jsonl -o OUT {CHUNK} --compat modalities-0.5",
]


def write_sources(folder: Path) -> None:
    rng = random.Random(0)

    def documents(n: int) -> list[list[int]]:
        return [[rng.randrange(256) for _ in range(rng.choice((0, 1, 30)))] for _ in range(n)]

    (folder / "folder").mkdir()
    for name, generation, size, n in (
        ("a.pbin", 5, 2, 300), ("b.pbin", 3, 2, 200), ("b4.pbin", 4, 2, 50), ("wide.pbin", 1, 4, 90),
        ("few.pbin", 5, 2, 1), ("folder/x.pbin", 5, 1, 40), ("folder/y.pbin", 5, 1, 1), ("folder/z.pbin", 3, 1, 60),
    ):  # fmt: skip
        (folder / name).write_bytes(packed_bytes([[1], *documents(n)], generation, size))
    for name, n in (("a.jsonl", 200), ("b.jsonl", 50), ("empty.jsonl", 0)):
        (folder / name).write_bytes(b"\n".join(b"x" * rng.randrange(60) for _ in range(n)) + b"y" * (n > 0))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_sources(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("command", COMMANDS)
def test_concatenated_tasks_equal_a_local_run(folder: Path, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command.replace("OUT", "local").split(), "--json"]) == 0
    local, warned = capsys.readouterr()
    for world_size, task_bytes in ((1, ""), (2, "--part-bytes 1500"), (3, "--part-bytes 399")):
        distributed = [*command.replace("OUT", "distributed").split(), *task_bytes.split(), "--json"]
        for rank in reversed(range(world_size)):
            assert main([*distributed, "--rank", str(rank), "--world-size", str(world_size)]) == 0
        capsys.readouterr()
        assert main([*distributed, "--collect"]) == 0
        assert Path("distributed").read_bytes() == Path("local").read_bytes()
        collected, again = capsys.readouterr()
        assert {**json.loads(collected), "path": 0} == {**json.loads(local), "path": 0}
        assert again == warned
        assert not Path("distributed.parts").exists()
        os.remove("distributed")


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


def test_unfinished_tasks_are_named_and_nothing_is_written(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["shuffle", "a.pbin", "distributed.pbin", "--seed", "1", "--part-bytes", "2000"]
    assert main([*words, "--rank", "1", "--world-size", "2"]) == 0
    assert main([*words, "--collect"]) == 1
    assert "tasks are not done: 000000, 000002" in capsys.readouterr().err
    assert not Path("distributed.pbin").exists()


@pytest.mark.parametrize("command", ["merge a.pbin b.pbin distributed", "shuffle a.pbin distributed --seed 1"])
def test_changed_source_gives_another_plan(folder: Path, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command.split(), "--rank", "0", "--world-size", "1"]) == 0
    Path("a.pbin").write_bytes(packed_bytes([[1, 2, 3]], 5, 2))
    assert main([*command.split(), "--collect"]) == 1
    assert "are not done: 000000" in capsys.readouterr().err
    assert main([*command.split(), "--rank", "0", "--world-size", "1"]) == 0
    assert main([*command.split(), "--collect"]) == 0
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
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("n.pbin").write_bytes(packed_bytes([[5] * 1000], 5, 2))
    words = ["merge", "n.pbin", "distributed", "--rank", "0", "--world-size", "1", "--part-bytes", "50"]

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
    assert main(words) == 0
    lines = capsys.readouterr().err.splitlines()
    assert [line.split("%")[0] for line in lines[:2]] == ["merge: 5", "merge: 10"]  # percent of the remaining work


def test_existence_policies(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["chunk", "a.pbin", "-o", "distributed", *CHUNK.split()]
    Path("distributed").write_bytes(b"there")
    with pytest.raises(TargetExists):
        plan_merge(["a.pbin"], "distributed")
    assert main([*words, "--rank", "0", "--world-size", "1"]) == 1
    assert "exists. Pass --force to overwrite it." in capsys.readouterr().err
    for rank in (["--rank", "0", "--world-size", "1"], ["--collect"]):
        assert main([*words, *rank, "--file-existence-policy", "skip", "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[1])["kept_existing"]
    assert Path("distributed").read_bytes() == b"there"
    for rank in (["--rank", "0", "--world-size", "1"], ["--collect", "--write-checksums"]):
        assert main([*words, *rank, "--force"]) == 0
    assert main([*words[:3], "local", *CHUNK.split()]) == 0
    assert Path("distributed").read_bytes() == Path("local").read_bytes()
    assert Path("distributed.fpsum").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("shuffle a.pbin x --collect", "--rank, --collect and --executor ray need --seed"),
        ("chunk a.pbin -o x --num-chunks 2 --chunk-id 0 --executor ray", "--executor ray need --global-seed"),
        ("shuffle a.pbin x --seed 1 --rank 0", "needs --world-size"),
        ("merge a.pbin x --collect --dry-run", "--dry-run: not with"),
        ("merge a.pbin x --part-bytes 5", "--part-bytes: only with"),
    ],
)
def test_conflicting_options(folder: Path, words: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words.split()) == 2
    assert message in capsys.readouterr().err


def test_planning_without_a_seed_is_an_error(folder: Path) -> None:
    with pytest.raises(ValueError, match="needs a seed"):
        plan_shuffling("shuffle pbin", ["a.pbin"], "distributed", {"seed": None})


@pytest.mark.slow
@pytest.mark.parametrize("command", ["merge a.pbin b.pbin OUT", "shuffle a.jsonl OUT --seed 1"])
def test_killed_ranks_can_be_rerun(tmp_path: Path, command: str) -> None:
    rng = random.Random(1)
    for name in ("a.pbin", "b.pbin"):
        documents = [[rng.randrange(256)] * rng.randrange(400) for _ in range(4000)]
        (tmp_path / name).write_bytes(packed_bytes(documents, 5, 2))
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(b"x" * rng.randrange(600) for _ in range(4000)) + b"y")
    assert run(command.replace("OUT", "local").split(), tmp_path).returncode == 0
    words = [*command.replace("OUT", "distributed").split(), "--part-bytes", "8000"]
    assert run_and_kill(words, tmp_path, 3, kills=4, seed=1) > 0
    collected = run([*words, "--collect"], tmp_path)
    assert collected.returncode == 0, collected.stderr
    assert (tmp_path / "distributed").read_bytes() == (tmp_path / "local").read_bytes()
    assert not list(tmp_path.glob("*.parts"))
