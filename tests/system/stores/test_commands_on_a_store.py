"""Commands whose sources, tasks and results are objects of a faulty store write the files of a local run."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any

import pytest
from command_line import Cli
from packed_files import write_packed
from preparing import write_tar
from stores import frequent_faults

import fastpack

VARYING = {"index.uuid", ".fastpack.json"}  # a random number; sizes and modification times
PREPARE = "--non-interactive --split-ratio 3,1,1 --sample-type CrudeWebdataset"
CHUNK = "--num-chunks 2 --chunk-id 1 --seed 3"
COMMANDS = {  # words, in which {} is the folder; those of the last step; bytes of a task
    "index": ("index {}/docs", "--drop-faulty", 19_000),
    "pack": ("pack {}/docs --tokenizer bytes -o {}/out.pbin", "", 19_000),
    "pack an indexed file": ("pack {}/indexed.jsonl --tokenizer bytes", "", 2000),
    "pack a compressed file": ("pack {}/packed.jsonl.gz --tokenizer bytes -o {}/out.pbin", "", 19_000),
    "merge": ("merge {}/packed {}/out", "", 700),
    "shuffle": ("shuffle {}/packed/a.pbin {}/out --seed 1", "", 700),
    "shuffle lines": ("shuffle {}/docs/0.jsonl {}/out.jsonl --seed 1", "", 19_000),
    "chunk": (f"chunk {{}}/packed/a.pbin {{}}/packed/b.pbin -o {{}}/out {CHUNK}", "", 700),
    "prepare": ("prepare {}/images", PREPARE, 1),
    "verify": ("verify {}/packed/a.pbin {}/indexed.jsonl", "", None),
    "filter": ("filter {}/packed/a.pbin {}/out --min-length 4", "", None),
}
ONE_PROCESS = ("filter",)
SLOW = ("merge", "shuffle", "shuffle lines", "chunk")  # by ranks: hundreds of requests, of which many fail


@pytest.fixture
def files(tmp_path: Path, cli: Cli) -> Path:
    rng, folder = random.Random(0), tmp_path / "files"
    (folder / "docs").mkdir(parents=True)
    for number in range(2):
        lines = [json.dumps({"text": "x" * rng.randrange(200)}) if k % 40 else "{oops" for k in range(300)]
        (folder / "docs" / f"{number}.jsonl").write_text("\n".join(lines))
    (folder / "indexed.jsonl").write_text(
        "".join(json.dumps({"text": "word " * (n % 50)}) + "\n" for n in range(1, 99))
    )
    (folder / "packed.jsonl.gz").write_bytes(gzip.compress((folder / "docs" / "0.jsonl").read_bytes()))
    cli("index", folder / "indexed.jsonl")
    (folder / "packed").mkdir()
    for name in ("a.pbin", "b.pbin"):
        write_packed(folder / "packed" / name, [[number] * (number % 9) for number in range(200)])
    for shard in range(5):
        members = [f"{shard}_{k}.{field}" for k in range(9) for field in ("jpg", "txt")]
        write_tar(folder / "images" / f"{shard}.tar", members)
    return folder


@pytest.mark.parametrize(
    ("name", "n_ranks"),
    [
        pytest.param(name, n_ranks, marks=pytest.mark.slow if name in SLOW and n_ranks else ())
        for name in COMMANDS
        for n_ranks in (0, 3)
        if not (n_ranks and name in ONE_PROCESS)
    ],
)
def test_files_equal_those_of_a_local_run(name: str, n_ranks: int, store: Any, files: Path, cli: Cli) -> None:
    words, last, n_bytes = COMMANDS[name]
    url = store.put_folder(files, "files")
    cli(*words.format(*[files] * 3).split(), *last.split(), "-q")
    store.proxy.choose = frequent_faults
    remote = words.format(*[url] * 3).split()
    if n_ranks:
        remote += [] if n_bytes is None else ["--task-bytes", str(n_bytes)]
        for rank in range(n_ranks):
            cli(*remote, "--rank", rank, "--world-size", n_ranks, "-q")
        last += " --collect"
    cli(*remote, *last.split(), "-q")
    store.proxy.choose = lambda *_: None
    found = store.get_folder("files")
    expected = {str(path.relative_to(files)): path.read_bytes() for path in files.rglob("*") if path.is_file()}
    assert set(found) == set(expected)
    assert {path for path in found if found[path] != expected[path]} <= {f"images/.nv-meta/{one}" for one in VARYING}


def test_prepared_shards_are_not_scanned_again(store: Any, files: Path, cli: Cli) -> None:
    url = store.put_folder(files / "images", "images")
    store.proxy.choose = frequent_faults
    for folder in (files / "images", url):
        cli("prepare", folder, *PREPARE.split(), "-q")
    local, remote = (fastpack.WebDataset(folder, raw=True) for folder in (files / "images", url))
    assert [sample["__key__"] for sample in remote] == [sample["__key__"] for sample in local]
    cli("verify", url, "-q")
    before = store.proxy.count("PUT")
    cli("prepare", url, "--force-overwrite", *PREPARE.split(), "-q")
    assert store.proxy.count("PUT") - before <= 8
