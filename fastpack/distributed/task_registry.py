"""Map the names in plans to task functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

# (settings of the plan, arguments of the task, path of the file it may write) -> result of the task, JSON
TaskFunction: TypeAlias = Callable[[Mapping[str, Any], Mapping[str, Any], str], Any]


def _index(settings: Mapping[str, Any], arguments: Mapping[str, Any], path: str) -> Any:
    from fastpack.distributed.index_tasks import index_task

    return index_task(settings, arguments, path)


def _merge(settings: Mapping[str, Any], arguments: Mapping[str, Any], path: str) -> Any:
    from fastpack.distributed.edit_tasks import merge_task

    return merge_task(settings, arguments, path)


def _pack(settings: Mapping[str, Any], arguments: Mapping[str, Any], path: str) -> Any:
    from fastpack.distributed.pack_tasks import pack_task

    return pack_task(settings, arguments, path)


def _shuffle(settings: Mapping[str, Any], arguments: Mapping[str, Any], path: str) -> Any:
    from fastpack.distributed.edit_tasks import shuffle_task

    return shuffle_task(settings, arguments, path)


def _verify(settings: Mapping[str, Any], arguments: Mapping[str, Any], path: str) -> Any:
    from fastpack.distributed.verify_tasks import verify_task

    return verify_task(settings, arguments, path)


def _walk(settings: Mapping[str, Any], arguments: Mapping[str, Any], path: str) -> Any:
    from fastpack.distributed.prepare_tasks import walk_task

    return walk_task(settings, arguments, path)


TASK_FUNCTIONS: dict[str, TaskFunction] = {
    "index": _index,
    "merge": _merge,
    "pack": _pack,
    "shuffle": _shuffle,
    "verify": _verify,
    "walk": _walk,
}
