"""`verify` and checksums of files in the page cache, in bytes per second and compared with a copy."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np

from fastpack import kernels
from fastpack.documents.create_index import create_raw_index
from fastpack.inspection.verify import verify
from fastpack.io.checksums import compute_checksums
from fastpack.tokens.pbin.packed_writer import PackedWriter

from .common import CORPUS_SEED, document_lengths, ratio, row, token_stream

EOS = 50_256
N_TOKENS = 64 << 20


def write_inputs(folder: Path) -> None:
    """Write 128 MiB each: a packed file, a shard of 2-byte tokens, and lines of log-normal length with an index."""
    rng = np.random.default_rng(CORPUS_SEED)
    tokens = token_stream(N_TOKENS, "uint16", EOS, rng)
    tokens[tokens > EOS] = 0
    np.save(folder / "shard.npy", tokens)
    ends = np.append(np.flatnonzero(tokens == EOS) + 1, N_TOKENS)
    tokens[-1] = EOS
    with PackedWriter(folder / "packed.pbin", 2) as writer:
        writer.append_many(tokens, np.diff(np.unique(ends), prepend=0))
    lengths = document_lengths(2 * N_TOKENS, rng)
    with open(folder / "lines.jsonl", "wb") as file:
        for length in lengths.tolist():
            file.write(b'"' + b"x" * length + b'"\n')
    create_raw_index(folder / "lines.jsonl", validate=False)


class Verify:
    """`verify` with the backend of the command line."""

    params = (["packed", "shard", "lines", "checksums"],)
    param_names = ("what",)
    timeout = 300

    def setup(self, what: str) -> None:
        kernels.use("cython")
        self.folder = tempfile.TemporaryDirectory()
        write_inputs(Path(self.folder.name))
        name = {"packed": "packed.pbin", "shard": "shard.npy", "lines": "lines.jsonl", "checksums": "shard.npy"}[what]
        self.path = Path(self.folder.name) / name
        self.n_bytes = self.path.stat().st_size
        self.source = np.ones(self.n_bytes, np.uint8)
        self.copy = np.zeros(self.n_bytes, np.uint8)
        self.action = (lambda: compute_checksums(self.path)) if what == "checksums" else self.look

    def teardown(self, _what: str) -> None:
        self.folder.cleanup()

    def look(self) -> None:
        assert verify(self.path, vocab_size=EOS + 1, eos_token_id=EOS).is_sound

    @row("`verify` of files in the page cache", "GB/s per core")
    def track_bytes_a_second(self, _what: str) -> float:
        best = float("inf")
        for _ in range(7):
            started = time.thread_time()
            self.action()
            best = min(best, time.thread_time() - started)
        return self.n_bytes / best / 1e9

    @row("`verify` of files in the page cache", "x memcpy of the same size")
    def track_against_memcpy(self, _what: str) -> float:
        return ratio(self.action, lambda: np.copyto(self.copy, self.source), rounds=7)
