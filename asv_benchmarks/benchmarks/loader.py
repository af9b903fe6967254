"""The loader compared with torch's DataLoader, and with itself without a thread, in CPU time of all processes."""

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
from .common import CORPUS_SEED, ratio, row, token_stream

TOKENS_PER_SHARD, SHARDS = 8_000_000, 4
ROUNDS = 9
SHAPES = {"8 x 2048": (8, 2048), "32 x 2048": (32, 2048)}
STEPS = {"no step": 0.0, "steps of 1 ms": 1e-3}  # seconds of sleep after each batch


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


class BestDataset:
    """Whole batches of one mapped file, input_ids and labels as views of one array: what a user of torch would write.

    Of the variants that were measured (a loop over slices, np.stack, np.cumsum, sparse updates), the fastest.
    """

    def __init__(self, path: str, length: int, packed: bool) -> None:
        tokens = np.load(path, mmap_mode="r")
        n_rows = len(tokens) // (length + 1)
        self.rows = np.asarray(tokens[: n_rows * (length + 1)]).reshape(n_rows, length + 1)
        self.packed = packed

    def __len__(self) -> int:
        return len(self.rows)

    def __getitems__(self, numbers: list[int]) -> tuple[Any, ...]:
        import torch

        windows = torch.from_numpy(self.rows[numbers].astype(np.int64))
        input_ids, labels = windows[:, :-1], windows[:, 1:]
        if not self.packed:
            return input_ids, labels
        ends, doc_ids = input_ids == EOS, torch.zeros_like(input_ids)
        torch.cumsum(ends[:, :-1], 1, out=doc_ids[:, 1:])
        return input_ids, labels.masked_fill(ends, -100), doc_ids


class BestCode:
    """Shuffled batches of one file in the page cache, by `fastpack.torch` with its defaults and by torch alone."""

    params = [*SHAPES]
    param_names = ["shape"]
    timeout = 600

    def setup(self, _shape: str) -> None:
        try:
            import torch

            import fastpack.torch
        except ImportError as error:
            raise NotImplementedError(str(error)) from error
        torch.set_num_threads(1)
        self.folder = tempfile.TemporaryDirectory()
        self.path = f"{self.folder.name}/tokens.npy"
        np.save(self.path, token_stream(TOKENS_PER_SHARD, "uint16", EOS, np.random.default_rng(CORPUS_SEED)))
        kernels.use("cython")
        self.data, self.tensors = torch.utils.data, fastpack.torch

    def teardown(self, _shape: str) -> None:
        self.folder.cleanup()

    def ratio(self, shape: str, packed: bool) -> float:
        n_rows, length = SHAPES[shape]
        ours = packed_or_plain(self.tensors, self.folder.name, length, packed)
        loader = self.tensors.StatefulDataLoader(ours, n_rows, fastpack.DistributedSampler(ours, 1, 0))
        best = BestDataset(self.path, length, packed)
        theirs = self.data.DataLoader(best, n_rows, shuffle=True, drop_last=True, collate_fn=lambda batch: batch)
        return compare(endless(loader), endless(theirs))

    @row("whole loader, plain", "x the best code over torch's DataLoader (CPU time)")
    def track_plain(self, shape: str) -> float:
        return self.ratio(shape, False)

    @row("whole loader, packed", "x the best code over torch's DataLoader (CPU time)")
    def track_packed(self, shape: str) -> float:
        return self.ratio(shape, True)


class BackgroundThread:
    """Batches [32, 2048] with the default `prefetch` and with `prefetch=0`: what the thread costs, in CPU time."""

    params = [*STEPS]
    param_names = ["step"]
    timeout = 600

    def setup(self, _step: str) -> None:
        self.folder = tempfile.TemporaryDirectory()
        tokens = token_stream(TOKENS_PER_SHARD, "uint16", EOS, np.random.default_rng(CORPUS_SEED))
        np.save(Path(self.folder.name, "tokens.npy"), tokens)
        kernels.use("cython")

    def teardown(self, _step: str) -> None:
        self.folder.cleanup()

    def ratio(self, step: str, packed: bool) -> float:
        dataset = packed_or_plain(fastpack, self.folder.name, LENGTH, packed)
        samplers = (fastpack.DistributedSampler(dataset, 1, 0) for _ in range(2))
        threaded = fastpack.StatefulDataLoader(dataset, ROWS, next(samplers))
        alone = fastpack.StatefulDataLoader(dataset, ROWS, next(samplers), prefetch=0)
        return compare(endless(threaded), endless(alone), STEPS[step])

    @row("loader with its background thread, plain", "x without one (CPU time)")
    def track_plain(self, step: str) -> float:
        return self.ratio(step, False)

    @row("loader with its background thread, packed", "x without one (CPU time)")
    def track_packed(self, step: str) -> float:
        return self.ratio(step, True)


def packed_or_plain(module: Any, folder: str, length: int, packed: bool) -> Any:
    return module.MemoryMappedDataset(folder, length + 1, "*.npy", packed, EOS if packed else None)


def compare(ours: Iterator[Any], theirs: Iterator[Any], seconds: float = 0.0) -> float:
    """Return the ratio of the CPU times of a few hundred batches, with a pause after each, once both are warm."""

    def loop(batches: Iterator[Any], count: int) -> None:
        for _ in range(count):
            batch = next(batches)  # kept until the next one is there, as in a training loop
            if seconds:
                time.sleep(seconds)
        del batch

    count = 100 if seconds else 400
    loop(ours, 5 * count), loop(theirs, 5 * count)
    return ratio(lambda: loop(ours, count), lambda: loop(theirs, count), 2 * ROUNDS, time.process_time)
