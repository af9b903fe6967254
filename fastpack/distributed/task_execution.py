"""Run one task of a plan."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from fastpack.distributed.plan import Done, Plan, Task, read_marker, write_marker
from fastpack.io import as_path

# (settings of the plan, arguments of the task, path of the file it may write) -> result of the task, JSON
TaskFunction: TypeAlias = Callable[[Mapping[str, Any], Mapping[str, Any], str], Any]


def task_function(name: str) -> TaskFunction:
    """Return the task function of a plan. Importing those of all plans takes 70 ms."""
    match name:
        case "convert":
            from fastpack.distributed.convert_tasks import convert_task

            return convert_task
        case "index":
            from fastpack.distributed.index_tasks import index_task

            return index_task
        case "merge":
            from fastpack.distributed.edit_tasks import merge_task

            return merge_task
        case "pack":
            from fastpack.distributed.pack_tasks import pack_task

            return pack_task
        case "shuffle":
            from fastpack.distributed.edit_tasks import shuffle_task

            return shuffle_task
        case "verify":
            from fastpack.distributed.verify_tasks import verify_task

            return verify_task
        case "walk":
            from fastpack.distributed.prepare_tasks import walk_task

            return walk_task
        case _:
            raise ValueError(f"unknown task function {name!r}")


def run_task(plan: Plan, task: Task, attempt: str) -> str | None:
    """Do a task and write its completion marker; return the text of the error if it fails, which is also recorded.

    attempt: a name that no other process uses that may run the same task.
    """
    path = os.fspath(as_path(plan.home) / f"{task.name}.{attempt}")
    try:
        result = task_function(plan.function)(plan.settings, task.arguments, path)
    except Exception as error:
        text = str(error) or type(error).__name__
        if not isinstance(read_marker(plan, task), Done):  # another attempt may have succeeded
            write_marker(plan, task, {"error": text, "attempt": attempt})
        return text
    write_marker(plan, task, {"attempt": attempt, "result": result})
    return None
