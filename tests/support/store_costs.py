"""Measure the cost of reading from a store: requests and bytes for opening and an epoch, and times relative to a disk.

    python tests/support/store_costs.py [--shards 200] [--delay 0.02]

The store is moto's S3 behind a caching proxy. Both are Python programs on the same machine and take most of the time:
compare the times only with each other. delay: latency in seconds that is added to every response.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from stores import FaultyProxy, Store

import fastpack
from fastpack.cli import main as fastpack_command


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shards", type=int, default=200)
    parser.add_argument("--delay", type=float, default=0.0)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        _Costs(Path(folder), args.shards, args.delay).print_all()


class _Costs:
    def __init__(self, folder: Path, n_shards: int, delay: float) -> None:
        self.folder, self.delay = folder, delay
        self.moto = Store()
        self.proxy = FaultyProxy(self.moto.url, caches=True)
        names = {"ACCESS_KEY_ID": "test", "SECRET_ACCESS_KEY": "test", "REGION": "us-east-1"}
        os.environ |= {f"AWS_{name}": value for name, value in names.items()} | {"AWS_ENDPOINT_URL": self.proxy.url}
        os.environ["FASTPACK_CACHE_DIR"] = str(folder / "cache")
        self.n_shards = n_shards
        _write(folder, n_shards)
        for path in sorted(folder.rglob("*.*")):
            self.moto.put(str(path.relative_to(folder)), path.read_bytes())

    def print_all(self) -> None:
        _say("requests and bytes, from an empty cache")
        for suffix in ("npy", "bin"):
            with self._counted(f"open a folder of {self.n_shards} .{suffix}"):
                shards = fastpack.MemoryMappedDataset(f"s3://bucket/{suffix}", 1025, f"*.{suffix}", **_DTYPE[suffix])
            with self._counted(f"two epochs of the {self.n_shards} .{suffix}"):
                _epochs(shards, 2)
        with self._counted("open the .pbin"):
            blocks = fastpack.PackedMemMapDatasetContinuous("s3://bucket/text.pbin", "input_ids", 1025, True)
        with self._counted("two epochs of the .pbin"):
            _epochs(blocks, 2)
        _say(f"\nseconds: disk, store ({1e3 * self.delay:g} ms latency per request), ratio")
        self.proxy.delay = self.delay
        for name, run in self._jobs().items():
            disk = self._timed(run, str(self.folder))
            remote = self._timed(run, "s3://bucket")
            _say(f"{name:42} {disk:7.2f} {remote:7.2f} {remote / disk:6.1f}")

    def _jobs(self) -> dict[str, Callable[[str], Any]]:
        def command(*words: str) -> Callable[[str], Any]:
            return lambda root: fastpack_command([word.format(root) for word in words])

        return {
            "an epoch of the .npy shards": lambda root: _epochs(fastpack.MemoryMappedDataset(f"{root}/npy", 1025), 1),
            "an epoch of the .pbin": lambda root: _epochs(
                fastpack.PackedMemMapDatasetContinuous(f"{root}/text.pbin", "input_ids", 1025, True), 1
            ),
            "index": command("index", "{}/text.jsonl", "-q", "--force"),
            "pack (bytes)": command(
                "pack", "{}/text.jsonl", "--tokenizer", "bytes", "-q", "-o", "{}/new.pbin", "--force"
            ),
            "verify the .pbin": command("verify", "{}/text.pbin", "-q"),
            "verify --deep the .jsonl": command("verify", "{}/text.jsonl", "--deep", "-q"),
        }

    @contextlib.contextmanager
    def _counted(self, what: str) -> Iterator[None]:
        self.proxy.requests.clear()
        before = self.proxy.sent
        yield
        kinds = {method: self.proxy.count(method) for method, _, _ in self.proxy.requests}
        summary = ", ".join(f"{n} {method}" for method, n in sorted(kinds.items())) or "none"
        _say(f"{what:42} {summary:24} {self.proxy.sent - before:>12,} bytes")

    def _timed(self, run: Callable[[str], Any], root: str) -> float:
        best = float("inf")
        for _ in range(3):
            shutil.rmtree(self.folder / "cache", ignore_errors=True)
            start = time.perf_counter()
            run(root)
            best = min(best, time.perf_counter() - start)
        return best


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


_DTYPE: dict[str, Any] = {"npy": {}, "bin": {"dtype": "uint16"}}


def _epochs(dataset: Any, n_epochs: int) -> None:
    sampler = fastpack.DistributedSampler(dataset, num_replicas=1, rank=0, seed=3)
    loader = fastpack.StatefulDataLoader(dataset, batch_size=16, sampler=sampler)
    for epoch in range(n_epochs):
        sampler.set_epoch(epoch)
        for batch in loader:
            batch["input_ids"].sum()


def _write(folder: Path, n_shards: int) -> None:
    """Write shards of 32 KiB, and 64 MiB of documents with their index and packed file."""
    rng, words = np.random.default_rng(0), random.Random(0)
    for suffix in ("npy", "bin"):
        (folder / suffix).mkdir()
    for number in range(n_shards):
        tokens = rng.integers(0, 50_000, 16_384, dtype=np.uint16)
        np.save(folder / "npy" / f"{number:05}.npy", tokens)
        (folder / "bin" / f"{number:05}.bin").write_bytes(tokens.tobytes())
    lines = [json.dumps({"text": "some words of text " * words.randrange(1, 200)}) + "\n" for _ in range(2000)]
    with (folder / "text.jsonl").open("w") as file:
        while file.tell() < 64 << 20:
            file.writelines(words.sample(lines, len(lines)))
    path = str(folder / "text.jsonl")
    assert fastpack_command(["index", path, "-q"]) == 0
    assert fastpack_command(["pack", path, "--tokenizer", "bytes", "-q"]) == 0


if __name__ == "__main__":
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    main()
