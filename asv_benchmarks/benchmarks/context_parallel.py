"""A rank's share of long rows, compared with the whole rows: CPU time, and what it would be in proportion."""

from __future__ import annotations

import tempfile

import numpy as np

import fastpack
from fastpack import kernels

from .batches import EOS
from .common import CORPUS_SEED, ratio, row, token_stream

LENGTH, ROWS, BATCH, SIZE = 1 << 17, 16, 2, 8


class ContextParallel:
    """Rows of 131,072 packed tokens at size 8: one eighth of the work is 8 times the speed."""

    params = (["zigzag", "contiguous", "documents"],)
    param_names = ("layout",)

    def setup(self, _layout: str) -> None:
        kernels.use("cython")
        self.folder = tempfile.TemporaryDirectory()
        tokens = token_stream((LENGTH + 1) * ROWS, "uint16", EOS, np.random.default_rng(CORPUS_SEED))
        np.save(f"{self.folder.name}/tokens.npy", tokens)
        self.dataset = fastpack.MemoryMappedDataset(self.folder.name, LENGTH + 1, pack_sequences=True, eos_token_id=EOS)

    def teardown(self, _layout: str) -> None:
        self.folder.cleanup()

    def epoch(self, layout: str | None, outputs: tuple[str, ...]) -> None:
        share: dict[str, object] = {} if layout is None else {"context_parallel": (1, SIZE), "cp_layout": layout}
        loader: fastpack.StatefulDataLoader[object] = fastpack.StatefulDataLoader(
            self.dataset, BATCH, range(ROWS), prefetch=0, outputs=outputs, **share
        )
        for batch in loader:
            del batch

    @row("share of 1/8 of rows, input_ids and labels", "x whole rows")
    def track_pairs(self, layout: str) -> float:
        outputs = ("input_ids", "labels")
        return ratio(lambda: self.epoch(layout, outputs), lambda: self.epoch(None, outputs))

    @row("share of 1/8 of rows, with doc_ids and position_ids", "x whole rows")
    def track_documents(self, layout: str) -> float:
        outputs = ("input_ids", "labels", "doc_ids", "position_ids")
        return ratio(lambda: self.epoch(layout, outputs), lambda: self.epoch(None, outputs))
