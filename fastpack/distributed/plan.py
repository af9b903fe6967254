"""Work cut into tasks that any process on any machine may run, in any order, once or more often.

A task leaves a file, and then a marker that says what is in it, in the plan's folder: on a file system that all
machines share, or in a store. Nothing else passes between them. Each attempt writes a file of its own, so that two
attempts at one task never write one file, and the marker, which takes its name complete or not at all, says which one
counts.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from fastpack.errors import JobError
from fastpack.io import AtomicFile, absolute, as_path, is_remote, names_in, remove, size_of
from fastpack.version import __version__

MIN_PART_BYTES = 64 << 20  # of a source: at least 0.1 s of work, so that 5 ms for a marker and its fsync are not felt
MAX_PARTS = 4096  # at which parts get larger: the markers of one folder are listed at once
_SUFFIX = ".json"
_PLAN = "plan"
_HOME = re.compile("[0-9a-f]{24}")  # an identity
_OURS = re.compile(rf"\.?([0-9]+|{_PLAN})\.[\w.-]+")  # files of tasks, and those that a kill left unfinished


@dataclass(frozen=True)
class Task:
    """One piece of work. name: of its files; arguments: for the plan's function, JSON; n_bytes: of source."""

    name: str
    arguments: Mapping[str, Any]
    n_bytes: int


@dataclass(frozen=True)
class Plan:
    """A job in tasks: whoever plans it from the same arguments and the same files gets the same one.

    function: "module:name" of a function (settings, arguments, path) that does one task, may write the file `path` and
    returns what the last step has to know, as JSON. folder: of the files, `<target>.parts` beside what is made of them.
    settings: JSON, for every task. stamps: what the sources are known by, sizes and times of change. unneeded: names of
    tasks that are of no use now, since what is made of them is there and stays.
    """

    function: str
    folder: str
    settings: Mapping[str, Any]
    stamps: Sequence[Any]
    tasks: Sequence[Task]
    unneeded: frozenset[str] = frozenset()

    @cached_property
    def identity(self) -> str:
        """A digest of all that decides the results; plans of another one have another folder."""
        parts = [__version__, self.function, self.settings, self.stamps, [asdict(task) for task in self.tasks]]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:24]

    @cached_property
    def home(self) -> str:
        """The folder of this very plan's files."""
        return os.fspath(as_path(self.folder) / self.identity)

    @property
    def needed(self) -> list[Task]:
        """The tasks without those that are of no use."""
        return [task for task in self.tasks if task.name not in self.unneeded]


@dataclass(frozen=True)
class Done:
    """What a finished task left: `path` of its file (which is there if it wrote one) and what it returned."""

    path: str
    result: Any


def parts_folder(target: str, folder: str | None) -> str:
    """Where the tasks of a job leave their files: beside what is made of them, or in a folder that was asked for."""
    name = f"{target.rstrip('/')}.parts"
    return name if folder is None else os.fspath(as_path(folder) / os.path.basename(name))


def part_bytes(total: int, asked: int | None, least: int = MIN_PART_BYTES) -> int:
    """Bytes that a task takes: what was asked for, else `least`, or so many that no job has many thousand tasks."""
    if asked is not None:
        if asked < 1:
            raise ValueError(f"parts of {asked} bytes: at least 1 is needed")
        return asked
    return max(least, -(-total // MAX_PARTS))


def cut(sizes: Sequence[int], whole: Sequence[bool], n_bytes: int) -> Iterator[list[tuple[int, int, int]]]:
    """Sources of these sizes as lists of (source, part, of so many parts): each about `n_bytes`, in order.

    Large sources are cut, unless they are to stay whole; small ones that follow each other share a list.
    """
    group: list[tuple[int, int, int]] = []
    filled = 0
    for number, (size, stays_whole) in enumerate(zip(sizes, whole, strict=True)):
        n_parts = 1 if stays_whole else max(1, -(-size // n_bytes))
        if group and (n_parts > 1 or filled + size > n_bytes):
            yield group
            group, filled = [], 0
        if n_parts > 1:
            yield from ([(number, part, n_parts)] for part in range(n_parts))
        else:
            group.append((number, 0, 1))
            filled += size
    if group:
        yield group


def run_task(plan: Plan, task: Task, attempt: str) -> str | None:
    """Do one task and mark it as done; the error's text where it fails, which is noted as well.

    attempt: a name that no other process has that may be at the same task.
    """
    path = os.fspath(as_path(plan.home) / f"{task.name}.{attempt}")
    try:
        module, name = plan.function.split(":")
        result = getattr(importlib.import_module(module), name)(plan.settings, task.arguments, path)
    except Exception as error:
        if not isinstance(_read(plan, task), Done):  # another attempt's, which was luckier
            _mark(plan, task, {"error": str(error) or type(error).__name__, "attempt": attempt})
        return str(error) or type(error).__name__
    _mark(plan, task, {"attempt": attempt, "result": result})
    return None


def _mark(plan: Plan, task: Task, note: Mapping[str, Any]) -> None:
    path = as_path(plan.home) / f"{task.name}{_SUFFIX}"
    try:
        with AtomicFile(path, follow=False) as file:
            file.write(json.dumps({"identity": plan.identity, **note}).encode())
    except JobError:  # another attempt is marking it at this moment: either mark is right
        if "error" not in note:
            raise


def finished(plan: Plan, tasks: Sequence[Task] | None = None) -> dict[str, Done]:
    """The tasks that are done, by name; tasks: only of these, since every mark is a file to open."""
    names = set(_names(plan.home))
    return {
        task.name: done
        for task in (plan.tasks if tasks is None else tasks)
        if f"{task.name}{_SUFFIX}" in names and isinstance(done := _read(plan, task), Done)
    }


def unmarked(plan: Plan) -> set[str]:
    """The needed tasks that nobody has marked, by one look at the folder: those that failed are not among them."""
    return {task.name for task in plan.needed} - {name.removesuffix(_SUFFIX) for name in _names(plan.home)}


def results(plan: Plan) -> dict[str, Done]:
    """What all tasks left, by name. JobError where some are not done, with their names and what went wrong."""
    done = finished(plan)
    missing = [task for task in plan.needed if task.name not in done]
    if not missing:
        return done
    some = ", ".join(task.name for task in missing[:10]) + (" and more" if len(missing) > 10 else "")
    errors = ((task.name, _read(plan, task)) for task in missing)
    failed = next((f"; {name} failed: {error}" for name, error in errors if isinstance(error, str)), "")
    raise JobError(
        f"{len(missing)} of {len(plan.needed)} tasks are not done: {some}{failed} (in {plan.home}; run the ranks again "
        "with the same arguments: only these are done, then --collect)"
    )


def _read(plan: Plan, task: Task) -> Done | str | None:
    """A task's mark: done, the text of its error, or None for none."""
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
    """JobError where a task's file is not of this size."""
    try:
        found = size_of(done.path)
    except FileNotFoundError:
        raise JobError(f"{done.path} is gone, which a task wrote: remove its folder and start again") from None
    if found != n_bytes:
        raise JobError(f"{done.path} has {found} bytes, not the {n_bytes} that its task wrote: remove its folder")


def clear(plan: Plan) -> None:
    """Remove the files of a plan that is done, and those that plans of other arguments left beside them."""
    for name in _names(plan.folder):
        _remove_folder(os.fspath(as_path(plan.folder) / name))
    if not is_remote(plan.folder):
        with contextlib.suppress(OSError):
            os.rmdir(plan.folder)


def _remove_folder(folder: str) -> None:
    names = _names(folder)
    if not _HOME.fullmatch(os.path.basename(folder)) or not all(map(_OURS.fullmatch, names)):
        return
    for name in names:
        remove(os.fspath(as_path(folder) / name))
    if not is_remote(folder):
        with contextlib.suppress(OSError):
            os.rmdir(folder)


def _names(folder: str) -> list[str]:
    try:
        return sorted(names_in(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []


def save_plan(plan: Plan) -> None:
    """Write the plan into its folder, for `load_plan` in other processes."""
    fields = {"function": plan.function, "folder": absolute(plan.folder), "settings": plan.settings}
    tasks = [asdict(task) for task in plan.tasks]
    with AtomicFile(as_path(plan.home) / f"{_PLAN}{_SUFFIX}", follow=False) as file:
        file.write(json.dumps({**fields, "stamps": plan.stamps, "tasks": tasks, "version": __version__}).encode())


def load_plan(home: str) -> Plan:
    """The plan that `save_plan` wrote. JobError where it is not there, or of another version of fastpack."""
    try:
        fields = json.loads((as_path(home) / f"{_PLAN}{_SUFFIX}").read_bytes())
    except FileNotFoundError:
        raise JobError(f"{home} cannot be seen on this machine: the target's folder has to be shared by all") from None
    if fields.pop("version") != __version__:
        raise JobError(f"this machine has fastpack {__version__}, the one that planned another: install the same")
    fields["tasks"] = [Task(**task) for task in fields["tasks"]]
    return Plan(**fields)
