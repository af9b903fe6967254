"""Sources on the Hugging Face Hub: `hf://datasets/ORG/NAME/...`, on a server that speaks the Hub's interface."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_hub import SHA, FakeHub, serve_hub

pytest.importorskip("obstore", reason="needs the extra remote")
pytest.importorskip("pyarrow", reason="needs the extra arrow")

from text_sources import write_jsonl, write_parquet

import fastpack

TEXTS = [f"text {number} " + "\N{BLACK SQUARE}" * (number % 7) for number in range(500)]


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[FakeHub]:
    files = {"README.md": b"# about\n"}
    for number in range(2):
        source = write_parquet(tmp_path / f"{number}.parquet", TEXTS[number * 250 : number * 250 + 250])
        files[f"data/train/{number}.parquet"] = source.read_bytes()
    files["data/all.jsonl"] = write_jsonl(tmp_path / "all.jsonl", TEXTS).read_bytes()
    with serve_hub(FakeHub({"datasets/org/crawl": files})) as server:
        yield server


@pytest.fixture
def expected(tmp_path: Path) -> bytes:
    path = fastpack.pack(write_jsonl(tmp_path / "expected.jsonl", TEXTS), tokenizer="bytes").path
    return Path(path).read_bytes()


def fastpack_run(hub: FakeHub, folder: Path, *words: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a new process, because huggingface_hub reads its settings when it is imported."""
    environment = hub.environment(folder / "home") | {"FASTPACK_CACHE_DIR": str(folder / "cache")} | settings
    command = [sys.executable, "-m", "fastpack", *words]
    return subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "source",
    [
        "hf://datasets/org/crawl/data/train/*.parquet",
        "hf://datasets/org/crawl/data/train",
        "hf://datasets/org/crawl@refs%2Fv1/data/all.jsonl",
        "hf://datasets/org/crawl/data/all.jsonl",
    ],
)
def test_pack(source: str, hub: FakeHub, expected: bytes, tmp_path: Path) -> None:
    target = tmp_path / "out.pbin"
    done = fastpack_run(hub, tmp_path, "pack", source, "--tokenizer", "bytes", "-o", str(target), "-q")
    if "@" in source:
        assert any("revision/refs" in request for request in hub.requests)
    assert done.returncode == 0, done.stderr
    assert target.read_bytes() == expected
    contents = [request for request in hub.requests if "resolve" in request]
    assert contents
    assert all(f"resolve/{SHA}/data/" in request for request in contents)


@pytest.mark.parametrize(
    ("words", "most"),
    [
        (["info", "hf://datasets/org/crawl/data/train"], 9),
        (["info", "hf://datasets/org/crawl/data/all.jsonl"], 6),
        (["preview", "hf://datasets/org/crawl/data/train/0.parquet"], 6),
    ],
)
def test_nothing_is_requested_twice(words: list[str], most: int, hub: FakeHub, tmp_path: Path) -> None:
    done = fastpack_run(hub, tmp_path, *words)
    assert done.returncode == 0, done.stderr
    about = [request for request in hub.requests if "api/" in request and "paths-info" not in request]
    assert len(about) <= len(set(about)) + 1  # a folder is listed with and without its subfolders
    assert len(hub.requests) <= most


@pytest.mark.parametrize(
    ("source", "settings", "message"),
    [
        ("hf://datasets/org/crawl/data/none.jsonl", {}, "does not exist"),
        ("hf://datasets/org/none/a.jsonl", {}, "No such repository"),
        ("hf://spaces/org/a/b.jsonl", {}, "expected hf://datasets/ORG/NAME/PATH"),
        ("hf://datasets/org/crawl/data/all.jsonl", {"HF_HUB_OFFLINE": "1"}, "HF_HUB_OFFLINE is set"),
    ],
)
def test_what_is_not_found(source: str, settings: dict[str, str], message: str, hub: FakeHub, tmp_path: Path) -> None:
    words = ("pack", source, "--tokenizer", "bytes", "-o", str(tmp_path / "out.pbin"), "-q")
    done = fastpack_run(hub, tmp_path, *words, **settings)
    assert done.returncode == 1
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out.pbin").exists()


def test_private_dataset_needs_the_token(hub: FakeHub, expected: bytes, tmp_path: Path) -> None:
    hub.token = "secret"
    target = tmp_path / "out.pbin"
    words = ("pack", "hf://datasets/org/crawl/data/train", "--tokenizer", "bytes", "-o", str(target), "-q")
    assert "HF_TOKEN" in fastpack_run(hub, tmp_path, *words).stderr
    done = fastpack_run(hub, tmp_path, *words, HF_TOKEN="secret")
    assert done.returncode == 0, done.stderr
    assert target.read_bytes() == expected


def test_the_hub_is_never_written(hub: FakeHub, tmp_path: Path) -> None:
    source = write_jsonl(tmp_path / "a.jsonl", TEXTS)
    words = ("pack", str(source), "--tokenizer", "bytes", "-o", "hf://datasets/org/crawl/a.pbin", "-q")
    done = fastpack_run(hub, tmp_path, *words)
    assert done.returncode == 1
    assert "the Hugging Face Hub can be read only" in done.stderr
    done = fastpack_run(hub, tmp_path, "pack", "hf://datasets/org/crawl/data/all.jsonl", "--tokenizer", "bytes")
    assert done.returncode == 1
    assert "--output is needed: nothing can be written next to hf://datasets/org/crawl/data/all.jsonl" in done.stderr


@pytest.mark.parametrize("source", ["data/train/0.parquet", "data/train", "data/train/*.parquet"])
def test_info_preview_and_report(source: str, hub: FakeHub, tmp_path: Path) -> None:
    path = f"hf://datasets/org/crawl/{source}"
    n_rows = 250 if source.endswith("0.parquet") else 500
    found = json.loads(fastpack_run(hub, tmp_path, "info", path, "--json").stdout)
    assert (found["kind"], found["rows"], found["text_bytes"]["min"]) == ("parquet", n_rows, 7)
    words = ("preview", path, "--json", "--start", str(n_rows - 1))
    rows = json.loads(fastpack_run(hub, tmp_path, *words).stdout)["rows"]
    assert [(row["row"], row["text"]) for row in rows] == [(249, TEXTS[n_rows - 1])]
    page = tmp_path / "r.html"
    done = fastpack_run(hub, tmp_path, "report", path, "-o", str(page), "--json")
    assert json.loads(done.stdout)["documents"] == n_rows
