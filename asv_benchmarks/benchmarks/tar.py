"""The scan of a WebDataset shard compared with Python's tarfile, which lists the same members."""

from __future__ import annotations

import json
import os
import tarfile
import tempfile
from pathlib import Path
from typing import IO

import numpy as np

from fastpack import kernels
from fastpack.webdataset.shard_index import scan_shard

from .common import CORPUS_SEED, ratio, row

SHARDS = {  # samples, bytes per picture
    "small pictures": (10_000, 3_000),
    "texts": (20_000, 0),
    "large pictures": (2_000, 300_000),
}


def write_shard(path: Path, n_samples: int, picture_bytes: int) -> None:
    """Write samples of a picture of log-normal size (optional; zeros, which can be sparse), txt and json."""
    rng = np.random.default_rng(CORPUS_SEED)
    words = ["".join(rng.choice(list("abcdefghijklmnopqrstuvwxyz"), 6)) for _ in range(500)]
    with open(path, "wb") as file:
        for sample in range(n_samples):
            caption = " ".join(words[i] for i in rng.integers(0, 500, int(rng.integers(6, 36))))
            parts = {"txt": caption.encode(), "json": json.dumps({"caption": caption, "sample": sample}).encode()}
            if picture_bytes:
                _write_header(file, f"{sample:09d}.jpg", n_bytes := int(picture_bytes * rng.lognormal(0, 0.3)))
                file.seek(-(-n_bytes // 512) * 512, os.SEEK_CUR)
            for part, data in parts.items():
                _write_header(file, f"{sample:09d}.{part}", len(data))
                file.write(data + bytes(-len(data) % 512))
        file.write(bytes(1024))


def _write_header(file: IO[bytes], name: str, n_bytes: int) -> None:
    info = tarfile.TarInfo(name)
    info.size = n_bytes
    file.write(info.tobuf(tarfile.GNU_FORMAT))


def list_members(path: Path) -> int:
    """List member by member, as Energon."""
    n_files = 0
    with open(path, "rb") as file, tarfile.open(fileobj=file, mode="r:") as tar:
        for member in tar:
            n_files += member.isreg()
    return n_files


class ShardScans:
    """A shard in the page cache: its samples and fields, with keys and names."""

    params = (sorted(SHARDS),)
    param_names = ("shard",)
    timeout = 300

    def setup(self, shard: str) -> None:
        kernels.use("cython")
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "x.tar"
        write_shard(self.path, *SHARDS[shard])
        assert scan_shard(self.path).n_fields == list_members(self.path)

    def teardown(self, _shard: str) -> None:
        self.folder.cleanup()

    def time_scan(self, _shard: str) -> None:
        scan_shard(self.path)

    @row("WebDataset shard: scan", "x tarfile")
    def track_scan(self, _shard: str) -> float:
        return ratio(lambda: scan_shard(self.path), lambda: list_members(self.path), rounds=3)
