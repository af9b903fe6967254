"""The options of commands that can run on several machines, and the dispatch to ranks or Ray."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from fastpack.cli.failures import UsageError, usage_errors
from fastpack.cli.output import emit, say
from fastpack.cli.progress import progress
from fastpack.errors import counted

if TYPE_CHECKING:
    from fastpack.distributed.plan import Plan

_MAX_MESSAGES = 10  # failures of tasks with a message each; more are only counted
_T = TypeVar("_T")


def add_distributed_options(
    parser: argparse.ArgumentParser, *, task_bytes: bool = True, of: str = "source", least: str = "64 MiB"
) -> None:
    """Add `--executor`, `--rank`, `--collect` and the options for tasks.

    task_bytes: whether the size of tasks is an option. of: the input whose bytes it counts. least: its default.
    """
    group = parser.add_argument_group(
        "on many machines",
        "The job is divided into tasks, whose results are in TARGET.parts, in a folder that all machines share, or in "
        "an object store. Finished tasks are not repeated, so a killed run can simply be started again.",
    )
    group.add_argument(
        "--executor",
        choices=("local", "ray"),
        default="local",
        help="run in this process (default), or on a Ray cluster (extra ray)",
    )
    group.add_argument(
        "--address", metavar="A", help="address of the Ray cluster (default: RAY_ADDRESS, else a local cluster)"
    )
    group.add_argument(
        "--rank",
        metavar="I",
        help="do the tasks of rank I, from 0; `slurm`: by SLURM_PROCID and SLURM_NTASKS, or SLURM_ARRAY_TASK_ID; "
        "`torchrun`: by RANK and WORLD_SIZE",
    )
    group.add_argument("--world-size", type=int, metavar="N", help="number of ranks")
    group.add_argument(
        "--collect", action="store_true", help="the last step, once: concatenate the results of all ranks"
    )
    if task_bytes:
        group.add_argument(
            "--task-bytes",
            "--part-bytes",
            type=int,
            metavar="N",
            help=f"bytes of {of} per task, the same for all ranks (default: {least}, or a 4096th of all)",
        )
    else:
        parser.set_defaults(task_bytes=None)
    group.add_argument(
        "--task-folder",
        "--parts-folder",
        metavar="DIR",
        help="folder or URL of the tasks' results, visible to all machines (default: the target's folder)",
    )


def is_distributed(args: argparse.Namespace) -> bool:
    """Return whether the job runs as tasks."""
    return args.rank is not None or bool(args.collect) or args.executor == "ray"


def task_options(args: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments of the functions that plan a job."""
    return {"bytes_per_task": args.task_bytes, "folder": args.task_folder}


def check_distributed_options(args: argparse.Namespace, *not_with: str) -> None:
    """Raise UsageError for conflicting options; those of `not_with` cannot be combined with tasks."""
    if args.address is not None and args.executor != "ray":
        raise UsageError("--address: only with --executor ray")
    if not is_distributed(args):
        if given := given_options(args, "--world-size", "--task-bytes", "--task-folder"):
            raise UsageError(f"{given}: only with --rank, --collect or --executor ray")
        return
    if args.executor == "ray" and (args.rank is not None or args.collect or args.world_size is not None):
        raise UsageError("--executor ray does all steps: it cannot be combined with --rank, --world-size or --collect")
    if args.rank is not None and args.collect:
        raise UsageError("--collect is the step after all ranks: it cannot be combined with --rank")
    if given := given_options(args, *not_with):
        raise UsageError(f"{given}: not with --rank, --collect or --executor ray")
    if args.collect and args.world_size is not None:
        raise UsageError("--collect takes no --world-size: the tasks do not depend on it")
    if args.task_bytes is not None and args.task_bytes < 1:
        raise UsageError("--task-bytes: at least 1")
    if args.rank is not None:
        from fastpack.distributed.ranks import find_rank

        with usage_errors():
            find_rank(args.rank, args.world_size)


def given_options(args: argparse.Namespace, *options: str) -> str:
    """Return which of these options have a value, separated by commas."""
    values = {option: vars(args)[option[2:].replace("-", "_")] for option in options}
    return ", ".join(option for option, value in values.items() if value is not None and value is not False)


def run_distributed(args: argparse.Namespace, label: str, plan: Plan, collect: Callable[[], _T]) -> _T | None:
    """Run a rank and return None, or run the last step and return its result; on Ray, run all tasks first.

    The files of the tasks are removed after the last step.
    """
    failed: list[str] = []

    def fail(text: str) -> None:
        failed.append(text)
        if len(failed) <= _MAX_MESSAGES:
            say(args, text)

    bar = progress(args, lambda: f"{label} ({counted(len(failed), 'task')} failed)" if failed else label)
    if args.executor == "ray":
        from fastpack.distributed.ray_executor import run_on_ray

        run_on_ray(plan, args.address, bar, fail)
    if args.rank is None:
        result = collect()
        _clear(args, plan)
        return result
    from fastpack.distributed.ranks import find_rank, run_rank

    rank, size = find_rank(args.rank, args.world_size)
    done = run_rank(plan, rank, size, bar, fail)
    before = f" ({done.done_before} of them before)" if done.done_before else ""
    text = f"rank {rank} of {size}: {counted(done.tasks, 'task')} done{before}"
    text += f"; {done.left} unfinished in all ranks" if done.left else "; all ranks are done: run --collect"
    fields = {"rank": rank, "world_size": size, **vars(done), "folder": plan.home, "dry_run": False}
    emit(args, fields, [text])
    return None


def _clear(args: argparse.Namespace, plan: Plan) -> None:
    from fastpack.distributed.plan import clear

    try:
        clear(plan)
    except OSError as error:
        say(args, f"{plan.folder} could not be removed: {error}")
