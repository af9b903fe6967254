"""What it costs to ask a run for its counts after each batch, and to change its mixture before each batch."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import fastpack
from fastpack import kernels

from .batches import EOS
from .common import CORPUS_SEED, ratio, row, token_stream
from .loader import endless

NAMES = ("web", "books", "code", "math")
TOKENS, BATCHES, ROUNDS = 6_000_000, 25, 40
SHAPES = {"8 x 2048": (8, 2048), "32 x 4096": (32, 4096)}


class RunControl:
    """Packed batches of a mixture of 4 sources, in CPU time, without the background thread, which varies with load."""

    params = ([*SHAPES],)
    param_names = ("shape",)

    def setup(self, _shape: str) -> None:
        kernels.use("cython")
        self.folder = tempfile.TemporaryDirectory()
        rng = np.random.default_rng(CORPUS_SEED)
        for name in NAMES:
            Path(self.folder.name, name).mkdir()
            np.save(Path(self.folder.name, name, "tokens.npy"), token_stream(TOKENS, "uint16", EOS, rng))
        self.weights = rng.random((1000, len(NAMES))).tolist()

    def teardown(self, _shape: str) -> None:
        self.folder.cleanup()

    def loop(self, shape: str, control: Callable[[fastpack.StatefulDataLoader[object], int], object]) -> object:
        """Return a function that takes BATCHES batches and calls `control` after each."""
        rows, length = SHAPES[shape]
        folders = [f"{self.folder.name}/{name}" for name in NAMES]
        datasets = [fastpack.MemoryMappedDataset(one, length + 1, "*.npy", True, EOS) for one in folders]
        mixture = fastpack.MixtureDataset(datasets, NAMES)
        sampler = fastpack.MixtureSampler(mixture.cumulative_sizes, [4, 3, 2, 1], 1, 0, no_repeat=True, names=NAMES)
        loader: fastpack.StatefulDataLoader[object] = fastpack.StatefulDataLoader(mixture, rows, sampler, prefetch=0)
        batches = endless(loader)

        def take() -> None:
            for number in range(BATCHES):
                next(batches)
                control(loader, number)

        return take

    def cost(self, shape: str, control: Callable[[fastpack.StatefulDataLoader[object], int], object]) -> float:
        plain, controlled = self.loop(shape, lambda _loader, _number: None), self.loop(shape, control)
        return ratio(controlled, plain, ROUNDS, time.process_time)  # type: ignore[arg-type]

    @row("batches with counts() after each", "x without")
    def track_counts(self, shape: str) -> float:
        return self.cost(shape, lambda loader, _number: loader.counts())

    @row("batches with update_weights() before each", "x without")
    def track_update_weights(self, shape: str) -> float:
        return self.cost(shape, lambda loader, number: loader.sampler.update_weights(self.weights[number]))
