"""Datasets and commands give the same samples and bytes from a faulty store as from a disk."""

from __future__ import annotations

import io
import json
import random
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from stores import frequent_faults

import fastpack
from fastpack.cli import main


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


def test_index_and_pack_give_the_local_bytes(store: Any, documents: Path, tmp_path: Path) -> None:
    url = store.put("docs.jsonl", documents.read_bytes())
    store.proxy.choose = frequent_faults
    assert main(["index", str(documents), "-q"]) == 0
    assert main(["index", url, "-q"]) == 0
    assert store.get("docs.idx") == documents.with_suffix(".idx").read_bytes()
    tokenizer = byte_tokenizer(tmp_path)
    words = ["--tokenizer", str(tokenizer), "--eod-token", "<eod>", "-q"]
    assert main(["pack", str(documents), *words]) == 0
    assert main(["pack", url, *words]) == 0
    assert store.get("docs.pbin") == documents.with_suffix(".pbin").read_bytes()
    block = {"sample_key": "t", "block_size": 65, "reuse_last_target": True}
    ours = fastpack.PackedMemMapDatasetContinuous(url.replace(".jsonl", ".pbin"), **block)
    theirs = fastpack.PackedMemMapDatasetContinuous(documents.with_suffix(".pbin"), **block)
    assert len(ours) == len(theirs) > 10
    np.testing.assert_array_equal(ours.batch(range(10))["t"], theirs.batch(range(10))["t"])
    assert main(["verify", url.replace(".jsonl", ".pbin"), "-q"]) == 0


def byte_tokenizer(folder: Path) -> Path:
    from tokenizers import Tokenizer, models, pre_tokenizers

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: k for k, letter in enumerate([*letters, "<eod>"])}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    path = folder / "tokenizer.json"
    tokenizer.save(str(path))
    return path


@pytest.fixture
def images(tmp_path: Path) -> Path:
    folder = tmp_path / "images"
    folder.mkdir()
    rng = random.Random(0)
    for number in range(3):
        with tarfile.open(folder / f"s{number}.tar", "w") as tar:
            for sample in range(20):
                for field in ("txt", "bin"):
                    data = rng.randbytes(rng.randrange(2000)) if field == "bin" else f"text {number} {sample}".encode()
                    info = tarfile.TarInfo(f"k{number}{sample:03}.{field}")
                    info.size = len(data)
                    tar.addfile(info, io.BytesIO(data))
    return folder


def test_read_prepared_webdataset(store: Any, images: Path) -> None:
    assert (
        main(
            [
                "prepare",
                str(images),
                "--split-ratio",
                "1,0,0",
                "--sample-type",
                "CrudeWebdataset",
                "-q",
                "--non-interactive",
            ]
        )
        == 0
    )
    url = store.put_folder(images, "images")
    store.proxy.choose = frequent_faults
    local, remote = fastpack.WebDataset(images, "train", raw=True), fastpack.WebDataset(url, "train", raw=True)
    assert len(remote) == len(local) == 60
    for i in random.Random(1).sample(range(60), 60):
        assert remote[i] == local[i]
    key = local[17]["__key__"]
    assert remote.get(key) == local.get(key)


PREPARE = ["--non-interactive", "--split-ratio", "1,0,0", "--sample-type", "CrudeWebdataset", "-q"]


def test_prepare_in_place_on_the_bucket(store: Any, images: Path) -> None:
    url = store.put_folder(images, "images")
    store.proxy.choose = frequent_faults
    assert main(["prepare", str(images), *PREPARE]) == 0
    assert main(["prepare", url, *PREPARE]) == 0
    ours, theirs = store.get_folder("images"), {}
    for path in images.rglob("*"):
        if path.is_file():
            theirs[str(path.relative_to(images))] = path.read_bytes()
    assert set(ours) == set(theirs)
    unlike = {".nv-meta/index.uuid", ".nv-meta/.fastpack.json"}  # a random number; sizes and modification times
    assert {name for name in ours if ours[name] != theirs[name]} == unlike
    dataset = fastpack.WebDataset(url, "train", raw=True)
    assert [sample["__key__"] for sample in dataset] == [
        sample["__key__"] for sample in fastpack.WebDataset(images, "train", raw=True)
    ]
    assert main(["verify", url, "-q"]) == 0
    before = store.proxy.count("PUT")
    assert main(["prepare", url, "--force-overwrite", *PREPARE]) == 0
    assert store.proxy.count("PUT") - before <= 8  # no shard was scanned again


def test_inspection_commands(store: Any, shards: Path, documents: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for local, url in (
        (shards, store.put_folder(shards, "shards")),
        (documents, store.put("docs.jsonl", documents.read_bytes())),
    ):
        assert main(["info", "--json", str(local)]) == 0
        expected = json.loads(capsys.readouterr().out)
        assert main(["info", "--json", url]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found.pop("path") == url
        expected.pop("path")
        assert found == expected
        assert main(["preview", "-n", "2", url]) == 0
        assert capsys.readouterr().out.count("\n") > 1
