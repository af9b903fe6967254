"""Batches compared with memcpy and memset of the same arrays and with the two implementations of KempnerForge."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

import fastpack
from fastpack import kernels

from .common import CORPUS_SEED, ratio, row, token_stream

EOS, LENGTH, ROWS = 7, 2048, 32
RING = 4  # batches in a loop with the loader's default: two ahead, one in production, one in use
TOKENS_PER_SHARD, SHARDS = 8_000_000, 4  # 64 MB of uint16: more than a processor's cache, less than its page cache


def per_token_sample(tokens: np.ndarray) -> dict[str, np.ndarray]:
    """Make a sample with a Python loop over the elements of the array, as KempnerForge 5666d0d."""
    ids, document = np.zeros(len(tokens), np.int64), 0
    for position in range(len(tokens)):
        ids[position] = document
        if tokens[position] == EOS:
            document += 1
    labels = tokens[1:].copy()
    labels[ids[:-1] != ids[1:]] = -100
    return {"input_ids": tokens[:-1], "labels": labels, "doc_ids": ids[:-1]}


def cumsum_sample(tokens: np.ndarray) -> dict[str, np.ndarray]:
    """Make a sample with vectorised NumPy, as a pending change of KempnerForge."""
    ends = tokens == EOS
    ids = np.cumsum(ends) - ends
    labels = tokens[1:].copy()
    labels[ids[:-1] != ids[1:]] = -100
    return {"input_ids": tokens[:-1], "labels": labels, "doc_ids": ids[:-1]}


class Batches:
    """Shuffled batches [32, 2048] from shards in the page cache, into reused arrays."""

    params = ["numba", "cython"]
    param_names = ["backend"]
    timeout = 300

    def setup(self, backend: str) -> None:
        self.folder = tempfile.TemporaryDirectory()
        rng = np.random.default_rng(CORPUS_SEED)
        for number in range(SHARDS):
            tokens = token_stream(TOKENS_PER_SHARD, "uint16", EOS, rng)
            np.save(Path(self.folder.name, f"shard_{number}.npy"), tokens)
        kernels.use(backend)
        kernels.warm(token_dtypes=("uint16",), out_dtypes=("int64",))
        self.packed = fastpack.MemoryMappedDataset(self.folder.name, LENGTH + 1, "*.npy", True, EOS)
        self.plain = fastpack.MemoryMappedDataset(self.folder.name, LENGTH + 1)
        self.order = rng.permutation(len(self.packed))
        self.position = 0
        self.out = {name: np.zeros((ROWS, LENGTH), np.int64) for name in ("input_ids", "labels", "doc_ids")}
        self.pair = {name: self.out[name] for name in ("input_ids", "labels")}
        self.spare = {name: array.copy() for name, array in self.out.items()}
        self.ring = [{name: array.copy() for name, array in self.out.items()} for _ in range(RING)]
        self.packed.batch(range(0, len(self.packed), 100))  # every shard mapped
        self.plain.batch(range(0, len(self.plain), 100))
        self.mapped = [np.load(path, mmap_mode="r") for path in sorted(Path(self.folder.name).glob("*.npy"))]

    def teardown(self, _backend: str) -> None:
        self.folder.cleanup()

    def rows(self) -> np.ndarray:
        """Return the sample numbers of the next batch."""
        self.position = (self.position + ROWS) % (len(self.order) - ROWS)
        return self.order[self.position : self.position + ROWS]

    def fill_packed(self) -> None:
        self.packed.fill(self.rows(), self.out)

    def fill_plain(self) -> None:
        self.plain.fill(self.rows(), self.pair)

    def memcpy(self) -> None:
        for name, array in self.out.items():
            np.copyto(self.spare[name], array)

    def memset(self) -> None:
        for array in self.out.values():
            array.fill(1)

    def fill_ring(self) -> None:
        for out in self.ring:
            self.packed.fill(self.rows(), out)

    def memset_ring(self) -> None:
        for out in self.ring:
            for array in out.values():
                array.fill(1)

    def window(self, index: int) -> np.ndarray:
        shard, local = divmod(int(index), TOKENS_PER_SHARD // (LENGTH + 1))
        start = local * (LENGTH + 1)
        return self.mapped[shard][start : start + LENGTH + 1].astype(np.int64)

    def collate(self, sample) -> None:
        samples = [sample(self.window(index)) for index in self.rows()]
        for name in samples[0]:
            np.stack([one[name] for one in samples])

    def plain_by_numpy(self) -> None:
        windows = [self.window(index) for index in self.rows()]
        np.stack([window[:-1] for window in windows])
        np.stack([window[1:] for window in windows])

    @row("packed batch: input_ids, labels, doc_ids", "x memcpy of the same arrays")
    def track_packed_to_memcpy(self, _backend: str) -> float:
        return ratio(self.fill_packed, self.memcpy, rounds=300)

    @row("packed batch in one buffer", "x memset of the same arrays")
    def track_packed_to_memset(self, _backend: str) -> float:
        return ratio(self.fill_packed, self.memset, rounds=300)

    @row(f"packed batch in a ring of {RING} buffers", "x memset of the same arrays")
    def track_packed_to_memset_in_ring(self, _backend: str) -> float:
        return ratio(self.fill_ring, self.memset_ring, rounds=100)

    # Tried without a gain: one fused loop, blocks, prefetching the next window.
    @row("packed batch", "x a Python loop over tokens + collate")
    def track_packed_to_python_loop(self, _backend: str) -> float:
        return ratio(self.fill_packed, lambda: self.collate(per_token_sample), rounds=7)

    @row("packed batch", "x vectorised cumsum per sample + collate")
    def track_packed_to_cumsum(self, _backend: str) -> float:
        return ratio(self.fill_packed, lambda: self.collate(cumsum_sample), rounds=50)

    @row("plain batch: input_ids, labels", "x NumPy slice + astype + stack")
    def track_plain_to_numpy(self, _backend: str) -> float:
        return ratio(self.fill_plain, self.plain_by_numpy, rounds=50)


class OneSample:
    """`dataset[i]` with 2048 tokens compared with slicing a mapping, as KempnerForge's plain dataset."""

    timeout = 120

    def setup(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        rng = np.random.default_rng(CORPUS_SEED)
        path = Path(self.folder.name, "shard.npy")
        np.save(path, token_stream(TOKENS_PER_SHARD, "uint16", EOS, rng))
        self.dataset = fastpack.MemoryMappedDataset(self.folder.name, LENGTH + 1)
        self.mapped = np.load(path, mmap_mode="r")
        self.order = rng.integers(0, len(self.dataset), 2000).tolist()

    def teardown(self) -> None:
        self.folder.cleanup()

    def ours(self) -> None:
        for index in self.order:
            self.dataset[index]

    def theirs(self) -> None:
        for index in self.order:
            tokens = self.mapped[index * (LENGTH + 1) : (index + 1) * (LENGTH + 1)].astype(np.int64)
            _ = {"input_ids": tokens[:-1], "labels": tokens[1:]}

    @row("one sample, `dataset[i]`", "x slicing a memmap")
    def track_one_sample(self) -> float:
        return ratio(self.ours, self.theirs)


class ReadByPosition:
    """Batches [32, 2048] of files in the page cache with io="pread" compared with mapped files."""

    timeout = 120

    def setup(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        rng = np.random.default_rng(CORPUS_SEED)
        for number in range(SHARDS):
            np.save(Path(self.folder.name, f"{number}.npy"), token_stream(TOKENS_PER_SHARD, "uint16", EOS, rng))
        kernels.use("cython")
        self.datasets = {
            (io, packed): fastpack.MemoryMappedDataset(
                self.folder.name, LENGTH + 1, "*.npy", packed, EOS if packed else None, io=io
            )
            for io in ("mmap", "pread")
            for packed in (False, True)
        }
        self.order, self.position = rng.permutation(len(self.datasets["mmap", False])), 0
        self.out = {packed: self.datasets["mmap", packed].new_outputs(ROWS) for packed in (False, True)}
        for dataset in self.datasets.values():
            dataset.batch(range(0, len(dataset), 100))

    def teardown(self) -> None:
        self.folder.cleanup()

    def fill(self, io: str, packed: bool) -> None:
        self.position = (self.position + ROWS) % (len(self.order) - ROWS)
        self.datasets[io, packed].fill(self.order[self.position : self.position + ROWS], self.out[packed])

    def ratio(self, packed: bool) -> float:
        return ratio(lambda: self.fill("pread", packed), lambda: self.fill("mmap", packed), rounds=600)

    @row('plain batch, `io="pread"`', "x mapped files")
    def track_plain(self) -> float:
        return self.ratio(False)

    @row('packed batch, `io="pread"`', "x mapped files")
    def track_packed(self) -> float:
        return self.ratio(True)
