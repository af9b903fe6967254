"""Every command by ranks or on two Ray nodes gives the files, result and messages of a local run, also after kills."""

from __future__ import annotations

import importlib.util
import json
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from command_line import Cli
from distributed_sources import write_lines, write_shards, write_sound_and_damaged, write_texts, write_tokens
from packed_files import write_packed
from preparing import write_tar
from ranks import run, run_and_kill
from ray_nodes import namespaces, run_on_two_nodes

VARYING = {"index.uuid", ".fastpack.json"}  # a random uuid; modification times
TIME = re.compile(rb"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")  # media_filters records when a filter was first used
PREPARE = "--split-ratio 8,1,1 --non-interactive"
CHUNK = "--num-chunks 3 --chunk-id 1 --global-seed 5"


class Job(NamedTuple):
    """A command: its words, those of only the last step, the bytes of a task, and the exit code of a local run."""

    words: str
    last: str = ""
    task_bytes: tuple[int | None, int | None] = (1500, 399)
    code: int = 0


JOBS = [
    Job("index in/b.jsonl --index-path out.idx", "--drop-faulty", (9000, 3000)),
    Job("index in/b.jsonl --index-path out.idx", "", (9000, 3000), code=1),
    Job("index in --force", "--drop-faulty", (50_000, 9000)),
    Job("pack in --tokenizer bytes -o out.pbin", "", (10_000, 3000)),
    Job("pack in --tokenizer bytes --per-source -o packed", "", (15_000, 3000)),
    Job("merge a.pbin b.pbin out"),
    Job("merge a.pbin b.pbin wide.pbin out --token-size 4"),
    Job("merge b4.pbin a.pbin b4.pbin out --compat modalities-0.5"),
    Job("merge few.pbin a.pbin out --compat modalities-0.5"),
    Job("merge folder out"),
    Job("convert a.pbin b.pbin -o out --to megatron"),
    Job("convert folder -o out.ds --shard-tokens 300"),
    Job("convert a.pbin -o out.npy --shard-tokens 501"),
    Job("convert a.pbin b.pbin -o out --to mds", "", (3000, 800)),
    Job("shuffle a.pbin out --seed 7"),
    Job("shuffle b.pbin out --seed 7"),
    Job("shuffle a.jsonl out --seed 7"),
    Job("shuffle a.jsonl out --seed 7 --compat modalities-0.5"),
    Job(f"chunk a.pbin b.pbin -o out {CHUNK}"),
    Job(f"chunk a.jsonl b.jsonl empty.jsonl -o out {CHUNK}"),
    Job(f"chunk a.jsonl b.jsonl -o out {CHUNK} --compat modalities-0.5"),
    Job("prepare shards", PREPARE, (20_000, 1)),
    Job("prepare shards --no-sample-tables", PREPARE, (20_000, 1)),
    Job("prepare pictures --media-metadata-by-extension", PREPARE, (20_000, 1)),
    Job("verify data", "", (None, None), code=3),
    Job("verify data web data/0.pbin --deep --vocab-size 4", "", (None, None), code=3),
    Job("verify data/0.pbin", "", (None, None)),
    Job("verify data/0.pbin absent.pbin", "", (None, None), code=1),
]


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory, golden: Path) -> Path:
    folder = tmp_path_factory.mktemp("sources")
    write_tokens(folder)
    write_texts(folder)
    write_shards(folder / "shards")
    write_sound_and_damaged(folder, golden)
    return folder


def write_pictures(folder: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    folder.mkdir(exist_ok=True)
    image.fromarray(np.zeros((3, 5, 3), np.uint8)).save(folder / "x.png")
    content = (folder / "x.png").read_bytes()
    for name in "abc":
        write_tar(folder / f"{name}.tar", [f"{name}{k}.png" for k in range(4)], content)


def content(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file() and path.name not in VARYING)
    return {str(path.relative_to(folder)): TIME.sub(b"", path.read_bytes()) for path in files}


def result(out: str) -> Any:
    return {**json.loads(out), "seconds": 0} if out else None


@pytest.mark.parametrize("job", JOBS, ids=lambda job: f"{job.words} {job.last}")
def test_ranks_equal_a_local_run(
    job: Job, sources: Path, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "pictures" in job.words and not (sources / "pictures").exists():
        write_pictures(sources / "pictures")
    shutil.copytree(sources, tmp_path / "local")
    monkeypatch.chdir(tmp_path / "local")
    local = cli(*job.words.split(), *job.last.split(), "--json", code=job.code)
    for n_ranks, task_bytes in ((1, None), (2, job.task_bytes[0]), (3, job.task_bytes[1])):
        folder = Path(shutil.copytree(sources, tmp_path / f"{n_ranks} ranks"))
        monkeypatch.chdir(folder)
        words = [*job.words.split(), *([] if task_bytes is None else ["--task-bytes", task_bytes])]
        assert "are not done" in cli(*words, *job.last.split(), "--collect", code=1).err
        done = [cli.json(*words, "--rank", rank, "--world-size", n_ranks) for rank in reversed(range(n_ranks))]
        assert [(one["rank"], one["world_size"]) for one in reversed(done)] == [(k, n_ranks) for k in range(n_ranks)]
        assert [one["left"] > 0 for one in done[:-1]] == [True] * (n_ranks - 1) or task_bytes is None
        assert done[-1]["left"] == 0
        collected = cli(*words, *job.last.split(), "--collect", "--json", code=job.code)
        assert result(collected.out) == result(local.out)
        assert collected.err.replace(str(folder), "") == local.err.replace(str(tmp_path / "local"), "")
        if job.words.startswith("index") and job.code:  # the tasks are kept for another last step
            shutil.rmtree("out.idx.parts")
        assert content(folder) == content(tmp_path / "local")


KILLED: dict[str, tuple[Callable[[Path], object], str, str, int]] = {  # inputs; words; last words; bytes per task
    "index": (
        lambda folder: (folder / "a.jsonl").write_text((json.dumps({"text": "x" * 300}) + "\n") * 60_000),
        "index a.jsonl", "", 150_000,
    ),
    "pack": (
        lambda folder: [write_lines(folder / "in" / f"{number}.jsonl", 20_000, number) for number in range(3)],
        "pack in --tokenizer bytes -o out.pbin", "", 30_000,
    ),
    "merge": (
        lambda folder: [write_packed(folder / name, [[9] * (k % 400) for k in range(4000)]) for name in ("a", "b")],
        "merge a b out", "", 8000,
    ),
    "convert": (
        lambda folder: [write_packed(folder / name, [[9] * (k % 400) for k in range(4000)]) for name in ("a", "b")],
        "convert a b -o out --from pbin --to megatron --shard-tokens 100K", "", 8000,
    ),
    "shuffle": (
        lambda folder: (folder / "a.jsonl").write_bytes(b"".join(b"x" * (k % 600) + b"\n" for k in range(4000))),
        "shuffle a.jsonl out --seed 1", "", 8000,
    ),
    "prepare": (lambda folder: write_shards(folder, 60, 300), "prepare .", PREPARE, 1000),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", KILLED)
def test_killed_ranks_can_be_rerun(name: str, tmp_path: Path) -> None:
    make, words, last, n_bytes = KILLED[name]
    for folder in ("local", "ranks"):
        (tmp_path / folder).mkdir()
        make(tmp_path / folder)
    assert run([*words.split(), *last.split()], tmp_path / "local").returncode == 0
    command = [*words.split(), "--task-bytes", str(n_bytes)]
    assert run_and_kill(command, tmp_path / "ranks", 3, kills=4, seed=1) > 0
    collected = run([*command, *last.split(), "--collect"], tmp_path / "ranks")
    assert collected.returncode == 0, collected.stderr
    assert content(tmp_path / "ranks") == content(tmp_path / "local")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("shuffle a.pbin x --collect", "--rank, --collect and --executor ray need --seed"),
        ("chunk a.pbin -o x --num-chunks 2 --chunk-id 0 --executor ray", "--executor ray need --seed"),
        ("shuffle a.pbin x --seed 1 --rank 0", "needs --world-size"),
        ("merge a.pbin x --collect --dry-run", "--dry-run: not with"),
        ("merge a.pbin x --task-bytes 5", "--task-bytes: only with"),
        ("convert a.pbin -o x.ds --world-size 5", "--world-size: only with"),
        ("index in/b.jsonl --collect --repair-legacy", "--repair-legacy"),
        ("prepare shards --collect", "--split-ratio"),
        ("prepare a.jsonl --collect", "only for folders of shards"),
        ("verify data --collect --write-checksums", "--write-checksums"),
        *(
            (f"pack in/a.jsonl --tokenizer bytes {words}", message)
            for words, message in (
                ("--world-size 2", "only with --rank, --collect or"),
                ("--task-bytes 2", "only with --rank, --collect or"),
                ("--rank 0", "needs --world-size"),
                ("--rank 2 --world-size 2", "rank 2 of 2"),
                ("--rank 0 --world-size 2 --collect", "cannot be combined with --rank"),
                ("--collect --world-size 2", "takes no --world-size"),
                ("--collect --dry-run", "--dry-run: not with"),
                ("--rank 0 --world-size 1 --resume", "--resume: not with"),
                ("--collect --task-bytes 0", "at least 1"),
                ("--address auto", "--address: only with --executor ray"),
                ("--executor ray --rank 0 --world-size 2", "cannot be combined with --rank"),
                ("--executor ray --collect", "cannot be combined with"),
                ("--executor ray --dry-run", "--dry-run: not with"),
            )
        ),
    ],
)
def test_conflicting_options(
    words: str, message: str, sources: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(sources)
    if words == "prepare shards --collect":
        cli(*words.split()[:2], "--rank", 0, "--world-size", 1, "--task-folder", "scratch")
        words += " --task-folder scratch"
    assert message in cli(*words.split(), code=2).err
    shutil.rmtree("scratch", ignore_errors=True)


def test_existing_output_is_an_error(sources: Path, tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "out").write_bytes(b"old")
    words = ["--tokenizer", "bytes", "-o", tmp_path / "out", "--rank", "0", "--world-size", "2"]
    assert "exists. Pass --force to overwrite it." in cli("pack", sources / "in", *words, code=1).err


def write_words(folder: Path, golden: Path) -> None:
    rng = random.Random(0)
    words = [rng.randbytes(rng.randrange(1, 6)).hex() for _ in range(3000)]
    (folder / "in").mkdir()
    for number in range(3):
        lines = (json.dumps({"text": " ".join(rng.choices(words, k=60)) if k % 99 else None}) for k in range(12_000))
        (folder / "in" / f"{number}.jsonl").write_text("\n".join(lines))
    shutil.copytree(golden / "modalities" / "tokenizers" / "tok_bpe2000", folder / "tokenizer")


def write_small_shards(folder: Path, golden: Path) -> None:
    for shard in range(300):
        members = [f"{shard}_{k}.{field}" for k in range(100) for field in ("a", "b")]
        write_tar(folder / "ds" / f"{shard:03}.tar", members)


def write_many_documents(folder: Path, golden: Path) -> None:
    rng = random.Random(0)
    write_packed(folder / "a.pbin", [[number] * rng.randrange(200) for number in range(20_000)])


def write_one_text(folder: Path, golden: Path) -> None:
    lines = (json.dumps({"text": "x" * (k % 50)}) + "\n" for k in range(50_000))
    (folder / "a.jsonl").write_text("".join(lines))


def write_damaged_text(folder: Path, golden: Path) -> None:
    write_one_text(folder, golden)
    assert run(["index", "a.jsonl"], folder).returncode == 0
    (folder / "a.jsonl").write_bytes((folder / "a.jsonl").read_bytes()[:-30])


# Inputs; words; bytes per task; markers after which one node is killed, and that must still be missing then
ON_RAY: dict[str, tuple[Callable[[Path, Path], None], str, int | None, int | None, int]] = {
    "pack": (write_words, "pack in --tokenizer tokenizer --eod-token <|endoftext|> -o out.pbin", 500_000, 6, 40),
    "prepare": (write_small_shards, f"prepare ds {PREPARE}", 1, 20, 300),
    "shuffle": (write_many_documents, "shuffle a.pbin out.pbin --seed 3", 10_000, 50, 390),
    "index": (write_one_text, "index a.jsonl", 100_000, None, 0),
    "verify": (write_damaged_text, "verify a.jsonl a.idx", None, None, 0),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ON_RAY)
def test_two_ray_nodes_equal_a_local_run(name: str, tmp_path: Path, golden: Path) -> None:
    """One of the nodes is killed, except for short jobs."""
    if importlib.util.find_spec("ray") is None:
        pytest.skip("Ray is not installed: nothing was run on a cluster")
    if (reason := namespaces()) is not None:
        pytest.skip(f"{reason}: nothing was run on a cluster")
    make, words, n_bytes, kill_after, n_tasks = ON_RAY[name]
    (tmp_path / "local").mkdir()
    make(tmp_path / "local", golden)
    shutil.copytree(tmp_path / "local", tmp_path / "ray")
    local = run([*words.split(), "--json"], tmp_path / "local")
    assert local.returncode == (3 if name == "verify" else 0), local.stderr
    split = [] if n_bytes is None else ["--task-bytes", str(n_bytes)]
    found = run_on_two_nodes(tmp_path / "ray", [*words.split(), "--json", *split], kill_after=kill_after)
    assert found["code"] == local.returncode, found["err"]
    assert result(found["out"]) == result(local.stdout)
    assert kill_after is None or kill_after <= found["marked"] < n_tasks
    assert content(tmp_path / "ray") == content(tmp_path / "local")
