"""Ranks that share a bucket: sources, task outputs, markers and results are objects of a faulty store."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from packed_files import write_packed
from preparing import write_tar

from fastpack.cli import main

WORLD = 3


def frequent_faults(number: int, method: str, path: str) -> str | None:
    return None if method not in ("GET", "PUT") or number % 7 else "503"


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    rng = random.Random(0)
    folder = tmp_path / "docs"
    folder.mkdir()
    for number in range(2):
        lines = [json.dumps({"text": "x" * rng.randrange(200)}) if k % 40 else "{oops" for k in range(300)]
        (folder / f"{number}.jsonl").write_text("\n".join(lines))
    return folder


def ranks(words: list[str], *last: str) -> None:
    for rank in range(WORLD):
        assert main([*words, "--rank", str(rank), "--world-size", str(WORLD), "-q"]) == 0
    assert main([*words, *last, "--collect", "-q"]) == 0


def test_index_and_pack(store: Any, documents: Path, tmp_path: Path) -> None:
    url = store.put_folder(documents, "docs")
    store.proxy.choose = frequent_faults
    assert main(["index", str(documents), "--drop-faulty", "-q"]) == 0
    assert main(["pack", str(documents), "--tokenizer", "bytes", "-o", str(tmp_path / "local.pbin"), "-q"]) == 0
    ranks(["index", url, "--drop-faulty", "--task-bytes", "19000"])
    ranks(["pack", url, "--tokenizer", "bytes", "-o", f"{url}/remote.pbin", "--task-bytes", "19000"])
    found = store.get_folder("docs")
    assert found["remote.pbin"] == (tmp_path / "local.pbin").read_bytes()
    assert found["0.idx"] == (documents / "0.idx").read_bytes()
    assert set(found) == {"0.jsonl", "1.jsonl", "0.idx", "1.idx", "remote.pbin"}
    ranks(["verify", f"{url}/remote.pbin", f"{url}/0.jsonl"])


@pytest.mark.slow
def test_merge_and_shuffle(store: Any, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for name in ("a.pbin", "b.pbin"):
        write_packed(tmp_path / "in" / name, [[number] * (number % 9) for number in range(200)])
    shutil.copy(tmp_path / "in" / "a.pbin", tmp_path / "in" / "a.jsonl")  # lines are not parsed
    url = store.put_folder(tmp_path / "in", "in")
    store.proxy.choose = frequent_faults
    for words in (["merge", "IN", "OUT"], ["shuffle", "IN/a.jsonl", "OUT"]):
        seed = ["--seed", "1"] if words[0] == "shuffle" else []
        local = [word.replace("IN", f"{tmp_path}/in").replace("OUT", f"{tmp_path}/local") for word in words]
        assert main([*local, *seed, "--force", "-q"]) == 0
        remote = [word.replace("IN", url).replace("OUT", f"{url}/remote") for word in words]
        ranks([*remote, *seed, "--force", "--task-bytes", "700"])
        found = store.get_folder("in")
        assert found["remote"] == (tmp_path / "local").read_bytes()
        assert set(found) == {"a.pbin", "b.pbin", "a.jsonl", "remote"}


def test_prepare_in_place(store: Any, tmp_path: Path) -> None:
    images = tmp_path / "images"
    for shard in range(5):
        write_tar(images / f"{shard}.tar", [f"{shard}_{k}.{field}" for k in range(9) for field in ("jpg", "txt")])
    url = store.put_folder(images, "images")
    store.proxy.choose = frequent_faults
    split = ["--non-interactive", "--split-ratio", "3,1,1"]
    assert main(["prepare", str(images), *split, "-q"]) == 0
    ranks(["prepare", url, "--task-bytes", "1"], *split)
    ours = store.get_folder("images")
    theirs = {str(path.relative_to(images)): path.read_bytes() for path in images.rglob("*") if path.is_file()}
    assert set(ours) == set(theirs)
    assert {name for name in ours if ours[name] != theirs[name]} == {".nv-meta/index.uuid", ".nv-meta/.fastpack.json"}
