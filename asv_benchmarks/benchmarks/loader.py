"""The loader compared with torch's DataLoader over a per-sample dataset: tokens per CPU second of all processes."""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import fastpack
from fastpack import kernels

from .batches import EOS, LENGTH, ROWS, per_token_sample
from .common import CORPUS_SEED, row, token_stream

TOKENS_PER_SHARD, SHARDS = 8_000_000, 4
ROUNDS = 9


class PeerDataset:
    """Windows of mapped shards one by one as tensors, as KempnerForge 5666d0d."""

    def __init__(self, folder: str, packed: bool) -> None:
        self.maps = [np.load(path, mmap_mode="r") for path in sorted(Path(folder).glob("*.npy"))]
        self.per_shard = TOKENS_PER_SHARD // (LENGTH + 1)
        self.packed = packed

    def __len__(self) -> int:
        return self.per_shard * len(self.maps)

    def __getitem__(self, index: int) -> dict[str, Any]:
        import torch

        shard, local = divmod(index, self.per_shard)
        start = local * (LENGTH + 1)
        tokens = self.maps[shard][start : start + LENGTH + 1].astype(np.int64)
        if self.packed:
            return {name: torch.from_numpy(array) for name, array in per_token_sample(tokens).items()}
        window = torch.from_numpy(tokens)
        return {"input_ids": window[:-1], "labels": window[1:]}


def workers_cpu(loader: Any) -> float:
    """Return the CPU seconds of all threads of the worker processes of a DataLoader iterator."""
    total = 0
    for worker in getattr(loader, "_workers", []):
        for task in Path(f"/proc/{worker.pid}/task").iterdir():
            total += int((task / "schedstat").read_text().split()[0])
    return total / 1e9


def endless(loader: Any) -> Iterator[Any]:
    return itertools.chain.from_iterable(itertools.repeat(loader))


class Loader:
    """Shuffled batches [32, 2048] from shards in the page cache; torch's DataLoader with 0 and 2 workers."""

    params = [0, 2]
    param_names = ["num_workers"]
    timeout = 600

    def setup(self, num_workers: int) -> None:
        try:
            import torch

            import fastpack.torch
        except ImportError as error:
            raise NotImplementedError(str(error)) from error
        self.folder = tempfile.TemporaryDirectory()
        rng = np.random.default_rng(CORPUS_SEED)
        for number in range(SHARDS):
            np.save(Path(self.folder.name, f"{number}.npy"), token_stream(TOKENS_PER_SHARD, "uint16", EOS, rng))
        kernels.use("numba")
        kernels.warm(token_dtypes=("uint16",))
        self.data, self.tensors, self.num_workers = torch.utils.data, fastpack.torch, num_workers

    def teardown(self, _num_workers: int) -> None:
        self.folder.cleanup()

    def ours(self, packed: bool) -> Any:
        dataset = self.tensors.MemoryMappedDataset(
            self.folder.name, LENGTH + 1, "*.npy", packed, EOS if packed else None
        )
        return self.tensors.StatefulDataLoader(dataset, ROWS, fastpack.DistributedSampler(dataset, 1, 0))

    def theirs(self, packed: bool) -> Any:
        dataset = PeerDataset(self.folder.name, packed)
        sampler = self.data.DistributedSampler(dataset, 1, 0)
        workers = {"num_workers": self.num_workers, "persistent_workers": self.num_workers > 0}
        return iter(self.data.DataLoader(dataset, ROWS, sampler=sampler, drop_last=True, **workers))

    def ratio(self, packed: bool, n_ours: int, n_theirs: int) -> float:
        """Return the CPU time of a batch of torch divided by that of fastpack.

        The time of this process is from the best round, that of workers an average: workers prefetch also while
        fastpack is measured, so their total time is divided by the number of their batches.
        """
        loader, theirs = self.ours(packed), self.theirs(packed)
        ours, best, before = endless(loader), {"ours": float("inf"), "theirs": float("inf")}, workers_cpu(theirs)
        take(ours, 20), take(theirs, 4)
        for _ in range(ROUNDS):
            best["theirs"] = min(best["theirs"], spent(lambda: take(theirs, n_theirs)) / n_theirs)
            best["ours"] = min(best["ours"], spent(lambda: take(ours, n_ours)) / n_ours)
        in_workers = (workers_cpu(theirs) - before) / (ROUNDS * n_theirs + 4)
        loader.close()
        if hasattr(theirs, "_shutdown_workers"):
            theirs._shutdown_workers()
        return (best["theirs"] + in_workers) / best["ours"]

    @row("whole loader, packed", "x torch DataLoader with a Python loop per sample (CPU time; workers)")
    def track_packed(self, _num_workers: int) -> float:
        return self.ratio(True, 200, 8)

    @row("whole loader, plain", "x torch DataLoader with slice + astype per sample (CPU time; workers)")
    def track_plain(self, _num_workers: int) -> float:
        return self.ratio(False, 200, 40)


def take(batches: Iterator[Any], count: int) -> None:
    for _ in range(count):
        next(batches)


def spent(work: Callable[[], object]) -> float:
    """Return the CPU seconds of all threads of this process."""
    started = time.process_time()
    work()
    return time.process_time() - started
