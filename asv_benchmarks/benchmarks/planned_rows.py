"""Batches of the rows of a packing plan compared with memcpy and memset of the same arrays."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

import fastpack
from fastpack import kernels

from .common import CORPUS_SEED, document_lengths, ratio, row

ROWS, LENGTH, FILES = 8, 8192, 10
TOKENS_PER_FILE = 4_000_000


class PlannedRows:
    """Shuffled batches [8, 8192] from ten files in the page cache, into reused arrays; the plan is read for each."""

    params = ["numba", "cython"]
    param_names = ["backend"]
    timeout = 300

    def setup(self, backend: str) -> None:
        self.folder = tempfile.TemporaryDirectory()
        rng = np.random.default_rng(CORPUS_SEED)
        paths = [Path(self.folder.name, f"{number}.pbin") for number in range(FILES)]
        for path in paths:
            lengths = document_lengths(TOKENS_PER_FILE, rng)
            with fastpack.PackedWriter(path, 2) as writer:
                writer.append_many(rng.integers(0, 1 << 16, lengths.sum(), dtype=np.uint16), lengths)
        kernels.use(backend)
        kernels.warm(token_dtypes=("uint16",), out_dtypes=("int64",))
        plan = Path(self.folder.name, "corpus.plan")
        fastpack.plan(paths, plan, seq_length=LENGTH, seed=1)
        self.dataset = fastpack.PlannedDataset(plan)
        self.order, self.position = rng.permutation(len(self.dataset)), 0
        self.out = self.dataset.new_outputs(ROWS)
        self.every = self.dataset.new_outputs(ROWS, (*self.out, "position_ids", "loss_mask"))
        self.spare = {name: array.copy() for name, array in self.every.items()}
        self.dataset.batch(range(0, len(self.dataset), 100))  # every file mapped, its documents read

    def teardown(self, _backend: str) -> None:
        self.dataset.close()
        self.folder.cleanup()

    def fill(self, out: dict[str, np.ndarray]) -> None:
        self.position = (self.position + ROWS) % (len(self.order) - ROWS)
        self.dataset.fill(self.order[self.position : self.position + ROWS], out)

    def memcpy(self, out: dict[str, np.ndarray]) -> None:
        for name, array in out.items():
            np.copyto(self.spare[name], array)

    def memset(self) -> None:
        for name in self.out:
            self.spare[name].fill(1)

    @row("planned batch: input_ids, labels, doc_ids", "x memset of the same arrays")
    def track_planned_to_memset(self, _backend: str) -> float:
        return ratio(lambda: self.fill(self.out), self.memset, rounds=300)

    @row("planned batch: input_ids, labels, doc_ids", "x memcpy of the same arrays")
    def track_planned_to_memcpy(self, _backend: str) -> float:
        return ratio(lambda: self.fill(self.out), lambda: self.memcpy(self.out), rounds=300)

    @row("planned batch with position_ids and loss_mask", "x memcpy of the same arrays")
    def track_all_outputs_to_memcpy(self, _backend: str) -> float:
        return ratio(lambda: self.fill(self.every), lambda: self.memcpy(self.every), rounds=300)
