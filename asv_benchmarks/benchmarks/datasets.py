"""Opening many shards, batches from them, the cost of further outputs, and blocks of packed files."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np

import fastpack
from fastpack import kernels

from .batches import EOS, LENGTH, ROWS, SHARDS, TOKENS_PER_SHARD
from .common import CORPUS_SEED, ratio, row, token_stream

MANY, MANY_MORE, MILLION = 10_000, 50_000, 1_000_000
TOKENS_PER_BATCH = ROWS * LENGTH
ALL = ("input_ids", "labels", "doc_ids", "position_ids", "cu_seqlens", "max_seqlen")


class Outputs:
    """Batches [32, 2048] with all outputs in int32 compared with the default three."""

    params = ["numba", "cython"]
    param_names = ["backend"]
    timeout = 300

    def setup(self, backend: str) -> None:
        self.folder = tempfile.TemporaryDirectory()
        rng = np.random.default_rng(CORPUS_SEED)
        for number in range(SHARDS):
            np.save(Path(self.folder.name, f"{number}.npy"), token_stream(TOKENS_PER_SHARD, "uint16", EOS, rng))
        kernels.use(backend)
        kernels.warm(token_dtypes=("uint16",), out_dtypes=("int64", "int32"))
        self.dataset = fastpack.MemoryMappedDataset(self.folder.name, LENGTH + 1, "*.npy", True, EOS)
        self.order = rng.permutation(len(self.dataset))
        self.position = 0
        # A fixed length, as compiled FlashAttention needs: three times the mean number of documents.
        self.every = self.dataset.new_outputs(ROWS, ALL, "int32", cu_seqlens_length=1 + 9 * ROWS)
        self.wide = self.dataset.new_outputs(ROWS)
        self.narrow = self.dataset.new_outputs(ROWS, dtype="int32")
        self.dataset.batch(range(0, len(self.dataset), 100))  # maps every shard

    def teardown(self, _backend: str) -> None:
        self.folder.cleanup()

    def fill(self, out) -> None:
        self.position = (self.position + ROWS) % (len(self.order) - ROWS)
        self.dataset.fill(self.order[self.position : self.position + ROWS], out)

    @row("packed batch with position_ids and cu_seqlens, int32", "x the plain packed batch")
    def track_all_outputs_to_packed(self, _backend: str) -> float:
        return ratio(lambda: self.fill(self.every), lambda: self.fill(self.wide), rounds=300)

    @row("packed batch in int32", "x the plain packed batch")
    def track_int32_to_packed(self, _backend: str) -> float:
        return ratio(lambda: self.fill(self.narrow), lambda: self.fill(self.wide), rounds=300)

    @row("packed batch with position_ids and cu_seqlens, int32", "x the packed batch in int32")
    def track_all_outputs_to_int32(self, _backend: str) -> float:
        return ratio(lambda: self.fill(self.every), lambda: self.fill(self.narrow), rounds=300)


class ManyShards:
    """A folder of 10,000 shards: opening it, and random batches from it."""

    timeout = 300

    def setup(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        rng = np.random.default_rng(CORPUS_SEED)
        tokens = token_stream(200_000, "uint16", EOS, rng)
        for number, start in enumerate(rng.integers(0, len(tokens) - 9000, MANY).tolist()):
            np.save(Path(self.folder.name, f"{number:05}.npy"), tokens[start : start + 8200])
        np.save(Path(self.folder.name, "one"), np.resize(tokens, 8200 * MANY))
        kernels.use("cython")
        self.many = self.open()
        self.one = fastpack.MemoryMappedDataset(self.folder.name, LENGTH, "one.npy", True, EOS)
        self.many.batch(range(len(self.many)))  # maps every shard and touches its pages
        self.order = rng.permutation(len(self.many))
        self.position = 0
        self.out = self.many.new_outputs(ROWS)

    def teardown(self) -> None:
        self.folder.cleanup()

    def open(self) -> fastpack.MemoryMappedDataset:
        return fastpack.MemoryMappedDataset(self.folder.name, LENGTH, "[0-9]*.npy", True, EOS)

    def fill(self, dataset: fastpack.MemoryMappedDataset) -> None:
        self.position = (self.position + ROWS) % (len(self.order) - ROWS)
        dataset.fill(self.order[self.position : self.position + ROWS], self.out)

    @row("opening 10,000 shards", "s (less is better)")
    def track_open(self) -> float:
        best = float("inf")
        for _ in range(7):
            started = time.thread_time()
            self.open()
            best = min(best, time.thread_time() - started)
        return best

    @row("packed batch from 10,000 shards", "x the same from one shard")
    def track_batch_to_one_shard(self) -> float:
        return ratio(lambda: self.fill(self.many), lambda: self.fill(self.one), rounds=300)


class Manifest:
    """50,000 small shards opened from their manifest compared with their folder."""

    timeout = 300

    def setup(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        np.save(Path(self.folder.name, "000000"), np.arange(100, dtype=np.uint16))
        shard = Path(self.folder.name, "000000.npy").read_bytes()
        for number in range(1, MANY_MORE):
            Path(self.folder.name, f"{number:06}.npy").write_bytes(shard)
        self.manifest = fastpack.write_manifest(self.folder.name).path
        kernels.use("cython")

    def teardown(self) -> None:
        self.folder.cleanup()

    @row("opening 50,000 shards from their manifest", "x opening their folder")
    def track_open_to_folder(self) -> float:
        return ratio(
            lambda: fastpack.MemoryMappedDataset(self.manifest, 50),
            lambda: fastpack.MemoryMappedDataset(self.folder.name, 50),
            rounds=5,
        )


class Mixture:
    """Batches [32, 2048] from eight datasets compared with batches from one."""

    timeout = 300

    def setup(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        rng = np.random.default_rng(CORPUS_SEED)
        for number in range(8):
            np.save(Path(self.folder.name, f"{number}.npy"), token_stream(2_000_000, "uint16", EOS, rng))
        kernels.use("cython")
        self.one = fastpack.MemoryMappedDataset(self.folder.name, LENGTH + 1, "*.npy", True, EOS)
        names = [str(number) for number in range(8)]
        datasets = [
            fastpack.MemoryMappedDataset(self.folder.name, LENGTH + 1, f"{name}.npy", True, EOS) for name in names
        ]
        self.mixture = fastpack.MixtureDataset(datasets, names)
        self.order = rng.permutation(len(self.one))
        self.position = 0
        self.out = self.mixture.new_outputs(ROWS)
        self.plain = {name: array for name, array in self.out.items() if name != "dataset_idx"}

    def teardown(self) -> None:
        self.folder.cleanup()

    def rows(self) -> np.ndarray:
        self.position = (self.position + ROWS) % (len(self.order) - ROWS)
        return self.order[self.position : self.position + ROWS]

    @row("packed batch from a mixture of 8 datasets", "x the same from one dataset")
    def track_mixture(self) -> float:
        def ours() -> None:
            self.mixture.fill(self.rows(), self.out)

        def theirs() -> None:
            self.one.fill(self.rows(), self.plain)

        return ratio(ours, theirs, rounds=300)


class Blocks:
    """Blocks of a packed file of 32 million tokens: creating the dataset, and shuffled batches of 65,536 tokens.

    The reference is Modalities' method in NumPy: an index row per block, a copy to int32 per sample, then a stack.
    """

    params = [129, 513, 2049]
    param_names = ["block_size"]
    timeout = 300

    def setup(self, block_size: int) -> None:
        self.folder = tempfile.TemporaryDirectory()
        rng = np.random.default_rng(CORPUS_SEED)
        self.path, n_tokens = Path(self.folder.name, "a.pbin"), 4 * TOKENS_PER_SHARD
        with fastpack.PackedWriter(self.path, 2) as writer:
            writer.append_many(token_stream(n_tokens, "uint16", EOS, rng), [n_tokens])
        kernels.use("numba")
        kernels.warm(token_dtypes=("uint16",), out_dtypes=("int64", "int32"))
        self.block_size, self.position = block_size, 0
        self.dataset = self.ours()
        self.data, self.index = self.theirs()
        self.rows = TOKENS_PER_BATCH // (block_size - 1)
        self.order = rng.permutation(len(self.dataset))
        self.out = self.dataset.new_outputs(self.rows)

    def teardown(self, _block_size: int) -> None:
        self.folder.cleanup()

    def ours(self) -> fastpack.PackedMemMapDatasetContinuous:
        return fastpack.PackedMemMapDatasetContinuous(self.path, "ids", self.block_size, True)

    def theirs(self) -> tuple[np.ndarray, np.ndarray]:
        with self.path.open("rb") as file:
            n_bytes, size = int.from_bytes(file.read(8), "little"), int.from_bytes(file.read(4), "little")
        data = np.memmap(self.path, mode="r", offset=12, shape=(n_bytes,))
        numbers = np.arange((n_bytes // size - self.block_size) // (self.block_size - 1) + 1)
        starts = (numbers * self.block_size - numbers) * size
        return data, np.stack((starts, np.full(len(numbers), self.block_size * size)), axis=1)

    def numbers(self) -> np.ndarray:
        self.position = (self.position + self.rows) % (len(self.order) - self.rows)
        return self.order[self.position : self.position + self.rows]

    def batch(self) -> None:
        self.dataset.fill(self.numbers(), self.out)

    def numpy_batch(self) -> None:
        samples = [
            np.frombuffer(self.data, "<u2", self.block_size, start).astype(np.int32)
            for start, _ in self.index[self.numbers()].tolist()
        ]
        np.stack(samples)

    @row(
        "PackedMemMapDatasetContinuous: construction, 32 million tokens",
        "x opening the file + NumPy index of the blocks",
    )
    def track_construction(self, _block_size: int) -> float:
        return ratio(self.ours, self.theirs, rounds=50)

    @row("PackedMemMapDatasetContinuous: batch of blocks", "x NumPy frombuffer + astype + stack")
    def track_batch_to_numpy(self, _block_size: int) -> float:
        return ratio(self.batch, self.numpy_batch, rounds=300)


class Documents:
    """Blocks that begin with documents: the traversal of the index of a packed file with a million documents."""

    timeout = 300

    def setup(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        rng = np.random.default_rng(CORPUS_SEED)
        self.path = Path(self.folder.name, "a.pbin")
        lengths = np.maximum(2, rng.lognormal(2.5, 1.0, MILLION)).astype(np.int64)  # short documents make a small file
        with fastpack.PackedWriter(self.path, 2) as writer:
            writer.append_many(np.zeros(lengths.sum(), np.uint16), lengths)
        kernels.use("cython")

    def teardown(self) -> None:
        self.folder.cleanup()

    @row("PackedMemMapDatasetMegatron: construction, a million documents", "x reading the index")
    def track_walk(self) -> float:
        def index() -> None:
            with fastpack.PackedFile(self.path) as file:
                file.index  # noqa: B018

        return ratio(lambda: fastpack.PackedMemMapDatasetMegatron(self.path, "ids", LENGTH + 1), index)
