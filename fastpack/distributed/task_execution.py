"""Run one task of a plan."""

from __future__ import annotations

import os

from fastpack.distributed.plan import Done, Plan, Task, read_marker, write_marker
from fastpack.distributed.task_registry import TASK_FUNCTIONS
from fastpack.io import as_path


def run_task(plan: Plan, task: Task, attempt: str) -> str | None:
    """Do a task and write its completion marker; return the text of the error if it fails, which is also recorded.

    attempt: a name that no other process uses that may run the same task.
    """
    path = os.fspath(as_path(plan.home) / f"{task.name}.{attempt}")
    try:
        result = TASK_FUNCTIONS[plan.function](plan.settings, task.arguments, path)
    except Exception as error:
        text = str(error) or type(error).__name__
        if not isinstance(read_marker(plan, task), Done):  # another attempt may have succeeded
            write_marker(plan, task, {"error": text, "attempt": attempt})
        return text
    write_marker(plan, task, {"attempt": attempt, "result": result})
    return None
