"""Samples of a prepared WebDataset (a picture of 3 KB, txt, json) compared with tarfile and Pillow."""

from __future__ import annotations

import io
import json
import random
import tarfile
import tempfile
from pathlib import Path

import numpy as np

import fastpack
from fastpack import kernels
from fastpack.documents.offset_index import write_offset_index
from fastpack.webdataset.metadata import index_path, meta_path, write_info
from fastpack.webdataset.sample_index import write_sample_index
from fastpack.webdataset.shard_index import scan_shard, shard_index_path

from .common import CORPUS_SEED, ratio, row

SHARDS, SAMPLES_PER_SHARD, CHUNK, DECODED = 4, 2_000, 500, 100
TEXT = ("txt", "json")


def pictures(n: int, rng: np.random.Generator) -> list[bytes]:
    """Return JPEG files of 2.8 KB each, 110 x 96 pixels."""
    from PIL import Image

    found = []
    for _ in range(n):
        out = io.BytesIO()
        noise = Image.fromarray(rng.integers(0, 255, (8, 10, 3), dtype=np.uint8))
        noise.resize((110, 96), Image.Resampling.BILINEAR).save(out, "jpeg", quality=88)
        found.append(out.getvalue())
    return found


def write_dataset(folder: Path) -> None:
    """Write and prepare the shards without a dataset.yaml; samples are crude."""
    rng = np.random.default_rng(CORPUS_SEED)
    jpegs = pictures(20, rng)
    names = [f"{number}.tar" for number in range(SHARDS)]
    for name in names:
        with tarfile.open(folder / name, "w") as tar:
            for i in range(SAMPLES_PER_SHARD):
                text = f"a caption of some words, number {i}"
                parts = {
                    "jpg": jpegs[i % 20],
                    "txt": text.encode(),
                    "json": json.dumps({"text": text, "i": i}).encode(),
                }
                for part, data in parts.items():
                    info = tarfile.TarInfo(f"{name[:-4]}/{i:06}.{part}")
                    info.size = len(data)
                    tar.addfile(info, io.BytesIO(data))
    scans = [scan_shard(folder / name) for name in names]
    meta_path(folder).mkdir()
    for scan in scans:
        write_offset_index(shard_index_path(scan.path), scan.sample_offsets)
    write_info(folder, {name: scan.n_samples for name, scan in zip(names, scans, strict=True)})
    write_sample_index(index_path(folder), scans)


class SampleReads:
    """Samples one by one, in the page cache."""

    params = ["mmap", "pread"]
    param_names = ["io"]
    timeout = 300

    def setup(self, io: str) -> None:
        self.folder = tempfile.TemporaryDirectory()
        folder = Path(self.folder.name)
        write_dataset(folder)
        kernels.use("cython")
        self.raw = fastpack.WebDataset(folder, raw=True, io=io)
        self.decoded = fastpack.WebDataset(folder, io=io)
        self.texts = fastpack.WebDataset(folder, io=io, part_filter=TEXT)
        order = random.Random(CORPUS_SEED).sample(range(len(self.raw)), len(self.raw))
        self.order = order[:CHUNK]
        self.keys = [self.raw.key(i) for i in self.order]
        self.jpegs = [self.raw[i]["jpg"] for i in range(DECODED)]
        self.shard = folder / "0.tar"

    def teardown(self, _io: str) -> None:
        self.folder.cleanup()

    def in_order(self) -> None:
        for i in range(CHUNK):
            self.raw[i]

    def at_random(self) -> None:
        for i in self.order:
            self.raw[i]

    def by_key(self) -> None:
        for key in self.keys:
            self.raw.get(key)

    def decode(self) -> None:
        for i in range(DECODED):
            self.decoded[i]

    def tarfile(self) -> None:
        """Read as Energon, without its bookkeeping."""
        with open(self.shard, "rb") as file, tarfile.open(fileobj=file, mode="r:") as tar:
            for _ in range(3 * CHUNK):
                tar.extractfile(tar.next()).read()

    def pillow(self) -> None:
        """Decode the pictures as Energon, with Pillow and NumPy alone."""
        from PIL import Image

        for jpeg in self.jpegs:
            pixels = np.asarray(Image.open(io.BytesIO(jpeg)).convert("RGB"))
            (pixels.astype(np.float32) / 255.0).transpose(2, 0, 1).copy()

    @row("WebDataset: raw samples in order, 3 KB jpg + txt + json", "x Python's tarfile")
    def track_in_order(self, _io: str) -> float:
        return ratio(self.in_order, self.tarfile)

    @row("the same samples at random", "x Python's tarfile in order")
    def track_at_random(self, _io: str) -> float:
        return ratio(self.at_random, self.tarfile)

    @row("the same samples by their keys", "x Python's tarfile in order")
    def track_by_key(self, _io: str) -> float:
        return ratio(self.by_key, self.tarfile)

    @row("the same samples decoded, picture float32 [3, H, W]", "x Pillow and NumPy for the pictures")
    def track_decoded(self, _io: str) -> float:
        return ratio(self.decode, self.pillow)
