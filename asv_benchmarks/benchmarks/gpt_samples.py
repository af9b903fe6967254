"""Megatron's samples: the shuffle of its indices compared with NumPy, all indices, and samples with megatron-core's."""

from __future__ import annotations

import importlib.util
import shutil
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import fastpack
from fastpack import kernels
from fastpack.datasets.gpt.sample_order import SampleOrder, SampleRules
from fastpack.datasets.permutations import LegacyGenerator

from .common import CORPUS_SEED, ratio, row

NUMBERS = 10_000_000  # shuffled
DOCUMENTS, LENGTH, BATCH = 1_000_000, 2048, 8


class LegacyShuffle:
    """The shuffle of 10 million documents or samples."""

    params = ["numba", "cython"]
    param_names = ["backend"]
    timeout = 300

    def setup(self, backend: str) -> None:
        kernels.use(backend)
        kernels.warm()
        self.values = np.arange(NUMBERS, dtype=np.int32)

    @row("shuffle of 10 million numbers in the order of numpy.random.RandomState", "x RandomState.shuffle")
    def track_legacy_shuffle(self, _backend: str) -> float:
        ours, theirs = LegacyGenerator(CORPUS_SEED), np.random.RandomState(CORPUS_SEED)
        return ratio(lambda: ours.shuffle(self.values), lambda: theirs.shuffle(self.values), rounds=5)


class Documents:
    """10 million documents, as `SampleOrder` reads them."""

    path = "documents"

    def __init__(self) -> None:
        self.lengths = np.random.default_rng(CORPUS_SEED).integers(20, 200, NUMBERS)
        self.ends = np.cumsum(self.lengths)

    def n_tokens_of(self, documents: range) -> int:
        return int(self.ends[documents.stop - 1])

    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        return self.ends - self.lengths, self.ends


class GPTIndices:
    """All indices of 10 million documents; NumPy computes them by the closed form of the sample index."""

    timeout = 300

    def setup(self) -> None:
        self.documents = Documents()

    def ours(self) -> Any:
        rules = SampleRules(LENGTH, 1, 1, False)
        source: Any = self.documents
        return SampleOrder(source, range(NUMBERS), None, rules, True).indices()

    def theirs(self) -> np.ndarray:
        state, documents = np.random.RandomState(1), np.arange(NUMBERS, dtype=np.int32)
        state.shuffle(documents)
        ends = np.cumsum(self.documents.lengths[documents])
        firsts = np.searchsorted(ends, np.arange(1, (ends[-1] - 1) // LENGTH + 1) * LENGTH + 1)
        shuffled = np.arange(len(firsts), dtype=np.uint32)
        state.shuffle(shuffled)
        return shuffled

    @row("Megatron's indices of 10 million documents", "x NumPy")
    def track_gpt_indices(self) -> float:
        assert np.array_equal(self.ours().shuffled, self.theirs())
        return ratio(self.ours, self.theirs, rounds=3)


def write_corpus(folder: str) -> str:
    """Write a Megatron corpus of short documents; return its prefix."""
    rng, path = np.random.default_rng(CORPUS_SEED), Path(folder, "corpus.pbin")
    lengths = rng.integers(20, 200, DOCUMENTS)
    with fastpack.PackedWriter(path, 2) as writer:
        writer.append_many(rng.integers(1, 50_000, int(lengths.sum()), dtype=np.uint16), lengths)
    fastpack.convert(path, Path(folder, "corpus"), format="megatron")
    return str(Path(folder, "corpus"))


class Tokenizer:
    """What megatron-core asks of a tokenizer."""

    vocab_size, eod = 50_000, 0
    unique_identifiers: dict[str, Any] = {}


class GPTSamples:
    """Batches of 8 samples of 2,048 tokens; the peer collates its samples as torch's DataLoader does."""

    timeout = 600

    def setup(self) -> None:
        if importlib.util.find_spec("megatron") is None:
            raise NotImplementedError("megatron-core is not installed: nothing to compare with")
        self.folder = tempfile.mkdtemp()
        self.prefix = write_corpus(self.folder)
        self.ours = fastpack.GPTDataset.build(self.prefix, LENGTH, 1, (None, 0, 0), "1,0,0")[0]
        self.theirs = self.built_by_megatron()
        order = np.random.default_rng(CORPUS_SEED).permutation(len(self.theirs))
        self.batches = order[: 200 * BATCH].reshape(-1, BATCH)

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    def built_by_megatron(self) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder
            from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig
        config = GPTDatasetConfig(
            random_seed=1,
            sequence_length=LENGTH,
            blend=([self.prefix], None),
            split="1,0,0",
            tokenizer=Tokenizer(),
            reset_position_ids=False,
            reset_attention_mask=False,
            eod_mask_loss=False,
            create_attention_mask=False,
        )
        return BlendedMegatronDatasetBuilder(GPTDataset, [None, 0, 0], lambda: True, config).build()[0]

    def their_batches(self) -> None:
        from torch.utils.data import default_collate

        for numbers in self.batches:
            default_collate([self.theirs[int(number)] for number in numbers])

    def our_batches(self) -> None:
        for numbers in self.batches:
            self.ours.batch(numbers)

    @row("batches of Megatron's GPT samples", "x megatron-core's samples, collated")
    def track_gpt_batches(self) -> float:
        for name, value in self.theirs[5].items():
            assert np.array_equal(self.ours[5][name], value)
        return ratio(self.our_batches, self.their_batches, rounds=5)

    @row("one of Megatron's GPT samples by number", "x megatron-core")
    def track_gpt_samples(self) -> float:
        numbers = self.batches.reshape(-1).tolist()
        ours, theirs = self.ours, self.theirs
        return ratio(lambda: [ours[k] for k in numbers], lambda: [theirs[k] for k in numbers], rounds=5)
