"""Packing plans compared with sorting the lengths, with TRL, and with copying the rows that they describe."""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path

import numpy as np

from fastpack.plans.make_plan import plan
from fastpack.plans.pack_bins import fit
from fastpack.plans.plan_file import PlanFile
from fastpack.plans.plan_settings import PlanSettings

from .common import CORPUS_SEED, ratio, row

DOCUMENTS, FEW = 1_000_000, 20_000
BATCH, SEQ_LENGTH = 32, 2048


def lengths_of(n_documents: int) -> np.ndarray:
    rng = np.random.default_rng(CORPUS_SEED)
    return np.maximum(1, rng.lognormal(6.18, 1.0, n_documents)).astype(np.int64)


class Plans:
    """A datatrove file, of which only the index has contents, with documents of 800 tokens on average."""

    timeout = 300
    params = (2048, 8192)
    param_names = ("seq_length",)

    def setup(self, _seq_length: int) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.lengths = lengths_of(DOCUMENTS)
        self.source = self.folder / "a.ds"
        np.cumsum(self.lengths).astype("<u8").tofile(f"{self.source}.index")
        with self.source.open("wb") as file:
            file.truncate(2 * int(self.lengths.sum()))

    def teardown(self, _seq_length: int) -> None:
        shutil.rmtree(self.folder)

    def ours(self, seq_length: int) -> None:
        plan(self.source, self.folder / "a.plan", seq_length=seq_length, if_exists="overwrite")

    @row("`plan`, best fit, 1 million documents", "x np.argsort of the lengths")
    def track_plan(self, seq_length: int) -> float:
        return ratio(
            lambda: self.ours(seq_length),
            lambda: np.argsort(self.lengths, kind="stable"),
            rounds=7,
            clock=time.process_time,
        )

    @row("`plan`, best fit, 1 million documents", "s of CPU (less is better)")
    def track_seconds(self, seq_length: int) -> float:
        best = float("inf")
        for _ in range(7):
            started = time.process_time()
            self.ours(seq_length)
            best = min(best, time.process_time() - started)
        return best

    @row("`plan`, first fit, 1 million documents", "x np.argsort of the lengths")
    def track_first_fit(self, seq_length: int) -> float:
        ends = (self.lengths % seq_length).astype(np.uint32)
        settings = PlanSettings(seq_length, "first_fit")
        return ratio(lambda: fit(ends, settings), lambda: np.argsort(self.lengths, kind="stable"), rounds=5)

    @row("best fit, 10 times the documents", "x 10 times the time")
    def track_growth(self, seq_length: int) -> float:
        ends = (lengths_of(10 * DOCUMENTS) % seq_length).astype(np.uint32)
        few = ends[:DOCUMENTS].copy()
        settings = PlanSettings(seq_length)
        return 10 * ratio(lambda: fit(ends, settings), lambda: fit(few, settings), rounds=3)

    @row("best fit, rows of a million tokens", "x the same documents in rows of this length")
    def track_long_rows(self, seq_length: int) -> float:
        ends = (self.lengths % seq_length).astype(np.uint32)
        long, short = PlanSettings(1 << 20), PlanSettings(seq_length)
        return ratio(lambda: fit(ends, long), lambda: fit(ends, short), rounds=5, clock=time.process_time)


class PeerPlans:
    """The same rows by TRL, on fewer documents."""

    timeout = 300

    def setup(self) -> None:
        try:
            from datasets import Dataset
            from trl import pack_dataset
        except ImportError:
            raise NotImplementedError("TRL is not installed") from None  # asv skips the benchmark
        self.pack_dataset = pack_dataset
        self.lengths = lengths_of(FEW)
        tokens = np.zeros(int(self.lengths.sum()), np.int32)
        rows = np.split(tokens, np.cumsum(self.lengths)[:-1])
        self.dataset = Dataset.from_dict({"input_ids": rows})

    @row("best-fit rows, 20,000 documents", "x TRL's pack_dataset, which copies the tokens as well")
    def track_trl(self) -> float:
        ends, settings = (self.lengths % SEQ_LENGTH).astype(np.uint32), PlanSettings(SEQ_LENGTH)
        options = {"batch_size": None, "load_from_cache_file": False}

        def theirs() -> None:
            self.pack_dataset(self.dataset, SEQ_LENGTH, "bfd", map_kwargs=options)

        return ratio(lambda: fit(ends, settings), theirs, rounds=3, clock=time.process_time)


class PlanRows:
    """Reading the segments of a batch."""

    timeout = 300

    def setup(self) -> None:
        self.plans = Plans()
        self.plans.setup(SEQ_LENGTH)
        self.plans.ours(SEQ_LENGTH)
        self.plan = PlanFile(self.plans.folder / "a.plan")
        self.rows = np.random.default_rng(0).integers(0, self.plan.n_rows, BATCH)

    def teardown(self) -> None:
        self.plans.teardown(SEQ_LENGTH)

    @row("segments of 32 rows of 2,048 tokens", "x memcpy of their tokens as int64")
    def track_segments(self) -> float:
        source = np.ones(BATCH * SEQ_LENGTH, np.int64)
        target = source.copy()
        return ratio(lambda: self.plan.segments(self.rows), lambda: np.copyto(target, source), rounds=500)
