"""Requests and bytes for reading objects: packed files and shards in blocks, one listing per folder."""

from __future__ import annotations

import json
import pickle
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from stores import SMALL_BLOCK as BLOCK
from stores import frequent_faults

import fastpack
from fastpack.cli import main
from fastpack.documents.raw_index import read_raw_index, write_raw_index
from fastpack.errors import FormatError, JobError
from fastpack.io import open_reader
from fastpack.tokens.pbin.packed_file import PackedFile
from fastpack.tokens.pbin.packed_writer import PackedWriter

N_DOCUMENTS = 400
pytestmark = pytest.mark.usefixtures("small_blocks")


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    """Write a packed file of 1.6 MB (25 blocks)."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 2000, N_DOCUMENTS)
    with PackedWriter(tmp_path / "text.pbin", 4) as writer:
        for length in lengths:
            writer.append(np.append(rng.integers(1, 60_000, length), 0))
    return tmp_path / "text.pbin"


def counted(store: Any) -> Iterator[tuple[int, int]]:
    """Yield the numbers of requests and bytes since the previous step."""
    before = 0, 0
    while True:
        now = len(store.proxy.requests), store.proxy.sent
        yield now[0] - before[0], now[1] - before[1]
        before = now


OPTIONS = {"sample_key": "text", "block_size": 1025}
DATASETS: dict[str, Any] = {
    "continuous": lambda path: fastpack.PackedMemMapDatasetContinuous(path, **OPTIONS, reuse_last_target=True),
    "megatron": lambda path: fastpack.PackedMemMapDatasetMegatron(path, **OPTIONS),
    "documents": lambda path: fastpack.PackedMemMapDatasetBase(path, "text"),
}


@pytest.mark.parametrize("kind", DATASETS)
def test_samples_of_a_packed_file(kind: str, store: Any, packed: Path) -> None:
    url = store.put("text.pbin", packed.read_bytes())
    cost = counted(store)
    next(cost)
    remote, local = DATASETS[kind](url), DATASETS[kind](packed)
    requests, sent = next(cost)
    # One request returns the head and the size, and two look for checksums and a loss mask. Only `continuous` does not
    # read the index.
    assert (requests, sent < 2 * BLOCK) == (3, True) if kind == "continuous" else requests <= 6
    assert len(remote) == len(local) > 200
    for i in (0, len(local) // 2, -1):
        np.testing.assert_array_equal(remote[i]["text"], local[i]["text"])
    for found, expected in zip(remote[7:9]["text"], local[7:9]["text"], strict=True):
        np.testing.assert_array_equal(found, expected)
    requests, sent = next(cost)
    assert requests <= 8
    assert sent < packed.stat().st_size / 2
    again = pickle.loads(pickle.dumps(remote))
    chosen = np.random.default_rng(1).permutation(len(local))[:50]
    for found, expected in zip(again.batch(chosen)["text"], local.batch(chosen)["text"], strict=True):
        np.testing.assert_array_equal(found, expected)
    assert all(path.endswith(".mask") for method, path, _ in store.proxy.requests if method == "HEAD")


def test_training_from_a_packed_file_larger_than_the_cache(
    store: Any, packed: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    limit = 8 * BLOCK
    monkeypatch.setattr(
        "fastpack.io.stores.TRIES", 15
    )  # faults depend on the number of the request, not of the attempt
    monkeypatch.setenv("FASTPACK_CACHE_BYTES", str(limit))
    url = store.put("text.pbin", packed.read_bytes())
    store.proxy.choose = frequent_faults
    remote, local = (fastpack.PackedMemMapDatasetContinuous(path, "text", 4097, True) for path in (url, packed))
    sampler = fastpack.DistributedSampler(remote, num_replicas=1, rank=0, seed=3)
    loader = fastpack.StatefulDataLoader(remote, batch_size=8, sampler=sampler, prefetch=2)
    rows = np.concatenate([batch["text"].copy() for batch in loader])
    order = list(sampler)
    np.testing.assert_array_equal(rows, local.batch(order[: len(rows)])["text"])
    assert len(rows) > len(local) - 8
    kept = sum(path.stat().st_size for path in (tmp_path / "cache").glob("??/*"))
    assert kept <= limit + limit // 16
    assert {fault for _, _, fault in store.proxy.requests} >= {"503", "cut", "short"}


def test_packed_file_that_is_removed_or_changed_while_open(store: Any, packed: Path) -> None:
    content = packed.read_bytes()
    url = store.put("text.pbin", content)
    dataset = DATASETS["continuous"](url)
    loader = iter(fastpack.StatefulDataLoader(dataset, batch_size=8, sampler=range(len(dataset))))
    next(loader)
    pickled = pickle.dumps(dataset)
    store.proxy.choose = lambda *_: "404"
    with pytest.raises(FileNotFoundError, match=r"No such object: 's3://bucket/.*text\.pbin'"):
        for _ in loader:
            pass
    store.proxy.choose = lambda *_: None
    store.put("text.pbin", content[::-1])
    with pytest.raises(JobError, match="changed while it was read"):
        dataset[len(dataset) - 5]
    store.put("text.pbin", content[:12] + bytes(100) + content[112:])
    with pytest.raises(FormatError, match="another file of that name"):
        pickle.loads(pickled)


def test_documents_of_a_packed_file(store: Any, packed: Path) -> None:
    remote, local = PackedFile(store.put("text.pbin", packed.read_bytes())), PackedFile(packed)
    np.testing.assert_array_equal(remote[200], local[200])
    np.testing.assert_array_equal(remote.first(5), local.first(5))
    assert store.proxy.sent < packed.stat().st_size / 3
    np.testing.assert_array_equal(remote.data, local.data)  # fetches the whole object
    np.testing.assert_array_equal(remote.file, local.file)


def test_other_files_are_not_read_to_the_end(store: Any) -> None:
    for content in (bytes(12) + b"\x07" * 5_000_000, b"\0\0\0\x10" + b"\x07" * 5_000_000):
        url = store.put("x.pbin", content)
        before = store.proxy.sent
        with pytest.raises(FormatError):
            PackedFile(url)
        assert store.proxy.sent - before <= (len(content) + 3 * BLOCK if content[3] == 0 else 4 * BLOCK)


def shards(folder: Path, suffix: str) -> Path:
    folder.mkdir()
    for number in range(30):
        tokens = np.random.default_rng(number).integers(0, 50_000, 500 + number, dtype=np.uint16)
        np.save(folder / f"{number:02}.npy", tokens) if suffix == "npy" else tokens.tofile(folder / f"{number:02}.bin")
    return folder


@pytest.mark.parametrize(("suffix", "first"), [("npy", 31), ("bin", 1)])
def test_number_of_requests_for_a_folder_of_shards(suffix: str, first: int, store: Any, tmp_path: Path) -> None:
    folder = shards(tmp_path / "shards", suffix)
    url = store.put_folder(folder, "shards")
    options: dict[str, Any] = {"file_pattern": f"*.{suffix}", "dtype": None if suffix == "npy" else "uint16"}
    cost = counted(store)
    next(cost)
    dataset = fastpack.MemoryMappedDataset(url, 100, **options)
    assert next(cost)[0] <= first + (3 if suffix == "bin" else 0)  # three shards are checked for trailing zeros
    sampler = fastpack.DistributedSampler(dataset, num_replicas=1, rank=0, seed=3)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        seen = [batch["input_ids"].copy() for batch in fastpack.StatefulDataLoader(dataset, 4, sampler=sampler)]
        local = fastpack.MemoryMappedDataset(folder, 100, **options)
        np.testing.assert_array_equal(np.concatenate(seen), local.batch(list(sampler)[: 4 * len(seen)])["input_ids"])
        assert next(cost)[0] <= 30 * (epoch == 0)
    assert store.proxy.count("HEAD") == 0


@pytest.mark.parametrize("fits", [True, False])
def test_random_reads_of_shards_fetch_small_ranges_if_the_cache_cannot_hold_all(
    fits: bool, store: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shards").mkdir()
    for number in range(24):  # a block each
        tokens = np.random.default_rng(number).integers(0, 50_000, BLOCK // 2, dtype=np.uint16)
        tokens.tofile(tmp_path / "shards" / f"{number:02}.bin")
    monkeypatch.setenv("FASTPACK_CACHE_BYTES", str(30 * BLOCK if fits else 12 * BLOCK))
    options: dict[str, Any] = {"file_pattern": "*.bin", "dtype": "uint16"}
    dataset = fastpack.MemoryMappedDataset(store.put_folder(tmp_path / "shards", "shards"), 101, **options)
    samples = np.random.default_rng(0).integers(0, len(dataset), 60)
    before, cost = len(store.proxy.requests), store.proxy.sent
    rows = np.concatenate([dataset.batch(samples[k : k + 4])["input_ids"] for k in range(0, 60, 4)])
    local = fastpack.MemoryMappedDataset(tmp_path / "shards", 101, **options)
    np.testing.assert_array_equal(rows, local.batch(samples)["input_ids"])
    n_requests, n_bytes = len(store.proxy.requests) - before, store.proxy.sent - cost
    assert n_requests <= (24 if fits else 64)
    assert n_bytes <= (24 * BLOCK if fits else 64 * BLOCK // 8)


def test_replaced_shard_is_detected_on_reading(store: Any, tmp_path: Path) -> None:
    url = store.put_folder(shards(tmp_path / "shards", "npy"), "shards")
    dataset = fastpack.MemoryMappedDataset(url, 100)
    store.put("shards/03.npy", (tmp_path / "shards" / "04.npy").read_bytes())
    dataset.check_unchanged()
    dataset[0]
    with pytest.raises(JobError, match=r"03\.npy changed while it was read"):
        dataset[17]


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    """Write a source of 2 MB (32 blocks) with a line that is not JSON in the last eighth."""
    rng = random.Random(0)
    path = tmp_path / "text.jsonl"
    texts = [json.dumps({"text": "word " * rng.randrange(400)}) for _ in range(2000)]
    path.write_text("\n".join([*texts[:1900], "{oops", *texts[1900:]]))
    return path


@pytest.mark.parametrize("command", ["index", "pack", "pack with an index"])
def test_rank_reads_only_its_share_of_the_source(
    command: str, store: Any, lines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, n_bytes = store.put("text.jsonl", lines.read_bytes()), lines.stat().st_size
    n_index = 0
    if command == "pack with an index":
        assert main(["index", str(lines), "-q", "--drop-faulty"]) == 0
        store.put("text.idx", lines.with_suffix(".idx").read_bytes())
        n_index = lines.with_suffix(".idx").stat().st_size
    words = ["index", "-q", "--drop-faulty"] if command == "index" else ["pack", "-q", "--tokenizer", "bytes"]
    local, remote = str(lines), url
    if command == "pack":  # files in a folder need no index
        local, remote = str(lines.parent), store.url
    targets = (
        [[], []] if command == "index" else [["-o", str(tmp_path / f"{name}.pbin")] for name in ("local", "remote")]
    )
    assert main([*words, local, *targets[0]]) == 0
    words += [remote, *targets[1], "--task-bytes", str(n_bytes // 8 + 1), "--task-folder", str(tmp_path / "parts")]
    cost = counted(store)
    for rank in range(8):
        monkeypatch.setenv("FASTPACK_CACHE_DIR", str(tmp_path / f"machine{rank}"))
        next(cost)
        assert main([*words, "--rank", str(rank), "--world-size", "8"]) == 0
        assert next(cost)[1] <= n_bytes / 8 + 4 * BLOCK + 2 * n_index, rank
    assert main([*words, "--collect"]) == 0
    if command == "index":
        assert store.get("text.idx") == lines.with_suffix(".idx").read_bytes()
    else:
        assert (tmp_path / "remote.pbin").read_bytes() == (tmp_path / "local.pbin").read_bytes()


def test_source_larger_than_the_cache(store: Any, lines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit = 10 * BLOCK
    monkeypatch.setenv("FASTPACK_CACHE_BYTES", str(limit))
    url = store.put("text.jsonl", lines.read_bytes())
    for words in (["index", "--drop-faulty"], ["pack", "--tokenizer", "bytes"], ["verify", "--deep"]):
        for path in (str(lines), url):
            assert main([words[0], path, *words[1:], "-q"]) == (3 if words[0] == "verify" else 0)
    for suffix in (".idx", ".pbin"):
        assert store.get(f"text{suffix}") == lines.with_suffix(suffix).read_bytes()
    assert sum(path.stat().st_size for path in (tmp_path / "cache").glob("??/*")) <= limit + limit // 16
    assert store.proxy.count("GET") < 300


def test_lines_in_index_order(store: Any, lines: Path, tmp_path: Path) -> None:
    assert main(["index", str(lines), "-q", "--drop-faulty"]) == 0
    rows = read_raw_index(lines.with_suffix(".idx"))[::-1]
    write_raw_index(lines.with_suffix(".idx"), rows)
    url = store.put("text.jsonl", lines.read_bytes())
    store.put("text.idx", lines.with_suffix(".idx").read_bytes())
    for path, target in ((str(lines), "local"), (url, "remote")):
        assert main(["pack", path, "--tokenizer", "bytes", "-q", "-o", str(tmp_path / f"{target}.pbin")]) == 0
    assert (tmp_path / "remote.pbin").read_bytes() == (tmp_path / "local.pbin").read_bytes()
    remote, local = fastpack.LargeFileLinesReader(url), fastpack.LargeFileLinesReader(lines)
    assert [remote[k] for k in (0, 700, -1)] == [local[k] for k in (0, 700, -1)]


def test_read_ahead(store: Any) -> None:
    content = np.random.default_rng(0).bytes(40 * BLOCK)
    url = store.put("a", content)
    times = []
    for step in (1, -1):  # forwards (prefetched) and backwards (not prefetched)
        reader, out = open_reader(url), np.empty(BLOCK, np.uint8)
        store.proxy.delay = 0.02
        start = time.perf_counter()
        for block in range(40)[::step]:
            reader.read_into(out, block * BLOCK)
            assert out.tobytes() == content[block * BLOCK : (block + 1) * BLOCK]
        times.append(time.perf_counter() - start)
        store.proxy.delay = 0.0
        url = store.put("b", content)
    assert times[0] < 0.7 * times[1]
