"""Run the tasks of a plan on a Ray cluster (extra `ray`).

Ray only schedules: a task receives strings and reads the plan from the folder of its results; only the text of an error
is returned. Tasks of a lost node run again on another one.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import secrets
import sys
import time
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

from fastpack.distributed.plan import Plan, Task, finished, load_plan, save_plan
from fastpack.distributed.task_execution import run_task
from fastpack.errors import JobError, MissingExtra
from fastpack.io import Progress, absolute, as_path

RETRIES = 5  # of a task whose worker or node was lost; after that, the task itself is the likely cause
AHEAD = 4  # submitted tasks per CPU, so that no CPU waits for the driver
_POLL_SECONDS = 1.0  # between queries of the number of CPUs


def run_on_ray(
    plan: Plan,
    address: str | None = None,
    progress: Progress | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> None:
    """Do all unfinished tasks; address: of the cluster (default: RAY_ADDRESS, else a local one).

    Every node needs access to the working directory and the plan's folder, and the same fastpack. progress: called with
    (bytes done, bytes in all) of the unfinished tasks. say: called with a message for each failure. A failing task does
    not stop the others. Raises JobError with the first failure at the end, or if the cluster cannot be reached;
    MissingExtra without Ray.
    """
    done = finished(plan)
    todo = [task for task in plan.needed if task.name not in done]
    if not todo:
        return
    save_plan(plan)
    ray = _ray()
    with contextlib.redirect_stdout(sys.stderr), _connected(ray, address):  # Ray reports lost nodes on stdout
        failed = _run(ray, plan, todo, progress, say)
    if failed:
        name, error = failed[0]
        raise JobError(f"{len(failed)} of {len(todo)} tasks failed; task {name}: {error}")


def _ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no usage reports
    try:
        return importlib.import_module("ray")  # type checkers run without Ray
    except ImportError:
        raise MissingExtra("ray", "ray", "--executor ray") from None


@contextlib.contextmanager
def _connected(ray: Any, address: str | None) -> Iterator[None]:
    """Use the cluster that this process is connected to, or connect to one."""
    if ray.is_initialized():
        yield
        return
    try:
        ray.init(address=address, log_to_driver=False, logging_level="error")
    except (ConnectionError, RuntimeError, ValueError) as error:
        where = address or os.environ.get("RAY_ADDRESS", "this machine")
        raise JobError(f"no Ray cluster at {where}: {error}") from None
    try:
        yield
    finally:
        ray.shutdown()


def _run(
    ray: Any, plan: Plan, todo: list[Task], progress: Progress | None, say: Callable[[str], None]
) -> list[tuple[str, str]]:
    """Submit tasks as others finish; return (name, error) of failed tasks."""
    remote = ray.remote(num_cpus=1, max_retries=RETRIES, scheduling_strategy="SPREAD")(do_task)
    home, folder = absolute(plan.home), os.getcwd()
    total, n_bytes = sum(task.n_bytes for task in todo), 0
    queue, running = list(reversed(todo)), dict[Any, Task]()
    failed: list[tuple[str, str]] = []
    queried, ahead = 0.0, 0
    while queue or running:
        if time.monotonic() - queried > _POLL_SECONDS:
            queried, ahead = time.monotonic(), AHEAD * max(1, int(ray.cluster_resources().get("CPU", 1)))
        for task in [queue.pop() for _ in range(min(ahead - len(running), len(queue)))]:
            running[remote.options(name=f"fastpack {task.name}").remote(home, task.name, folder)] = task
        ready, _ = ray.wait(list(running), num_returns=1, timeout=_POLL_SECONDS)
        for reference in ready:
            task = running.pop(reference)
            error = _outcome(ray, reference)
            if error is not None:
                failed.append((task.name, error))
                say(f"task {task.name} failed: {error}")
            n_bytes += task.n_bytes
        if progress is not None:
            progress(n_bytes, total)
    return failed


def _outcome(ray: Any, reference: Any) -> str | None:
    try:
        error: str | None = ray.get(reference)
    except ray.exceptions.RayError as lost:  # the worker was lost in every retry
        text = str(lost).strip()
        return f"{type(lost).__name__}: {text.splitlines()[0] if text else 'no reason given'}"
    return error


def do_task(home: str, name: str, folder: str) -> str | None:
    """Do one task of the plan in `home` on a node, in the driver's working directory; return the text of its error."""
    try:
        os.chdir(folder)
        task, plan = _task(home, name)
    except (OSError, JobError) as error:
        return f"{os.uname().nodename}: {error}"
    return run_task(plan, task, f"ray-{secrets.token_hex(6)}")


def _task(home: str, name: str) -> tuple[Task, Plan]:
    plan, tasks = _plan(os.fspath(as_path(home)))
    return tasks[name], plan


@lru_cache(maxsize=1)
def _plan(home: str) -> tuple[Plan, dict[str, Task]]:
    plan = load_plan(home)
    return plan, {task.name: task for task in plan.tasks}
