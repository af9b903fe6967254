"""The pickled index compared with pickle, and the packed writer with a copy of its input."""

from __future__ import annotations

import pickle
import tempfile
from pathlib import Path

import numpy as np

from fastpack import kernels
from fastpack.io import pickled_index
from fastpack.tokens.pbin.packed_writer import PackedWriter

from .common import CORPUS_SEED, document_lengths, ratio, row


def index_rows(n_rows: int) -> np.ndarray:
    """Return the raw index of JSON lines of log-normal length (mean about 3 kB); most offsets exceed 32 bits."""
    rng = np.random.default_rng(CORPUS_SEED)
    lengths = np.maximum(2, rng.lognormal(7.5, 1.0, n_rows)).astype(np.int64)
    ends = np.cumsum(lengths + 1)
    return np.stack([ends - lengths - 1, lengths], axis=1)


class PickledIndex:
    """2 million rows; pickle takes seconds per round, so three rounds must do."""

    rounds = 3
    timeout = 300

    def setup(self) -> None:
        kernels.use("cython")
        self.rows = index_rows(2_000_000)
        self.pairs = [tuple(pair) for pair in self.rows.tolist()]
        self.pickled = pickle.dumps(self.pairs, protocol=4)
        self.data = np.frombuffer(self.pickled, np.uint8)

    def encode(self) -> None:
        encoder = pickled_index.IndexEncoder(len)
        encoder.append(self.rows)
        encoder.close()

    @row("Pickled index: read", "x pickle.loads + np.array")
    def track_decode(self) -> float:
        return ratio(
            lambda: pickled_index.decode(self.data, "x.idx"),
            lambda: np.array(pickle.loads(self.pickled)),
            rounds=self.rounds,
        )

    @row("Pickled index: write", "x pickle.dumps")
    def track_encode(self) -> float:
        return ratio(self.encode, lambda: pickle.dumps(self.pairs, protocol=4), rounds=self.rounds)


class Writer:
    """Tokens in the dtype of a tokenizer to 2-byte tokens in a file; log-normal document lengths, mean 800 tokens."""

    params = (["int32", "int64"],)
    param_names = ("dtype",)
    n_tokens = 16_000_000

    def setup(self, dtype: str) -> None:
        rng = np.random.default_rng(CORPUS_SEED)
        lengths = document_lengths(self.n_tokens, rng)
        self.lengths = lengths[: np.searchsorted(np.cumsum(lengths), self.n_tokens)]
        self.tokens = rng.integers(0, 65_536, int(self.lengths.sum())).astype(dtype)
        self.copy = np.zeros_like(self.tokens)
        self.folder = tempfile.TemporaryDirectory()

    def teardown(self, _dtype: str) -> None:
        self.folder.cleanup()

    def write(self) -> None:
        writer = PackedWriter(Path(self.folder.name) / "x.pbin", 2)
        writer.append_many(self.tokens, self.lengths)
        writer.abort()

    @row("Packed file: append_many, conversion to 2 bytes with checks", "x memcpy of the input tokens")
    def track_append_many(self, _dtype: str) -> float:
        return ratio(self.write, lambda: np.copyto(self.copy, self.tokens), rounds=7)
