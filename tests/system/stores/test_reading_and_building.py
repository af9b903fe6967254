"""Datasets and commands give the same samples and bytes from a faulty store as from a disk."""

from __future__ import annotations

import json
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import Cli
from forks import check_in_a_fork
from stores import frequent_faults
from tar_files import write_tar

import fastpack


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    folder = tmp_path / "shards"
    folder.mkdir()
    for k in range(3):
        np.save(folder / f"s{k}.npy", rng.integers(0, 50_000, 40_000 + k, dtype=np.uint16))
    return folder


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    rng = random.Random(0)
    path = tmp_path / "docs" / "docs.jsonl"
    path.parent.mkdir()
    path.write_text("".join(json.dumps({"text": "word " * rng.randrange(50), "n": n}) + "\n" for n in range(300)))
    return path


def test_windows_of_remote_shards(store: Any, shards: Path) -> None:
    url = store.put_folder(shards, "shards")
    store.proxy.choose = frequent_faults
    local = fastpack.MemoryMappedDataset(shards, 129, pack_sequences=True, eos_token_id=7)
    remote = fastpack.MemoryMappedDataset(url, 129, pack_sequences=True, eos_token_id=7)
    assert len(remote) == len(local)
    order = np.random.default_rng(1).permutation(len(local))
    for start in range(0, len(order), 64):
        ours, theirs = remote.batch(order[start : start + 64]), local.batch(order[start : start + 64])
        for name in theirs:
            np.testing.assert_array_equal(ours[name], theirs[name])
    np.testing.assert_array_equal(remote[5]["doc_ids"], local[5]["doc_ids"])


@pytest.mark.parametrize("n_tokens", [129, 20_000])  # less and more than a page
def test_changed_cache_blocks_are_noticed_between_batches(
    n_tokens: int, store: Any, shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote = fastpack.MemoryMappedDataset(store.put_folder(shards, "shards"), n_tokens)
    expected = fastpack.MemoryMappedDataset(shards, n_tokens).batch(range(len(remote)))["input_ids"]

    def rows() -> Any:
        return remote.batch(range(len(remote)))["input_ids"]

    for _ in range(3):  # fetched, mapped, and read where they are mapped
        np.testing.assert_array_equal(rows(), expected)
    before = store.proxy.count("GET")
    np.testing.assert_array_equal(rows(), expected)
    assert store.proxy.count("GET") == before
    monkeypatch.setattr("fastpack.io.held_pages.LOOK_SECONDS", 0.0)
    for damage in (lambda data: data[:500] + b"?" + data[501:], lambda data: data[:-1]):
        for path in (tmp_path / "cache").glob("??/*"):
            data = damage(path.read_bytes())
            path.unlink()  # a shorter file would end the process, which still maps it
            path.write_bytes(data)
        np.testing.assert_array_equal(rows(), expected)
    assert store.proxy.count("GET") == before + 2 * 3


def test_threads_and_a_fork_read_mapped_blocks(store: Any, shards: Path) -> None:
    remote = fastpack.MemoryMappedDataset(store.put_folder(shards, "shards"), 129)
    expected = fastpack.MemoryMappedDataset(shards, 129).batch(range(len(remote)))["input_ids"]
    orders = [np.random.default_rng(k).permutation(len(remote)) for k in range(4)]

    def check(order: Any) -> None:
        for start in range(0, len(order), 16):
            chosen = order[start : start + 16]
            np.testing.assert_array_equal(remote.batch(chosen)["input_ids"], expected[chosen])

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(check, orders))
    check_in_a_fork(lambda: check(orders[0]))


def test_loader_streams_every_sample_once(store: Any, shards: Path) -> None:
    url = store.put_folder(shards, "shards")
    store.proxy.choose = frequent_faults
    dataset = fastpack.MemoryMappedDataset(url, 100)
    sampler = fastpack.DistributedSampler(dataset, num_replicas=1, rank=0, seed=3)
    loader = fastpack.StatefulDataLoader(dataset, batch_size=8, sampler=sampler, prefetch=2)
    seen = np.concatenate([batch["input_ids"].copy() for batch in loader])
    local = fastpack.MemoryMappedDataset(shards, 100)
    order = list(sampler)[: len(seen)]
    np.testing.assert_array_equal(seen, np.stack([local[i]["input_ids"] for i in order]))
    assert len(set(order)) == len(order) >= len(dataset) - 8


@pytest.fixture
def images(tmp_path: Path) -> Path:
    rng = random.Random(0)
    for number in range(3):
        members = {}
        for sample in range(20):
            members[f"k{number}{sample:03}.txt"] = f"text {number} {sample}".encode()
            members[f"k{number}{sample:03}.bin"] = rng.randbytes(rng.randrange(2000))
        write_tar(tmp_path / "images" / f"s{number}.tar", members)
    return tmp_path / "images"


def test_read_prepared_webdataset(store: Any, images: Path, cli: Cli) -> None:
    cli("prepare", images, "--split-ratio", "1,0,0", "--sample-type", "CrudeWebdataset", "-q", "--non-interactive")
    url = store.put_folder(images, "images")
    store.proxy.choose = frequent_faults
    local, remote = fastpack.WebDataset(images, "train", raw=True), fastpack.WebDataset(url, "train", raw=True)
    assert len(remote) == len(local) == 60
    for i in random.Random(1).sample(range(60), 60):
        assert remote[i] == local[i]
    key = local[17]["__key__"]
    assert remote.get(key) == local.get(key)


def test_inspection_commands(store: Any, shards: Path, documents: Path, cli: Cli) -> None:
    for local, url in (
        (shards, store.put_folder(shards, "shards")),
        (documents, store.put("docs.jsonl", documents.read_bytes())),
    ):
        expected = cli.json("info", local)
        found = cli.json("info", url)
        assert found.pop("path") == url
        expected.pop("path")
        assert found == expected
        assert cli("preview", "-n", "2", url).out.count("\n") > 1
