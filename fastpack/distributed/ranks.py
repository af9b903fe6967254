"""Ranks share the tasks of a plan: rank i of n does the unfinished tasks k with k % n == i."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fastpack.distributed.plan import Plan, finished, without_marker
from fastpack.distributed.task_execution import run_task
from fastpack.errors import INTERRUPTS, JobError, note_interrupt
from fastpack.io import Progress

LAUNCHERS = ("slurm", "torchrun")  # launchers whose environment variables give the rank


@dataclass(frozen=True)
class RankResult:
    """The result of a rank: numbers of its tasks, of those finished before, and of unfinished tasks of all ranks."""

    tasks: int
    done_before: int
    left: int


def run_rank(
    plan: Plan,
    rank: int,
    world_size: int,
    progress: Progress | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> RankResult:
    """Do the tasks of a rank. A failing task does not stop the others; a JobError at the end names the first.

    progress: called with (bytes done, bytes in all) of the unfinished tasks. say: called with a message for
    each failure.
    """
    check_rank(rank, world_size)
    own = [task for task in plan.tasks[rank::world_size] if task.name not in plan.unneeded]
    done = finished(plan, own)
    todo = [task for task in own if task.name not in done]
    total, n_bytes = sum(task.n_bytes for task in todo), 0
    failed: list[tuple[str, str]] = []
    try:
        for task in todo:
            if (error := run_task(plan, task, f"rank{rank}-of-{world_size}")) is not None:
                failed.append((task.name, error))
                say(f"task {task.name} failed: {error}")
            n_bytes += task.n_bytes
            if progress is not None:
                progress(n_bytes, total)
    except INTERRUPTS as stopped:
        note_interrupt(stopped, n_bytes / max(1, total), "run the same rank again")
        raise
    if failed:
        raise JobError(f"{len(failed)} of {len(own)} tasks of rank {rank} failed; task {failed[0][0]}: {failed[0][1]}")
    # Read other ranks' markers only when all exist: thousands of ranks would open thousands of markers each.
    left = without_marker(plan) or {task.name for task in plan.needed} - finished(plan).keys()
    return RankResult(len(own), len(own) - len(todo), len(left))


def check_rank(rank: int, world_size: int) -> None:
    """Raise ValueError for a rank outside 0 to world_size - 1."""
    if world_size < 1 or not 0 <= rank < world_size:
        raise ValueError(f"rank {rank} of {world_size}: a rank must be at least 0 and less than the world size")


def find_rank(requested: str, world_size: int | None, environment: Mapping[str, str] = os.environ) -> tuple[int, int]:
    """Return rank and world size: the numbers given, or those that `slurm` or `torchrun` set for this process.

    Slurm: each process of each array task is a rank (SLURM_PROCID and SLURM_NTASKS, SLURM_ARRAY_TASK_ID and
    SLURM_ARRAY_TASK_COUNT). Raises ValueError for missing or contradictory values.
    """
    if requested in LAUNCHERS:
        if world_size is not None:
            raise ValueError(f"--rank {requested} takes the world size from the environment: omit --world-size")
        return (_slurm if requested == "slurm" else _torchrun)(environment)
    if not requested.isascii() or not requested.isdigit():
        raise ValueError(f"--rank {requested}: expected a number from 0, or one of {', '.join(LAUNCHERS)}")
    if world_size is None:
        raise ValueError("--rank needs --world-size, the number of ranks")
    check_rank(int(requested), world_size)
    return int(requested), world_size


def _torchrun(environment: Mapping[str, str]) -> tuple[int, int]:
    rank, size = _number(environment, "RANK"), _number(environment, "WORLD_SIZE")
    check_rank(rank, size)
    return rank, size


def _slurm(environment: Mapping[str, str]) -> tuple[int, int]:
    in_array = "SLURM_ARRAY_TASK_ID" in environment
    in_step = "SLURM_PROCID" in environment
    if not in_array and not in_step:
        raise ValueError("--rank slurm: neither SLURM_PROCID nor SLURM_ARRAY_TASK_ID is set: not started by Slurm")
    n_procs = _number(environment, "SLURM_NTASKS", 1) if in_step else 1
    proc = _number(environment, "SLURM_PROCID", 0)
    number, count = _array(environment) if in_array else (0, 1)
    rank, size = number * n_procs + proc, count * n_procs
    check_rank(rank, size)
    return rank, size


def _array(environment: Mapping[str, str]) -> tuple[int, int]:
    """Return the number of this array task, from 0, and the number of array tasks."""
    number, count = _number(environment, "SLURM_ARRAY_TASK_ID"), _number(environment, "SLURM_ARRAY_TASK_COUNT")
    first = _number(environment, "SLURM_ARRAY_TASK_MIN", 0)
    last = _number(environment, "SLURM_ARRAY_TASK_MAX", first + count - 1)
    step = (last - first) // (count - 1) if count > 1 else 1
    if step < 1 or first + step * (count - 1) != last or (number - first) % step:
        raise ValueError(f"a Slurm array of {count} tasks from {first} to {last} has gaps: use --array=0-{count - 1}")
    return (number - first) // step, count


def _number(environment: Mapping[str, str], name: str, default: int | None = None) -> int:
    text = environment.get(name)
    if text is None and default is not None:
        return default
    if text is None or not text.isascii() or not text.isdigit():
        raise ValueError(f"{name} is {'not set' if text is None else repr(text)}, expected a number")
    return int(text)
