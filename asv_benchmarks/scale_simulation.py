"""Simulate a job on a cluster: tasks are assigned to ranks as in fastpack; nodes fail and are slow at random."""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fastpack.distributed.map_concatenate import task_bytes

GB, TB, PB, HOUR = 10**9, 10**12, 10**15, 3600.0


@dataclass(frozen=True)
class Cluster:
    """The assumptions, in bytes and seconds; `calls`: calls per second of the metadata server."""

    nodes: int
    cores: int = 32
    memory: int = 256 << 30
    link: float = 10 * GB  # of a node
    storage: float = 200 * GB  # of the file system, for all nodes
    stream: float = 1.5 * GB  # of one process that reads or writes
    calls: float = 50_000
    node_life: float = 5_000 * HOUR  # mean time between failures
    slow_share: float = 0.01  # share of nodes that are slower by the factor `slow`
    slow: float = 3.0
    requeue: float = 300.0  # seconds until lost ranks run again


SOURCE_BYTES = 1 << 30  # of a file of the corpus, a shard of pictures, a file of tokens
SAMPLE_BYTES = 100_000  # of a picture with its text
DOCUMENT_BYTES = 3200  # 800 tokens of 4 bytes, or their text: tokens are assumed to be as long as their text
TAR_TASK = 1 << 30
TAR_READ = 0.1  # share of a tar of such samples that is read around the headers
NAMES = 100  # listed by one call
CHUNK = 64 << 30  # bytes of a shuffled chunk
INDEX_ROW = 10  # bytes of a document in the index of a packed file


@dataclass(frozen=True)
class Plan:
    """A job divided into tasks.

    start: seconds before the first task of a rank; task_bytes: the unit of `rate`; moved: bytes that a task reads and
    writes; marks: whether tasks have completion markers (a chunk is a separate command with its own plan and start);
    last_...: the same for the last step; memory: in bytes.
    """

    n_sources: int
    n_tasks: int
    task_bytes: float
    rate: float
    moved: float
    start: float
    marks: bool
    last_start: float
    last_bytes: float
    last_rate: float
    last_moved: float
    memory: float
    last_memory: float


def plan_of(job: str, n_bytes: int, measured: dict[str, Any]) -> Plan:
    """Return the plan for `n_bytes` of text, tokens (merge, shuffle, chunk, verify) or tars (prepare)."""
    found, over = measured["jobs"][job], measured["overheads"]
    ranks, last = found["ranks"], (measured["jobs"]["pack, bytes"] if job.startswith("pack") else found)["last"]
    unit = SAMPLE_BYTES if job == "prepare" else 1  # the unit of the rates
    documents, has_last = n_bytes / DOCUMENT_BYTES, job not in ("verify", "chunk")
    task = {"verify": SOURCE_BYTES, "chunk": CHUNK, "prepare": max(TAR_TASK, n_bytes // 4096)}.get(job, 0)
    task = task or task_bytes(n_bytes, None)
    out = found["out_per_byte"] / unit if job in ("index", "prepare") else float(job != "verify")
    moved = min(task, n_bytes) * (out + (TAR_READ if job == "prepare" else 1.0))
    start, memory = ranks["start_s"], ranks["memory"]
    if job == "shuffle":  # every rank needs the whole order in memory
        start += documents * (over["ordered_s"] + over["index_row_s"])
        memory += 28 * documents
    elif job == "chunk":  # every chunk reads the index of every file
        start += documents * over["index_row_s"]
        moved += documents * INDEX_ROW
        memory += 28 * CHUNK / DOCUMENT_BYTES + (1 << 29)
    return Plan(
        n_sources=1 if job == "shuffle" else math.ceil(n_bytes / SOURCE_BYTES),
        n_tasks=math.ceil(n_bytes / task),
        task_bytes=min(task, n_bytes),
        rate=ranks["per_s"] * unit,
        moved=moved,
        start=start,
        marks=job != "chunk",
        last_start=last["start_s"] * has_last,
        last_bytes=float(n_bytes * has_last),
        last_rate=last["per_s"] * unit,
        last_moved=2 * out * n_bytes * has_last,
        memory=memory,
        last_memory=last["memory"] + (last["memory_grows"] * n_bytes / unit if job == "prepare" else 0.0),
    )


@dataclass(frozen=True)
class Outcome:
    """Seconds of planning, of the ranks, and of the last step.

    calls: metadata calls; busy: the share of ranks with a task; lost: tasks that ran again.
    """

    planning: float
    ranks: float
    last: float
    calls: float
    busy: float
    lost: int

    @property
    def total(self) -> float:
        return self.planning + self.ranks + self.last


def simulate(plan: Plan, cluster: Cluster, measured: dict[str, Any], *, ray: bool = False, seed: int = 0) -> Outcome:
    """Simulate a job. ray: one process plans, and idle workers get tasks; otherwise task k runs on rank k mod n."""
    n_ranks = cluster.nodes * cluster.cores
    active = min(n_ranks, plan.n_tasks)
    over, per_call = measured["overheads"], measured["calls"]
    speed = min(cluster.link / min(active, cluster.cores), cluster.storage / active, cluster.stream)
    task = max(plan.task_bytes / plan.rate, plan.moved / speed) + over["task_s"]
    task += per_call["per_task"] * active / cluster.calls
    # Every rank reads the metadata of every source; the ranks of a node share the client cache.
    # At its end a rank lists the markers, of which half exist on average; the last step opens all of them.
    planners, lookers = (1, 1) if ray else (min(cluster.nodes, n_ranks), active)
    if not plan.marks:
        planners, task = plan.n_tasks, task + plan.start + plan.n_sources * over["source_s"]
    n_marks = plan.n_tasks if plan.marks else 0
    listing = n_marks / 2 / NAMES
    calls = planners * plan.n_sources * per_call["per_source"] + plan.n_tasks * per_call["per_task"]
    calls += lookers * listing + n_marks
    planning = plan.start + plan.n_sources * max(over["source_s"], planners * per_call["per_source"] / cluster.calls)
    at_end = lookers * listing / cluster.calls
    rng = np.random.default_rng(seed)
    seconds, lost = (by_hand_out if ray else by_ranks)(plan.n_tasks, task, cluster, rng)
    last = (
        plan.last_start
        + n_marks * over["mark_s"]
        + max(plan.last_bytes / plan.last_rate, plan.last_moved / cluster.stream)
    )
    return Outcome(planning, seconds + at_end, last, calls, active / n_ranks, lost)


def node_speeds(cluster: Cluster, rng: np.random.Generator) -> npt.NDArray[np.float64]:
    return np.where(rng.random(cluster.nodes) < cluster.slow_share, cluster.slow, 1.0)


def by_ranks(n_tasks: int, task: float, cluster: Cluster, rng: np.random.Generator) -> tuple[float, int]:
    """Simulate fixed assignment; tasks of a lost node run after a restart. Return seconds and lost tasks."""
    n_ranks = cluster.nodes * cluster.cores
    left = np.full(n_ranks, n_tasks // n_ranks)
    left[: n_tasks % n_ranks] += 1
    seconds, lost = 0.0, 0
    while left.any():
        times = np.repeat(task * node_speeds(cluster, rng), cluster.cores)
        dies = np.repeat(rng.exponential(cluster.node_life, cluster.nodes), cluster.cores)
        done = np.minimum(left, dies / times).astype(np.int64)
        lost += int((done < left).sum())
        seconds += float(np.minimum(left * times, dies).max()) + (cluster.requeue if (done < left).any() else 0.0)
        left = left - done
        if seconds > 100 * 365 * 24 * HOUR:
            return math.inf, lost
    return seconds, lost


def by_hand_out(n_tasks: int, task: float, cluster: Cluster, rng: np.random.Generator) -> tuple[float, int]:
    """Simulate dynamic assignment; tasks of a lost node run elsewhere; the node is missing for `requeue` seconds."""
    times = (task * node_speeds(cluster, rng)).tolist()
    deaths = np.cumsum(rng.exponential(cluster.node_life, (cluster.nodes, 64)), axis=1).tolist()
    free = [(0.0, core % cluster.nodes) for core in range(cluster.nodes * cluster.cores)]
    left, ends, lost = n_tasks, 0.0, 0
    while left:
        now, node = heapq.heappop(free)
        done = now + times[node]
        death = deaths[node][bisect_left(deaths[node], now)]
        if death < done:
            lost += 1
            heapq.heappush(free, (death + cluster.requeue, node))
        else:
            left -= 1
            ends = max(ends, done)
            heapq.heappush(free, (done, node))
    return ends, lost
