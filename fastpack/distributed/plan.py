"""Plans: jobs divided into tasks that any process on any machine may run, in any order, once or several times.

A task writes a file, and then a completion marker with its result, in the plan's folder, on a shared file system or in
an object store. Processes communicate in no other way. Each attempt at a task writes its own file. The marker, which
appears atomically, names the file of the successful attempt.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from fastpack.errors import JobError
from fastpack.io import AtomicFile, absolute, as_path, is_remote, names_in, remove, size_of
from fastpack.version import __version__

PLAN_FORMAT = 3  # increment when plans or task files change, so that a started job does not mix formats
_SUFFIX = ".json"
_PLAN = "plan"
_IDENTITY = re.compile("[0-9a-f]{24}")  # the folder of a plan
_TASK_FILE = re.compile(rf"\.?([0-9]+|{_PLAN})\.[\w.-]+")  # also partial files after a kill


@dataclass(frozen=True)
class Task:
    """A task of a job.

    name: start of its file names. arguments: JSON for the task function. n_bytes: bytes of its sources.
    """

    name: str
    arguments: Mapping[str, Any]
    n_bytes: int


@dataclass(frozen=True)
class Plan:
    """A job as tasks; the same arguments and the same files always give the same plan.

    function: the name that `task_function` takes. folder: of the tasks' files. settings: JSON for all tasks. stamps:
    fingerprints of the sources. unneeded: names of tasks whose output exists and is kept.
    """

    function: str
    folder: str
    settings: Mapping[str, Any]
    stamps: Sequence[Any]
    tasks: Sequence[Task]
    unneeded: frozenset[str] = frozenset()

    @cached_property
    def identity(self) -> str:
        """A digest of everything that decides the results; each identity has its own folder."""
        tasks = [asdict(task) for task in self.tasks]
        fields = [__version__, PLAN_FORMAT, self.function, self.settings, self.stamps, tasks]
        return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:24]

    @cached_property
    def home(self) -> str:
        """The folder of this plan's files, named by its identity."""
        return os.fspath(as_path(self.folder) / self.identity)

    @property
    def needed(self) -> list[Task]:
        """The tasks whose output is still to be written."""
        return [task for task in self.tasks if task.name not in self.unneeded]


@dataclass(frozen=True)
class Done:
    """A finished task: the path of its file (if it wrote one) and what its function returned (JSON)."""

    path: str
    result: Any


def write_marker(plan: Plan, task: Task, note: Mapping[str, Any]) -> None:
    """Write the completion marker of a task, or the marker of its failure."""
    path = as_path(plan.home) / f"{task.name}{_SUFFIX}"
    try:
        with AtomicFile(path, follow=False) as file:
            file.write(json.dumps({"identity": plan.identity, **note}).encode())
    except JobError:  # another attempt is writing its marker: either one is valid
        if "error" not in note:
            raise


def finished(plan: Plan, tasks: Sequence[Task] | None = None) -> dict[str, Done]:
    """Return the finished tasks by name; tasks: check only these, because every marker is a file to open."""
    names = set(_names(plan.home))
    return {
        task.name: done
        for task in (plan.tasks if tasks is None else tasks)
        if f"{task.name}{_SUFFIX}" in names and isinstance(done := read_marker(plan, task), Done)
    }


def without_marker(plan: Plan) -> set[str]:
    """Return the names of needed tasks without a marker, by listing the folder once; failed tasks have a marker."""
    return {task.name for task in plan.needed} - {name.removesuffix(_SUFFIX) for name in _names(plan.home)}


def results(plan: Plan) -> dict[str, Done]:
    """Return all finished tasks by name. JobError with the names and errors of tasks that are not done."""
    done = finished(plan)
    missing = [task for task in plan.needed if task.name not in done]
    if not missing:
        return done
    some = ", ".join(task.name for task in missing[:10]) + (" and more" if len(missing) > 10 else "")
    errors = ((task.name, read_marker(plan, task)) for task in missing)
    failed = next((f"; {name} failed: {error}" for name, error in errors if isinstance(error, str)), "")
    raise JobError(
        f"{len(missing)} of {len(plan.needed)} tasks are not done: {some}{failed} (in {plan.home}; run the ranks again "
        "with the same arguments to do only these tasks, then --collect)"
    )


def read_marker(plan: Plan, task: Task) -> Done | str | None:
    """Return the marker of a task: `Done`, the text of its error, or None without a marker."""
    try:
        note = json.loads((as_path(plan.home) / f"{task.name}{_SUFFIX}").read_bytes())
    except (FileNotFoundError, ValueError):
        return None
    if not isinstance(note, dict) or note.get("identity") != plan.identity:
        return None
    if "error" in note:
        return str(note["error"])
    return Done(os.fspath(as_path(plan.home) / f"{task.name}.{note['attempt']}"), note["result"])


def check_size(done: Done, n_bytes: int) -> None:
    """Raise JobError if a task's file does not have this size in bytes."""
    try:
        found = size_of(done.path)
    except FileNotFoundError:
        raise JobError(f"{done.path}, which a task wrote, is missing. Remove its folder and start again.") from None
    if found != n_bytes:
        raise JobError(f"{done.path} has {found} bytes, not the {n_bytes} that its task wrote. Remove its folder.")


def clear(plan: Plan) -> None:
    """Remove the files of a finished plan and of plans with other arguments in the same folder."""
    for identity in filter(_IDENTITY.fullmatch, _names(plan.folder)):
        home = as_path(plan.folder) / identity
        names = _names(os.fspath(home))
        if all(map(_TASK_FILE.fullmatch, names)):
            for name in names:
                remove(home / name)
            _remove_empty(os.fspath(home))
    _remove_empty(plan.folder)


def _remove_empty(folder: str) -> None:
    if not is_remote(folder):
        with contextlib.suppress(OSError):
            os.rmdir(folder)


def _names(folder: str) -> list[str]:
    try:
        return sorted(names_in(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []


def save_plan(plan: Plan) -> None:
    """Write the plan to its folder, for `load_plan` in other processes."""
    fields = {
        "function": plan.function,
        "folder": absolute(plan.folder),
        "settings": plan.settings,
        "stamps": plan.stamps,
        "tasks": [asdict(task) for task in plan.tasks],
        "version": __version__,
        "format": PLAN_FORMAT,
    }
    with AtomicFile(as_path(plan.home) / f"{_PLAN}{_SUFFIX}", follow=False) as file:
        file.write(json.dumps(fields).encode())


def load_plan(home: str) -> Plan:
    """Return the plan that `save_plan` wrote. JobError if it is missing or of another version of fastpack."""
    try:
        fields = json.loads((as_path(home) / f"{_PLAN}{_SUFFIX}").read_bytes())
    except FileNotFoundError:
        raise JobError(f"{home} is not visible on this machine: all machines must share the target's folder") from None
    if fields.pop("version") != __version__:
        raise JobError(f"the plan is of another version than this fastpack {__version__}: install the same version")
    if fields.pop("format", 1) != PLAN_FORMAT:
        raise JobError(f"{home} is the plan of another build of fastpack {__version__}. Remove it and start again.")
    fields["tasks"] = [Task(**task) for task in fields["tasks"]]
    return Plan(**fields)
