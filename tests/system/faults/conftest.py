"""Commands that write files, in a folder that can be reset to any state, and a system whose n-th call fails.

Only `fastpack.io` writes files, except for SQLite. Its `os` is replaced by a `System`, which counts the calls that
change a file or may fail on a bad disk. Every command runs once to count these calls, then once for each of them.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tar_files import write_tar

from fastpack.cli import main
from fastpack.io import atomic, file_copy, reading
from fastpack.packing import packing_pipeline
from fastpack.tokens import token_writer
from fastpack.tokens.edit import merge
from fastpack.tokens.pbin.packed_writer import PackedWriter

COUNTED = ("open", "write", "pwrite", "ftruncate", "fdatasync", "fsync", "replace", "copy_file_range", "splice")
Files = dict[str, Any]  # relative path -> comparable contents
Fault = Callable[[str, Callable[..., Any], tuple[Any, ...]], Any]  # (name of the call, the call, its arguments)


@dataclass
class Job:
    """A command that runs in a folder. `new`: the files that it writes; `old`: creates earlier versions of them."""

    name: str
    words: list[str]
    make: Callable[[Path], None]
    new: list[str]
    old: Callable[[Path], None] | None = None
    resumes: bool = False
    keeps: bool = False  # the result of an interrupted run is kept for --resume

    def __str__(self) -> str:
        return self.name


def write_documents(folder: Path) -> None:
    rng = random.Random(1)
    lines = [json.dumps({"text": "x" * rng.randrange(60), "n": n}) for n in range(6)]
    (folder / "docs.jsonl").write_text("\n".join(lines))
    for name in ("a.pbin", "b.pbin"):
        with PackedWriter(folder / name, 2, if_exists="overwrite") as writer:
            for n in range(4):
                writer.append(np.arange(rng.randrange(1, 30), dtype=np.uint16) + n)


def write_index(folder: Path) -> None:
    write_documents(folder)
    assert main(["index", "docs.jsonl", "-q"]) == 0


def write_shard(path: Path, keys: str) -> None:
    write_tar(path, {f"{key}.txt": b"abc" for key in keys})


def write_shards(folder: Path) -> None:
    write_shard(folder / "ds/s0.tar", "ab")
    write_shard(folder / "ds/s1.tar", "cd")


def prepare_two_of_three(folder: Path) -> None:
    assert main(["prepare", "ds", "--split-ratio", "1,1,0", "-q", "--sample-type", "CrudeWebdataset"]) == 0
    write_shard(folder / "ds/s1.tar", "xyz")
    write_shard(folder / "ds/s2.tar", "ef")


def earlier(*names: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        for name in names:
            (folder / name).write_bytes(b"what was there before")

    return write


PACK = ["pack", "docs.jsonl", "--tokenizer", "bytes", "--eod-token", "<|endoftext|>", "--num-cpus", "1", "-o", "out"]
META = ("index.sqlite", "index.uuid", ".info.json", "split.yaml", "dataset.yaml", ".fastpack.json")
CHECKSUMS = ["docs.jsonl.fpsum", "docs.idx.fpsum"]
PREPARE = ["prepare", "ds", "--split-ratio", "1,1,1", "--num-workers", "1", "--sample-type", "CrudeWebdataset"]
SINGLE = {  # command line without --force; function that writes its inputs; its outputs
    "index": (["index", "docs.jsonl"], write_documents, "docs.idx"),
    "pack": (PACK, write_index, "out"),
    "merge": (["merge", "a.pbin", "b.pbin", "out.pbin"], write_documents, "out.pbin"),
    "shuffle pbin": (["shuffle", "a.pbin", "out.pbin", "--seed", "1"], write_documents, "out.pbin"),
    "shuffle jsonl": (["shuffle", "docs.jsonl", "out.jsonl", "--seed", "2"], write_documents, "out.jsonl"),
    "chunk pbin": (
        ["chunk", "a.pbin", "b.pbin", "-o", "out.pbin", "--chunk-id", "0", "--num-chunks", "2", "--seed", "3"],
        write_documents,
        "out.pbin",
    ),
    "chunk jsonl": (
        ["chunk", "docs.jsonl", "-o", "out.jsonl", "--chunk-id", "0", "--num-chunks", "2", "--seed", "3"],
        write_documents,
        "out.jsonl",
    ),
    "filter": (["filter", "a.pbin", "out.pbin", "--min-length", "8"], write_documents, "out.pbin"),
}


def outputs(name: str, path: str) -> list[str]:
    return [path, f"{path}.fptok"] if name == "pack" else [path]


JOBS = [
    *(Job(name, words, make, outputs(name, new), keeps=name == "pack") for name, (words, make, new) in SINGLE.items()),
    *(
        Job(f"{name} --force", [*words, "--force"], make, outputs(name, new), earlier(new), keeps=name == "pack")
        for name, (words, make, new) in SINGLE.items()
        if name in ("index", "pack", "merge", "shuffle jsonl")
    ),
    Job("pack --resume", [*PACK, "--resume"], write_index, outputs("pack", "out"), resumes=True, keeps=True),
    Job(
        "pack --resume --force",
        [*PACK, "--resume", "--force"],
        write_index,
        outputs("pack", "out"),
        earlier("out"),
        resumes=True,
        keeps=True,
    ),
    Job("write-checksums", ["verify", "docs.jsonl", "--write-checksums"], write_index, CHECKSUMS),
    Job(
        "write-checksums again",
        ["verify", "docs.jsonl", "--write-checksums"],
        write_index,
        CHECKSUMS,
        earlier(*CHECKSUMS),
    ),
    Job(
        "index --write-checksums",
        ["index", "docs.jsonl", "--force", "--write-checksums"],
        write_documents,
        ["docs.idx", "docs.idx.fpsum"],
        earlier("docs.idx"),
    ),
    Job("prepare jsonl", ["prepare", "docs.jsonl"], write_documents, ["docs.jsonl.idx"]),
    Job(
        "prepare shards",
        [*PREPARE, "--force-overwrite"],
        write_shards,
        [*(f"ds/.nv-meta/{name}" for name in META), *(f"ds/s{k}.tar.idx" for k in range(3))],
        prepare_two_of_three,
        keeps=True,
    ),
]


class System:
    """A substitute for the module os that counts some of its calls and replaces the call number `at` by `fault`."""

    def __init__(self, at: int = -1, fault: Fault | None = None) -> None:
        self.calls: list[str] = []
        self._at, self._fault = at, fault

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        return (lambda *arguments: self.call(name, real, arguments)) if name in COUNTED else real

    def call(self, name: str, real: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        if name in ("fsync", "fdatasync"):
            real = id  # not needed without power failures, and takes milliseconds
        if name == "open" and not arguments[1] & os.O_CREAT:
            return real(*arguments)
        self.calls.append(name)
        if len(self.calls) - 1 == self._at and self._fault is not None:
            return self._fault(name, real, arguments)
        return real(*arguments)

    def fallocate(self, *arguments: Any) -> int:
        try:
            return int(self.call("fallocate", lambda *_: 0, arguments))
        except OSError as error:
            ctypes.set_errno(error.errno or 0)
            return -1


@dataclass
class Workspace:
    """The folder in which a job runs, and the expected result."""

    job: Job
    folder: Path
    start: Path  # a copy of the folder before the job
    monkeypatch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]
    before: Files = field(default_factory=dict)
    after: Files = field(default_factory=dict)

    def reset(self, to: Path | None = None) -> None:
        """Reset the folder to its start state, or to another copy."""
        shutil.rmtree(self.folder)
        shutil.copytree(to or self.start, self.folder, symlinks=True)
        os.chdir(self.folder)

    def run(self, at: int = -1, fault: Fault | None = None, *options: str) -> tuple[int, str, System]:
        """Run the job; return the exit code, the text on stderr, and the system. options: further options."""
        system = System(at, fault)
        with self.monkeypatch.context() as patch:
            patch.setattr(atomic, "os", system)
            patch.setattr(reading, "os", system)
            patch.setattr(file_copy, "os", system)
            patch.setattr(atomic, "_fallocate", system.fallocate)
            code = main([*self.job.words, *options, "--no-progress"])
        return code, self.capsys.readouterr().err, system

    def contents(self) -> Files:
        found = sorted(path for path in self.folder.rglob("*") if path.is_file())
        return {str(path.relative_to(self.folder)): content(path) for path in found}

    def is_old_or_new(self, name: str, now: Files) -> bool:
        """Return whether a file has its contents from before or after the job, or is absent as before."""
        return now.get(name) in (self.before.get(name), self.after[name])


def content(path: Path) -> Any:
    if path.name == "index.uuid":
        return len(path.read_text())  # a random UUID
    if path.suffix == ".fpsum" and path.read_bytes().startswith(b"{"):
        return {**json.loads(path.read_text()), "mtime_ns": 0}  # varies between runs
    if path.name == ".fastpack.json":
        return json.loads(path.read_text())["shards"]  # without the time at which the index was written
    if path.name != "index.sqlite":
        return path.read_bytes()
    with contextlib.closing(sqlite3.connect(f"file:{path}?immutable=1", uri=True)) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        names = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
        return {name: sorted(db.execute(f"SELECT * FROM {name}")) for name in names}


@pytest.fixture
def small_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cause several writes, and a checkpoint per batch, for small files."""
    monkeypatch.setattr(token_writer, "BUFFER_BYTES", 128)
    monkeypatch.setattr(merge, "_BLOCK", 128)
    monkeypatch.setattr(packing_pipeline, "MIN_BATCH_BYTES", 256)
    monkeypatch.setattr(packing_pipeline, "MAX_BATCH_BYTES", 256)
    monkeypatch.setattr(packing_pipeline, "CHECKPOINT_SECONDS", -1)


SLOW = ("prepare shards",)  # some hundreds of calls


@pytest.fixture(
    params=[pytest.param(job, marks=[pytest.mark.slow] if job.name in SLOW else [], id=job.name) for job in JOBS]
)
def work(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    small_buffers: None,
) -> Iterator[Workspace]:
    """Yield a workspace for each job."""
    job: Job = request.param
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    job.make(folder)
    if job.old is not None:
        job.old(folder)
    shutil.copytree(folder, tmp_path / "start")
    workspace = Workspace(job, folder, tmp_path / "start", monkeypatch, capsys)
    workspace.before = workspace.contents()
    assert workspace.run()[0] == 0, capsys.readouterr().err
    workspace.after = workspace.contents()
    assert set(workspace.after) - set(workspace.before) <= set(job.new) <= set(workspace.after)
    workspace.reset()
    yield workspace
    monkeypatch.undo()
