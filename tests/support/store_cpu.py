"""Measure the CPU time of a process that trains from a store, against obstore reading the same bytes.

    python tests/support/store_cpu.py [--files 4] [--rounds 5] [--window 1024]

The store is moto's S3 in a process of its own, so only the client's time is measured. One round runs every row once.
Printed are the median seconds of each row, and their ratio to those of obstore.
"""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

FILE_TOKENS = 16 << 20  # uint16: 32 MiB
REQUEST = 16 << 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--window", type=int, default=1024)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _write(folder / "tokens", args.files)
        server = subprocess.Popen(
            [sys.executable, __file__, "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        try:
            assert server.stdout is not None
            _Client(folder, server.stdout.readline().strip(), args.window).measure(args.rounds)
        finally:
            server.kill()
            server.wait()


def _write(folder: Path, n_files: int) -> None:
    rng = np.random.default_rng(0)
    folder.mkdir()
    for number in range(n_files):
        tokens = rng.integers(0, 50_000, FILE_TOKENS, dtype=np.uint16)
        (folder / f"{number:03}.bin").write_bytes(tokens.tobytes())


class _Client:
    def __init__(self, folder: Path, url: str, window: int) -> None:
        self.folder, self.url, self.window = folder, url, window
        self.names = sorted(path.name for path in (folder / "tokens").iterdir())
        keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "us-east-1"}
        os.environ |= keys | {"AWS_ENDPOINT_URL": url, "FASTPACK_CACHE_DIR": str(folder / "cache")}
        from fastpack.io import AtomicFile

        for name in self.names:
            with AtomicFile(f"s3://bucket/tokens/{name}") as file:
                file.write((folder / "tokens" / name).read_bytes())

    def measure(self, n_rounds: int) -> None:
        rows: dict[str, Callable[[], None]] = {
            "obstore": self.obstore,
            "an epoch of the disk": lambda: self.epoch(str(self.folder / "tokens")),
            "an epoch of the store, shuffled": lambda: self.epoch("s3://bucket/tokens"),
            "the same from the cache": lambda: self.epoch("s3://bucket/tokens"),
            "an epoch of the store, in order": lambda: self.epoch("s3://bucket/tokens", shuffle=False),
            "the same from the cache, in order": lambda: self.epoch("s3://bucket/tokens", shuffle=False),
        }
        seconds: dict[str, list[float]] = {name: [] for name in rows}
        for number in range(n_rounds + 1):  # the first warms up
            for name, run in rows.items():
                if "cache" not in name:
                    shutil.rmtree(self.folder / "cache", ignore_errors=True)
                start = time.process_time()
                run()
                if number:
                    seconds[name].append(time.process_time() - start)
        base = statistics.median(seconds["obstore"])
        for name, values in seconds.items():
            middle = statistics.median(values)
            sys.stdout.write(f"{name:36} {middle:7.3f} s {middle / base:6.1f}\n")

    def obstore(self) -> None:
        import obstore
        from obstore.store import S3Store

        options = {"region": "us-east-1", "access_key_id": "test", "secret_access_key": "test", "endpoint": self.url}
        store = S3Store("bucket", **options, client_options={"allow_http": True})  # type: ignore[arg-type]
        for name in self.names:
            for start in range(0, 2 * FILE_TOKENS, REQUEST):
                data: Any = obstore.get_range(store, f"tokens/{name}", start=start, length=REQUEST)
                np.frombuffer(data, np.uint8).max()

    def epoch(self, folder: str, *, shuffle: bool = True) -> None:
        import fastpack

        dataset = fastpack.MemoryMappedDataset(folder, self.window + 1, "*.bin", dtype="uint16")
        sampler = fastpack.DistributedSampler(dataset, num_replicas=1, rank=0, seed=3, shuffle=shuffle)
        for _ in fastpack.StatefulDataLoader(dataset, batch_size=16, sampler=sampler, prefetch=0):
            pass


def _serve() -> None:
    from stores import Store

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    store = Store()
    sys.stdout.write(f"{store.url}\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    _serve() if sys.argv[1:] == ["serve"] else main()
