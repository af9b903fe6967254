"""Two Ray nodes give the bytes of a local run, also when one of them is killed."""

from __future__ import annotations

import importlib.util
import json
import random
import shutil
from pathlib import Path

import pytest
from preparing import write_tar
from ranks import run
from ray_nodes import namespaces, run_on_two_nodes

from fastpack.cli import main
from fastpack.distributed import ray_executor
from fastpack.distributed.plan import Plan, Task
from fastpack.distributed.ray_executor import do_task, run_on_ray
from fastpack.errors import MissingExtra
from fastpack.tokens.pbin.packed_writer import PackedWriter

BY_CHANCE = {"index.uuid", ".fastpack.json"}


def content(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file() and path.name not in BY_CHANCE)
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.fixture
def nodes() -> None:
    if importlib.util.find_spec("ray") is None:
        pytest.skip("Ray is not installed: nothing was run on a cluster")
    if (reason := namespaces()) is not None:
        pytest.skip(f"{reason}: nothing was run on a cluster")


@pytest.mark.slow
def test_pack_survives_a_killed_node(nodes: None, tmp_path: Path, golden: Path) -> None:
    rng = random.Random(0)
    words = [rng.randbytes(rng.randrange(1, 6)).hex() for _ in range(3000)]
    (tmp_path / "in").mkdir()
    for number in range(3):
        lines = (json.dumps({"text": " ".join(rng.choices(words, k=60)) if k % 99 else None}) for k in range(12_000))
        (tmp_path / "in" / f"{number}.jsonl").write_text("\n".join(lines))
    shutil.copytree(golden / "modalities" / "tokenizers" / "tok_bpe2000", tmp_path / "tokenizer")
    command = ["pack", "in", "--tokenizer", "tokenizer", "--eod-token", "<|endoftext|>", "--json"]
    local = run([*command, "-o", "local.pbin"], tmp_path)
    assert local.returncode == 0, local.stderr
    distributed = run_on_two_nodes(
        tmp_path, [*command, "-o", "distributed.pbin", "--task-bytes", "500000"], kill_after=6
    )
    assert distributed["code"] == 0, distributed["err"]
    found, expected = json.loads(distributed["out"]), json.loads(local.stdout)
    assert {**found, "path": 0, "seconds": 0} == {**expected, "path": 0, "seconds": 0}
    assert 6 <= distributed["marked"] < 40
    assert (tmp_path / "distributed.pbin").read_bytes() == (tmp_path / "local.pbin").read_bytes()
    assert not list(tmp_path.glob("*.parts"))


@pytest.mark.slow
def test_prepare_survives_a_killed_node(nodes: None, tmp_path: Path) -> None:
    for shard in range(300):
        members = [f"{shard}_{k}.{part}" for k in range(100) for part in ("a", "b")]
        write_tar(tmp_path / "local" / f"{shard:03}.tar", members)
    shutil.copytree(tmp_path / "local", tmp_path / "distributed")
    words = ["--split-ratio", "8,1,1", "--json"]
    local = run(["prepare", "local", *words], tmp_path)
    assert local.returncode == 0, local.stderr
    distributed = run_on_two_nodes(tmp_path, ["prepare", "distributed", *words, "--task-bytes", "1"], kill_after=20)
    assert distributed["code"] == 0, distributed["err"]
    assert {**json.loads(distributed["out"]), "path": 0} == {**json.loads(local.stdout), "path": 0}
    assert 20 <= distributed["marked"] < 300
    assert content(tmp_path / "distributed") == content(tmp_path / "local")


@pytest.mark.slow
def test_shuffle_survives_a_killed_node(nodes: None, tmp_path: Path) -> None:
    rng = random.Random(0)
    with PackedWriter(tmp_path / "a.pbin", 2) as writer:
        for number in range(20_000):
            writer.append([number] * rng.randrange(200))
    command = ["shuffle", "a.pbin"]
    local = run([*command, "local.pbin", "--seed", "3", "--json"], tmp_path)
    assert local.returncode == 0, local.stderr
    words = [*command, "distributed.pbin", "--seed", "3", "--json", "--task-bytes", "10000"]
    distributed = run_on_two_nodes(tmp_path, words, kill_after=50)
    assert distributed["code"] == 0, distributed["err"]
    assert {**json.loads(distributed["out"]), "path": 0} == {**json.loads(local.stdout), "path": 0}
    assert 50 <= distributed["marked"] < 390
    assert (tmp_path / "distributed.pbin").read_bytes() == (tmp_path / "local.pbin").read_bytes()
    assert not list(tmp_path.glob("*.parts"))


@pytest.mark.slow
def test_index_and_verify_on_two_nodes(nodes: None, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": "x" * (k % 50)}) + "\n" for k in range(50_000)))
    local = run(["index", "a.jsonl", "--index-path", "local.idx"], tmp_path)
    assert local.returncode == 0, local.stderr
    distributed = run_on_two_nodes(tmp_path, ["index", "a.jsonl", "--task-bytes", "100000"])
    assert distributed["code"] == 0, distributed["err"]
    assert (tmp_path / "a.idx").read_bytes() == (tmp_path / "local.idx").read_bytes()
    (tmp_path / "a.jsonl").write_bytes((tmp_path / "a.jsonl").read_bytes()[:-30])
    words = ["verify", "a.jsonl", "a.idx", "--json"]
    local = run(words, tmp_path)
    distributed = run_on_two_nodes(tmp_path, words)
    assert (distributed["code"], distributed["out"]) == (local.returncode, local.stdout)
    assert distributed["code"] == 3


def plan_of(folder: Path) -> Plan:
    return Plan("index", str(folder / "x.parts"), {}, [], [Task("0", {}, 1)])


def test_missing_ray_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(MissingExtra, match=r"fastpack-llm\[ray\]"):
        run_on_ray(plan_of(tmp_path))


def test_finished_job_needs_no_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_executor, "finished", lambda _: {"0": None})
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    run_on_ray(plan_of(tmp_path))


def test_node_without_the_shared_folder_is_an_error(tmp_path: Path) -> None:
    assert "absent" in str(do_task(str(tmp_path / "absent"), "0", str(tmp_path)))
    assert "is not visible on this machine" in str(do_task(str(tmp_path / "absent"), "0", str(tmp_path)))
    assert "No such file" in str(do_task(str(tmp_path), "0", str(tmp_path / "absent")))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--address auto", "--address: only with --executor ray"),
        ("--executor ray --rank 0 --world-size 2", "cannot be combined with --rank"),
        ("--executor ray --collect", "cannot be combined with"),
        ("--executor ray --dry-run", "--dry-run: not with"),
    ],
)
def test_conflicting_options(words: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pack", "a.jsonl", "--tokenizer", "bytes", *words.split()]) == 2
    assert message in capsys.readouterr().err
