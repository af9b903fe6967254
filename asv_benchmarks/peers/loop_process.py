"""Run one loop in a process of its own and print the cost as JSON.

    python loop_process.py JOB

JOB is JSON: {"module", "loop": the class, "task", "started": time.monotonic() of the parent, ...}. Tasks: `prepare`
writes files; `measure` iterates an epoch; `check` computes a digest of its rows in any order, and the memory; `stop`
iterates `at` samples and writes a state; `resume` reads it. Costs are [CPU, wall] seconds since the start of the
process, of the process and its children.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import json
import os
import pickle
import resource
import sys
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

if sys.path and Path(sys.path[0]).resolve() == Path(__file__).resolve().parent:
    sys.path[0] = str(Path(__file__).resolve().parents[1])  # the megatron.py here is not the package of that name
TICKS = os.sysconf("SC_CLK_TCK")


def descendants(process: int) -> Iterator[int]:
    """Yield the ids of the live children of a process, and of their children."""
    try:
        tasks = list(Path(f"/proc/{process}/task").iterdir())
        for child in [int(word) for task in tasks for word in (task / "children").read_text().split()]:
            yield child
            yield from descendants(child)
    except OSError:
        return  # ended in between


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and of all its descendants, ended or not."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    total = sum(usage.ru_utime + usage.ru_stime for usage in usages)
    for child in descendants(os.getpid()):
        try:
            fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += sum(map(int, fields[11:15])) / TICKS
    return total


def memory() -> int:
    """Return the bytes of this process and its descendants, without mapped files; shared pages count once."""
    total = 0
    for process in (os.getpid(), *descendants(os.getpid())):
        try:
            lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in lines if line.startswith(("Pss_Anon:", "Pss_Shmem:")))
    return total * 1024


def hashes(batch: Any) -> Iterator[int]:
    """Yield a hash of each row: its input_ids, labels (-100 without loss), and position_ids."""
    import numpy as np

    arrays = [np.asarray(array) for array in batch]
    if len(arrays) == 4:
        arrays[1] = np.where(arrays.pop().astype(bool), arrays[1], -100)
    for row in zip(*arrays, strict=True):
        joined = b"".join(np.ascontiguousarray(array, np.int64).tobytes() for array in row)
        yield int.from_bytes(hashlib.blake2b(joined, digest_size=8).digest(), "little")


class Tasks:
    """The tasks for one loop."""

    def __init__(self, loop: Any, job: SimpleNamespace) -> None:
        self.loop, self.job = loop, job

    def now(self) -> list[float]:
        return [cpu_seconds(), time.monotonic() - self.job.started]

    def prepare(self) -> dict[str, Any]:
        if not self.loop.folder.exists():
            self.loop.prepare()
        return {}

    def measure(self) -> dict[str, Any]:
        imports, batches = self.now(), self.loop.open()
        n = len(next(batches)[0])
        first = self.now()
        n += sum(len(batch[0]) for batch in batches)
        return {"imports": imports, "first": first, "epoch": self.now(), "samples": n}

    def check(self) -> dict[str, Any]:
        digest = samples = peak = 0
        rows_of = getattr(self.loop, "hashes", hashes)
        for number, batch in enumerate(self.loop.open()):
            found = list(rows_of(batch))
            digest, samples = (digest + sum(found)) % (1 << 64), samples + len(found)
            peak = max(peak, memory()) if number % 64 == 0 else peak
        return {"digest": digest, "samples": samples, "memory": peak, "versions": self.versions()}

    def stop(self) -> dict[str, Any]:
        batches, is_run = self.loop.open(), self.job.run or not self.loop.counts_samples
        for _ in islice(batches, self.job.at // self.job.batch if is_run else 1):
            pass
        Path(self.job.state).write_bytes(pickle.dumps(self.loop.state()))
        return {"digest": list(hashes(next(batches))) if is_run else None, "versions": self.versions()}

    def resume(self) -> dict[str, Any]:
        imports, state = self.now(), pickle.loads(Path(self.job.state).read_bytes())
        batch = next(iter(self.loop.open(state)))
        return {"imports": imports, "first": self.now(), "digest": list(hashes(batch))}

    def versions(self) -> dict[str, str]:
        return {name: importlib.metadata.version(name) for name in self.loop.distributions}


def main() -> None:
    job = SimpleNamespace(**json.loads(sys.argv[1]))
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # keep output of the peer out of the answer
    loop = importlib.import_module(f"peers.{job.module}").LOOPS[job.loop](job)
    print(json.dumps(getattr(Tasks(loop, job), job.task)()), file=replies, flush=True)


if __name__ == "__main__":
    main()
