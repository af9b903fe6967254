"""The options of commands that can run on several machines, and the dispatch to ranks or Ray."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

from fastpack.cli.output import emit, say
from fastpack.cli.progress import progress
from fastpack.errors import counted, ending

if TYPE_CHECKING:
    from fastpack.distributed.plan import Plan

_TASK_OPTIONS = ("--world-size", "--part-bytes", "--parts-folder")
_MAX_MESSAGES = 10  # failures of tasks with a message each; more are only counted
_T = TypeVar("_T")


def add_distributed_options(
    parser: argparse.ArgumentParser, *, part_bytes: bool = True, of: str = "source", least: str = "64 MiB"
) -> None:
    """Add `--executor`, `--rank`, `--collect` and the options for tasks.

    part_bytes: whether the size of tasks is an option. of: the input whose bytes it counts. least: its default.
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
    if part_bytes:
        group.add_argument(
            "--part-bytes",
            type=int,
            metavar="N",
            help=f"bytes of {of} per task, the same for all ranks (default: {least}, or a 4096th of all)",
        )
    else:
        parser.set_defaults(part_bytes=None)
    group.add_argument(
        "--parts-folder",
        metavar="DIR",
        help="folder or URL of the tasks' results, visible to all machines (default: the target's folder)",
    )


def is_distributed(args: argparse.Namespace) -> bool:
    """Return whether the job runs as tasks."""
    return args.rank is not None or bool(args.collect) or args.executor == "ray"


def misuse(args: argparse.Namespace, not_with: Iterable[str] = ()) -> str | None:
    """Return the message for conflicting options; those of `not_with` cannot be combined with tasks."""
    if args.address is not None and args.executor != "ray":
        return "--address: only with --executor ray"
    if not is_distributed(args):
        given = [option for option in _TASK_OPTIONS if vars(args)[_dest(option)] is not None]
        return f"{', '.join(given)}: only with --rank, --collect or --executor ray" if given else None
    if args.executor == "ray" and (args.rank is not None or args.collect or args.world_size is not None):
        return "--executor ray does all steps: it cannot be combined with --rank, --world-size or --collect"
    if args.rank is not None and args.collect:
        return "--collect is the step after all ranks: it cannot be combined with --rank"
    if given := [option for option in not_with if vars(args)[_dest(option)] not in (None, False)]:
        return f"{', '.join(given)}: not with --rank, --collect or --executor ray"
    if args.collect and args.world_size is not None:
        return "--collect takes no --world-size: the tasks do not depend on it"
    if args.part_bytes is not None and args.part_bytes < 1:
        return "--part-bytes: at least 1"
    from fastpack.distributed.ranks import find_rank

    try:
        if args.rank is not None:
            find_rank(args.rank, args.world_size)
    except ValueError as error:
        return str(error)
    return None


def _dest(option: str) -> str:
    return option.removeprefix("--").replace("-", "_")


def run_distributed(args: argparse.Namespace, label: str, plan: Plan, collect: Callable[[], _T]) -> _T | None:
    """Run a rank and return None, or run the last step and return its result; on Ray, run all tasks first.

    The files of the tasks remain until `clear`.
    """
    failed: list[str] = []

    def fail(text: str) -> None:
        failed.append(text)
        if len(failed) <= _MAX_MESSAGES:
            say(args, text)

    bar = progress(args, lambda: f"{label} ({len(failed)} task{ending(len(failed))} failed)" if failed else label)
    if args.executor == "ray":
        from fastpack.distributed.ray_executor import run_on_ray

        run_on_ray(plan, args.address, bar, fail)
    if args.rank is None:
        return collect()
    from fastpack.distributed.ranks import find_rank, run_rank

    rank, size = find_rank(args.rank, args.world_size)
    result = run_rank(plan, rank, size, bar, fail)
    fields = {"rank": rank, "world_size": size, "tasks": result.tasks, "done_before": result.done_before}
    before = f" ({result.done_before} of them before)" if result.done_before else ""
    text = f"rank {rank} of {size}: {counted(result.tasks, 'task')} done{before}"
    text += f"; {result.left} unfinished in all ranks" if result.left else "; all ranks are done: run --collect"
    emit(args, {**fields, "left": result.left, "folder": plan.home, "dry_run": False}, [text])
    return None


def clear(args: argparse.Namespace, plan: Plan) -> None:
    """Remove the files of the tasks after the last step."""
    from fastpack.distributed import plan as tasks

    try:
        tasks.clear(plan)
    except OSError as error:
        say(args, f"{plan.folder} could not be removed: {error}")
