"""`merge`, `shuffle` and `chunk` in tasks: ranges of what is to be written, which are then joined into the file.

A shuffled file is cut between documents: a task is those that begin in a share of its bytes, and its file has them and
then their lengths in tokens, int64 (lines have none). A merged file is cut between tokens.
"""

from __future__ import annotations

import json
import os
import warnings
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from fastpack.distributed.concatenate import append_parts, counted, join_bytes, join_packed, part_of
from fastpack.distributed.plan import Done, Plan, Task, part_bytes, parts_folder, results
from fastpack.errors import DataWarning
from fastpack.io import AnyPath, AtomicFile, ExistencePolicy, PathLike, Progress, as_path, may_write
from fastpack.io.source_fingerprints import check_unchanged, fingerprint
from fastpack.tokens.edit.chunk import chunk_of_documents, chunk_of_lines, common_token_size
from fastpack.tokens.edit.document_collection import MAX_WINDOW
from fastpack.tokens.edit.edit_result import Compat, EditResult, check_compat, is_kept
from fastpack.tokens.edit.edit_writer import Edit
from fastpack.tokens.edit.merge import Source, copy_tokens, find_sources, read_sources, write_merged
from fastpack.tokens.edit.shuffle import shuffled_documents, shuffled_lines
from fastpack.tokens.edit.shuffle_order import check_chunk

Shuffling: TypeAlias = Literal["shuffle pbin", "shuffle jsonl", "chunk pbin", "chunk jsonl"]

_EDITS: dict[str, Callable[..., Edit]] = {
    "shuffle pbin": shuffled_documents,
    "shuffle jsonl": shuffled_lines,
    "chunk pbin": chunk_of_documents,
    "chunk jsonl": chunk_of_lines,
}
_MERGE = "fastpack.distributed.edit_tasks:merge_part"


def plan_shuffling(
    kind: Shuffling,
    paths: Sequence[PathLike],
    target: PathLike,
    options: Mapping[str, Any],
    *,
    bytes_per_task: int | None = None,
    folder: str | None = None,
    file_existence_policy: ExistencePolicy = "error",
) -> Plan:
    """A shuffle (of one path) or a chunk in tasks; `collect_edit` does the last step.

    options: "seed"; of chunks "chunk_id", "num_chunks" and "global_seed" instead; of lines "compat" as well.
    bytes_per_task: of output (default: 256 MiB, or more where that would make thousands; small tasks read each page of
    a source many times). The result does not depend on it. folder: of the tasks' files (default: that of the target).
    Raises what the functions of these names raise before they read documents, and ValueError without a seed.
    """
    check_compat(options.get("compat"))
    check_chunk(options.get("chunk_id", 0), options.get("num_chunks", 1))
    if options["seed" if kind.startswith("shuffle") else "global_seed"] is None:
        raise ValueError("processes that share a shuffle need a seed: without one each would have an order of its own")
    kept = is_kept(paths, target, file_existence_policy)
    if kind.endswith("pbin"):
        common_token_size(paths)
    settings = {"kind": kind, "paths": [os.fspath(path) for path in paths], "options": dict(options)}
    total = sum(size for _, size, _ in map(fingerprint, settings["paths"])) // options.get("num_chunks", 1)
    borders = _borders(total, part_bytes(total, bytes_per_task, MAX_WINDOW))
    n_parts = len(borders) - 1
    tasks = [
        Task(f"{part:06d}", {"part": part, "of": n_parts}, end - start)
        for part, (start, end) in enumerate(pairwise(borders))
    ]
    return _plan("fastpack.distributed.edit_tasks:shuffle_part", settings, as_path(target), tasks, kept, folder)


def plan_merge(
    src_paths: Sequence[PathLike],
    target: PathLike,
    *,
    compat: Compat = None,
    token_size_in_bytes: int | None = None,
    bytes_per_task: int | None = None,
    folder: str | None = None,
    file_existence_policy: ExistencePolicy = "error",
) -> Plan:
    """`merge_packed_data` in tasks; `collect_edit` does the last step. Other arguments are those of `plan_shuffling`,
    but for tasks of 64 MiB.

    Raises what `merge_packed_data` raises, but for what is wrong with an index: that is found by the last step.
    """
    check_compat(compat)
    target = as_path(target)
    paths = find_sources(src_paths, target)
    kept = is_kept(paths, target, file_existence_policy)
    sources, size = read_sources(paths, token_size_in_bytes, compat, headers_only=True)
    tasks = []
    for number, pieces in enumerate(_pieces(sources, size, bytes_per_task)):
        n_tokens = sum(end - start for _, start, end in pieces)
        tasks.append(Task(f"{number:06d}", {"pieces": pieces}, n_tokens * size))
    settings = {"sources": list(map(list, sources)), "size": size, "compat": compat, "paths": list(map(str, paths))}
    return _plan(_MERGE, settings, target, tasks, kept, folder)


def _plan(
    function: str, settings: Mapping[str, Any], target: AnyPath, tasks: Sequence[Task], kept: bool, folder: str | None
) -> Plan:
    stamps = list(
        map(fingerprint, settings["paths"])
    )  # among the settings as well: tasks see to it that nothing changed
    settings = {**settings, "target": str(target), "stamps": stamps}
    unneeded = frozenset(task.name for task in tasks if kept)
    return Plan(function, parts_folder(str(target), folder), settings, stamps, tasks, unneeded)


def _borders(total: int, n_bytes: int) -> list[int]:
    """Where `total` bytes are cut into equal parts of up to `n_bytes`, one at least."""
    n_parts = max(1, -(-total // n_bytes))
    return [total * part // n_parts for part in range(n_parts + 1)]


def _pieces(sources: Sequence[Source], size: int, asked: int | None) -> Iterator[list[tuple[int, int, int]]]:
    """Of each task: (number of the source, first of its tokens, end)."""
    ends = list(accumulate(source.n_tokens for source in sources))
    total = ends[-1] * size
    for start, end in pairwise(border // size for border in _borders(total, part_bytes(total, asked))):
        pieces = []
        number = bisect_right(ends, start)
        while start < end:
            before = ends[number] - sources[number].n_tokens
            pieces.append((number, start - before, min(end, ends[number]) - before))
            start = ends[number]
            number += 1
        yield pieces


def merge_part(settings: Mapping[str, Any], arguments: Mapping[str, Any], path: str) -> dict[str, int]:
    """Do a task of `plan_merge`: tokens into `path`; returns their bytes."""
    with AtomicFile(path, follow=False) as file:
        file.reserve(sum(end - start for _, start, end in arguments["pieces"]) * settings["size"])
        for number, start, end in arguments["pieces"]:
            check_unchanged([settings["stamps"][number]])
            for _ in copy_tokens(Source(*settings["sources"][number]), start, end, settings["size"], file):
                pass
        return {"bytes": file.tell()}


def shuffle_part(settings: Mapping[str, Any], arguments: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Do a task of `plan_shuffling`: documents and their lengths into `path`; returns how much that is.

    The order and where the documents lie are found out once a process, for all tasks of a plan.
    """
    whole = _whole(json.dumps(settings), arguments["of"])
    if isinstance(whole, Exception):
        raise whole
    (documents, order, size), borders, warned = whole
    first, end = borders[arguments["part"] : arguments["part"] + 2]
    ids = order[first:end]
    lengths = documents.lengths[ids]
    n_bytes = int(lengths.sum())
    with AtomicFile(path, follow=False) as file:
        file.reserve(n_bytes)
        documents.write(ids, lambda block, _lengths: len(block) and file.write(block))
        if size is not None and len(ids):
            file.write(lengths // size)
    return {"documents": len(ids), "bytes": n_bytes, "token_size": size, "warned": warned}


class _Whole(NamedTuple):
    """All that is to be written, where the tasks begin and end in its order, and what was warned of."""

    edit: Edit
    borders: list[int]
    warned: list[str]


@lru_cache(maxsize=1)
def _whole(settings: str, n_parts: int) -> _Whole | Exception:
    """What was wrong is kept as well: thousands of tasks would find it out anew."""
    given = json.loads(settings)
    try:
        check_unchanged(given["stamps"])
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            edit = _EDITS[given["kind"]](given["paths"], **given["options"])
    except Exception as error:
        return error
    lengths = edit.documents.lengths[edit.order]
    starts = np.cumsum(lengths)
    starts -= lengths
    shares = [edit.documents.n_bytes * part // n_parts for part in range(1, n_parts)]
    borders = [0, *np.searchsorted(starts, shares).tolist(), len(starts)]
    return _Whole(edit, borders, [str(warning.message) for warning in warned])


def collect_edit(
    plan: Plan, *, file_existence_policy: ExistencePolicy = "error", progress: Progress | None = None
) -> EditResult:
    """Join what the tasks of a plan of this module left into the file.

    Raises JobError where tasks are not done, with their names, and where a source has changed meanwhile; TargetExists
    by the policy.
    """
    target, n_sources = as_path(plan.settings["target"]), len(plan.settings["paths"])
    if plan.unneeded or not may_write(target, file_existence_policy):
        return EditResult(target, sources=n_sources, written=False, kept_existing=True)
    done = results(plan)
    check_unchanged(plan.stamps)
    left = [done[task.name] for task in plan.tasks]
    advance = counted(progress, sum(found.result["bytes"] for found in left))
    join = _join_merged if plan.function == _MERGE else _join_shuffled
    return replace(join(plan, left, target, file_existence_policy, advance), sources=n_sources)


def _join_merged(
    plan: Plan, left: Sequence[Done], target: AnyPath, policy: ExistencePolicy, advance: Callable[[int], None]
) -> EditResult:
    sources, size = read_sources(plan.settings["paths"], plan.settings["size"], plan.settings["compat"])
    parts = [part_of(done, done.result["bytes"]) for done in left]
    return write_merged(sources, size, target, policy, lambda output: append_parts(output, parts, advance))


def _join_shuffled(
    _plan: Plan, left: Sequence[Done], target: AnyPath, policy: ExistencePolicy, advance: Callable[[int], None]
) -> EditResult:
    for text in left[0].result["warned"]:
        warnings.warn(text, DataWarning, stacklevel=3)
    n_documents = sum(done.result["documents"] for done in left)
    size = left[0].result["token_size"]
    parts = [part_of(done, done.result["bytes"], 0 if size is None else done.result["documents"]) for done in left]
    if size is None:
        n_bytes = join_bytes(parts, target, policy, advance)
        return EditResult(target, n_documents, None, n_bytes)
    n_bytes = join_packed(parts, size, target, policy, advance)
    return EditResult(target, n_documents, sum(part.n_bytes for part in parts) // size, n_bytes)
