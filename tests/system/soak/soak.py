"""Load mixtures with random kills, resumes and changes of the number of ranks; check that no sample is lost.

    python tests/system/soak/soak.py --minutes 60

A job is a dataset (a mixture or one folder), a sampler and some epochs. It runs in attempts. In each attempt, several
rank processes load from the last common checkpoint and log their samples, until they are killed after a random time.
Batches after the last one that all ranks logged are loaded again, with another number of ranks and another batch size.
At the end of a job, the logged samples of each epoch are compared with the order of the sampler: every sample occurs as
often as in the order, except for fewer samples than one batch on every rank at the end. All tokens of a sample are its
number, which identifies it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

import fastpack

WIDTH = 6  # tokens per sample
MAX_RANKS = 4


@dataclass
class Tally:
    """Counts of the work and of the checked epochs and samples."""

    jobs: int = 0
    attempts: int = 0
    kills: int = 0
    resizes: int = 0
    epochs: int = 0
    samples: int = 0
    repeated_work: int = 0  # batches after the last common checkpoint, which are loaded again


@dataclass
class Job:
    """A dataset and a sampler; delivered: samples by epoch; base: number of ranks at the start of each epoch."""

    folder: Path
    n_epochs: int
    dataset: Any
    make_sampler: Callable[[int, int], Any]
    state: dict[str, Any] | None = None
    delivered: dict[int, list[int]] = field(default_factory=dict)
    base: dict[int, int] = field(default_factory=dict)
    # largest number of samples of an epoch that may not fill a batch on every rank
    left: dict[int, int] = field(default_factory=dict)


def make_dataset(folder: Path, source: random.Random) -> Any:
    """Return a dataset of one to three folders of shards; every token of a sample is the number of the sample."""
    datasets, n_before = [], 0
    for name in "abc"[: source.randint(1, 3)]:
        (folder / name).mkdir()
        for shard in range(source.randint(1, 3)):
            n = source.randint(1, 400)
            tokens = np.repeat(np.arange(n_before, n_before + n, dtype=np.uint32), WIDTH)
            np.save(folder / name / f"{shard}.npy", tokens)
            n_before += n
        datasets.append(fastpack.MemoryMappedDataset(folder / name, WIDTH, io=source.choice(["mmap", "pread"])))
    return datasets[0] if len(datasets) == 1 else fastpack.MixtureDataset(datasets, list("abc"[: len(datasets)]))


def sampler_maker(dataset: Any, source: random.Random) -> Callable[[int, int], Any]:
    """Return a function (ranks, rank) -> sampler, of a random type."""
    seed, drop_last, order = source.randrange(1000), source.random() < 0.5, source.choice(["torch", "feistel"])
    if hasattr(dataset, "cumulative_sizes"):
        n_datasets = len(dataset.cumulative_sizes) - 1
        sizes = np.diff(dataset.cumulative_sizes).tolist()
        weights = sizes if source.random() < 0.5 else [source.randint(1, 9) for _ in range(n_datasets)]
        no_repeat = order == "torch" and source.random() < 0.5
        return lambda ranks, rank: fastpack.MixtureSampler(
            dataset.cumulative_sizes, weights, ranks, rank, True, seed, drop_last, order=order, no_repeat=no_repeat
        )
    if source.random() < 0.3:
        return lambda ranks, rank: fastpack.ResumableDistributedSampler(
            dataset, rank, ranks, shuffle=True, seed=seed, drop_last=drop_last
        )
    return lambda ranks, rank: fastpack.DistributedSampler(dataset, ranks, rank, True, seed, drop_last, order=order)


def run_rank(job: Job, sampler: Any, batch_size: int, prefetch: int, pace: float, log: Path) -> None:
    """Run a rank: write a line for each batch, until the epochs are finished or the process is killed."""
    loader = fastpack.StatefulDataLoader(job.dataset, batch_size, sampler, prefetch=prefetch)
    if job.state is not None:
        loader.load_state_dict(job.state)
    fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    while (epoch := loader.state_dict()["epoch"]) < job.n_epochs:
        for batch in loader:
            rows = batch["input_ids"]
            assert (rows == rows[:, :1]).all(), "a sample contains tokens of other samples"
            line = {"epoch": epoch, "ids": rows[:, 0].tolist(), "state": loader.state_dict()}
            os.write(fd, json.dumps(line).encode() + b"\n")
            time.sleep(pace)
    os.write(fd, b"{}\n")


def start(work: Callable[[], None]) -> int:
    child = os.fork()
    if child == 0:
        code = 1
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # instead of the handler of the parent
        try:
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    return child


def attempt(job: Job, source: random.Random, tally: Tally, seconds: float) -> bool:
    """Run one attempt; return whether the job is done."""
    ranks, batch_size = source.randint(1, MAX_RANKS), source.randint(1, 8)
    pace, logs = source.choice([0.0, 0.0003, 0.002]), [job.folder / f"log-{rank}" for rank in range(MAX_RANKS)]
    for log in logs:
        log.unlink(missing_ok=True)
    prefetch, children = source.randint(0, 3), []
    for rank in range(ranks):
        sampler = job.make_sampler(ranks, rank)
        children.append(start(lambda s=sampler, r=rank: run_rank(job, s, batch_size, prefetch, pace, logs[r])))
    killed = source.random() < 0.8
    if killed:
        time.sleep(seconds * source.random())
        for child in source.sample(children, ranks):
            os.kill(child, source.choice([signal.SIGKILL, signal.SIGTERM]))
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert all(code == 0 or (killed and code in (-signal.SIGKILL, -signal.SIGTERM)) for code in codes), codes
    tally.attempts += 1
    tally.kills += sum(code < 0 for code in codes)
    return record_batches(job, logs[:ranks], ranks, batch_size, tally)


def record_batches(job: Job, logs: list[Path], ranks: int, batch_size: int, tally: Tally) -> bool:
    """Record the batches up to the last one that all ranks logged; return whether the job is done."""
    lines = [(log.read_bytes() if log.exists() else b"").split(b"\n")[:-1] for log in logs]
    common, first = min(map(len, lines)), 0 if job.state is None else job.state["epoch"]
    job.left[first] = max(job.left.get(first, 0), ranks * batch_size - 1)
    tally.repeated_work += sum(map(len, lines)) - common * ranks
    for rows in zip(*(found[:common] for found in lines), strict=True):
        trees = [json.loads(row) for row in rows]
        if not trees[0]:
            assert not any(trees), "some ranks are done, others are not"
            return True
        (epoch,) = {tree["epoch"] for tree in trees}
        extra = trees[0]["state"]["elastic"]
        assert all(tree["state"]["elastic"]["consumed"] == extra["consumed"] for tree in trees)
        job.state = trees[-1]["state"]
        job.base.setdefault(epoch, extra["base_num_replicas"])
        job.delivered.setdefault(epoch, []).extend(sample for tree in trees for sample in tree["ids"])
        job.left[epoch] = max(job.left.get(epoch, 0), ranks * batch_size - 1)
    return False


def check_epochs(job: Job, tally: Tally) -> None:
    """Check that each epoch has all samples, as often as in the order of the sampler."""
    for epoch in range(job.n_epochs):
        delivered, ranks = Counter(job.delivered.get(epoch, [])), job.base.get(epoch)
        if ranks is None:  # no attempt completed a batch
            continue
        expected: Counter[int] = Counter()
        for rank in range(ranks):
            sampler = job.make_sampler(ranks, rank)
            sampler.set_epoch(epoch)
            expected.update(sampler.indices().tolist())
        more = 0 if sampler.drop_last else MAX_RANKS - 1  # a resumed epoch is padded to a multiple of the ranks
        if getattr(sampler, "no_repeat", False):  # passes continue in the next epoch, wherever the last one ended
            lost, surplus = expected.total() - delivered.total(), delivered.total() - expected.total()
        else:
            lost, surplus = (expected - delivered).total(), (delivered - expected).total()
        assert surplus <= more, f"epoch {epoch}: samples occurred too often"
        assert lost <= job.left[epoch], f"epoch {epoch}: {lost} samples are missing"
        tally.epochs += 1
        tally.samples += delivered.total()
    if job.base and getattr(sampler, "no_repeat", False):
        check_passes(job, more * len(job.base))


def check_passes(job: Job, n_padding: int) -> None:
    """Check over all epochs that a source is repeated only when all its samples have occurred."""
    delivered = Counter(sample for epoch in job.delivered.values() for sample in epoch)
    bounds = job.dataset.cumulative_sizes
    for first, stop in pairwise(bounds):
        occurred = [delivered[sample] for sample in range(first, stop)]
        too_often = sum(max(0, n - min(occurred) - 1) for n in occurred)
        assert too_often <= n_padding, f"samples {first} to {stop - 1}: {too_often} repeated before all have occurred"


def soak(seconds: float, seed: int = 0, patience: float = 0.5) -> Tally:
    """Run jobs until the time is over; raise AssertionError at the first failure."""
    source, tally, ends = random.Random(seed), Tally(), time.monotonic() + seconds
    while time.monotonic() < ends:
        folder = Path(tempfile.mkdtemp(prefix="soak-"))
        try:
            dataset = make_dataset(folder, source)
            job = Job(folder, source.randint(1, 3), dataset, sampler_maker(dataset, source))
            done, before = False, None
            while not done:
                done = attempt(job, source, tally, patience if time.monotonic() < ends else 60)
                now = job.state and job.state["elastic"]["num_replicas"]
                tally.resizes += before is not None and now != before
                before = now
            check_epochs(job, tally)
            tally.jobs += 1
        finally:
            shutil.rmtree(folder)
    return tally


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    print(soak(60 * options.minutes, options.seed))


if __name__ == "__main__":
    main()
