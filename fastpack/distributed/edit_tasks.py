"""`merge`, `shuffle` and `chunk` as tasks: write ranges of the output, then concatenate them.

A shuffled file is divided at documents: a task writes those that begin in its range of bytes. Its file contains the
documents, then their lengths in tokens, int64 (except for lines). A merged file is divided at tokens.
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

from fastpack.distributed.map_concatenate import (
    byte_counter,
    concatenate_bytes,
    concatenate_tokens,
    equal_borders,
    numbered_tasks,
    output_blocks,
    task_bytes,
    task_folder,
    task_output,
)
from fastpack.distributed.plan import Done, Plan, Task, results
from fastpack.errors import DataWarning
from fastpack.io import AnyPath, AtomicFile, ExistencePolicy, PathLike, Progress, as_path, may_write
from fastpack.io.source_fingerprints import check_unchanged, fingerprint
from fastpack.tokens.document_masks import DocumentMasks
from fastpack.tokens.edit.chunk import chunk_of_documents, chunk_of_lines, common_tokens
from fastpack.tokens.edit.document_collection import MAX_WINDOW
from fastpack.tokens.edit.edit_result import (
    Compat,
    EditResult,
    check_compat,
    edit_dtype,
    is_kept,
    output_format,
    written_bytes,
)
from fastpack.tokens.edit.edit_writer import Edit
from fastpack.tokens.edit.merge import Source, find_sources, read_sources, read_tokens, write_merged
from fastpack.tokens.edit.shuffle import shuffled_documents, shuffled_lines
from fastpack.tokens.edit.shuffle_order import check_chunk
from fastpack.tokens.formats import format_named
from fastpack.tokens.interop_formats import first_output
from fastpack.tokens.mask_bits import MaskBits

Shuffling: TypeAlias = Literal["shuffle pbin", "shuffle jsonl", "chunk pbin", "chunk jsonl"]

_EDITS: dict[str, Callable[..., Edit]] = {
    "shuffle pbin": shuffled_documents,
    "shuffle jsonl": shuffled_lines,
    "chunk pbin": chunk_of_documents,
    "chunk jsonl": chunk_of_lines,
}
_MERGE = "merge"


def plan_shuffling(
    kind: Shuffling,
    paths: Sequence[PathLike],
    target: PathLike,
    options: Mapping[str, Any],
    *,
    bytes_per_task: int | None = None,
    folder: str | None = None,
    if_exists: ExistencePolicy = "error",
    format: str | None = None,
) -> Plan:
    """Plan a shuffle (of one path) or a chunk as tasks; `collect_edit` is the last step.

    options: "seed"; of chunks "chunk_id", "num_chunks" and "global_seed" instead; of lines "compat" as well; of flat
    token files "eos_token_id" as well.
    bytes_per_task: of output (default: 256 MiB, or more where that would make thousands; small tasks read each page of
    a source many times). The result does not depend on it. folder: of the tasks' files (default: that of the target).
    Raises what the functions of these names raise before they read documents, and ValueError without a seed.
    """
    check_compat(options.get("compat"))
    check_chunk(options.get("chunk_id", 0), options.get("num_chunks", 1))
    if options["seed" if kind.startswith("shuffle") else "global_seed"] is None:
        raise ValueError("a distributed shuffle needs a seed: without one, each process would use another order")
    row = output_format(as_path(target), format)
    target = first_output(row.name, as_path(target))
    kept = is_kept(paths, target, if_exists)
    if kind.endswith("pbin"):
        edit_dtype(row, common_tokens(paths, **_common_options(options))[0])
    names = [os.fspath(path) for path in paths]
    settings = {"kind": kind, "paths": names, "options": dict(options), "format": row.name}
    total = sum(size for _, size, _ in map(fingerprint, settings["paths"])) // options.get("num_chunks", 1)
    borders = equal_borders(total, task_bytes(total, bytes_per_task, MAX_WINDOW))
    n_tasks = len(borders) - 1
    tasks = numbered_tasks(
        ({"number": number, "of": n_tasks}, end - start) for number, (start, end) in enumerate(pairwise(borders))
    )
    return _plan("shuffle", settings, target, tasks, kept, folder)


def plan_merge(
    src_paths: Sequence[PathLike],
    target: PathLike,
    *,
    compat: Compat = None,
    token_size_in_bytes: int | None = None,
    mix_tokenizers: bool = False,
    bytes_per_task: int | None = None,
    folder: str | None = None,
    if_exists: ExistencePolicy = "error",
    format: str | None = None,
    eos_token_id: int | None = None,
) -> Plan:
    """Plan `merge_packed_data` as tasks; `collect_edit` is the last step.

    Other arguments are those of `plan_shuffling`; the default task has 64 MiB. Raises what `merge_packed_data` raises,
    except for errors in an index, which the last step finds.
    """
    check_compat(compat)
    row = output_format(as_path(target), format)
    target = first_output(row.name, as_path(target))
    paths = find_sources(src_paths, target, row)
    kept = is_kept(paths, target, if_exists)
    options: dict[str, Any] = {"mix_tokenizers": mix_tokenizers, "eos_token_id": eos_token_id}
    sources, size = read_sources(paths, token_size_in_bytes, compat, headers_only=True, **options)
    edit_dtype(row, size)
    pieces = _pieces(sources, size, bytes_per_task)
    tasks = numbered_tasks(({"pieces": one}, sum(end - start for _, start, end in one) * size) for one in pieces)
    settings = {
        "sources": [list(source._replace(fingerprint=None)) for source in sources],
        "size": size,
        "compat": compat,
        "options": options,
        "paths": list(map(str, paths)),
        "format": row.name,
    }
    return _plan(_MERGE, settings, target, tasks, kept, folder)


def _plan(
    function: str, settings: Mapping[str, Any], target: AnyPath, tasks: Sequence[Task], kept: bool, folder: str | None
) -> Plan:
    stamps = list(map(fingerprint, settings["paths"]))  # also in the settings: tasks detect changed sources
    settings = {**settings, "target": str(target), "stamps": stamps}
    unneeded = frozenset(task.name for task in tasks if kept)
    return Plan(function, task_folder(str(target), folder), settings, stamps, tasks, unneeded)


def _pieces(sources: Sequence[Source], size: int, requested: int | None) -> Iterator[list[tuple[int, int, int]]]:
    """Yield for each task its pieces: (number of the source, first token, end)."""
    ends = list(accumulate(source.n_tokens for source in sources))
    total = ends[-1] * size
    for start, end in pairwise(border // size for border in equal_borders(total, task_bytes(total, requested))):
        pieces = []
        number = bisect_right(ends, start)
        while start < end:
            before = ends[number] - sources[number].n_tokens
            pieces.append((number, start - before, min(end, ends[number]) - before))
            start = ends[number]
            number += 1
        yield pieces


def merge_task(settings: Mapping[str, Any], arguments: Mapping[str, Any], path: str) -> dict[str, int]:
    """Copy the tokens of a task to `path`; return their size in bytes."""
    with AtomicFile(path, follow=False) as file:
        file.reserve(sum(end - start for _, start, end in arguments["pieces"]) * settings["size"])
        for number, start, end in arguments["pieces"]:
            check_unchanged([settings["stamps"][number]])
            for tokens in read_tokens(Source(*settings["sources"][number]), start, end):
                file.write(tokens.astype(f"<u{settings['size']}", copy=False))
        return {"bytes": file.tell()}


def shuffle_task(settings: Mapping[str, Any], arguments: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Write the documents of a task and their lengths to `path`; return their numbers and sizes.

    The order and the positions of the documents are computed once per process, for all tasks of a plan.
    """
    complete = _complete_edit(json.dumps(settings), arguments["of"])
    if isinstance(complete, Exception):
        raise complete
    (documents, order, size, *_), borders, warned = complete
    first, end = borders[arguments["number"] : arguments["number"] + 2]
    ids = order[first:end]
    lengths = documents.lengths[ids]
    n_bytes = int(lengths.sum())
    with AtomicFile(path, follow=False) as file:
        file.reserve(n_bytes)
        documents.write(ids, lambda block, _lengths: len(block) and file.write(block))
        if size is not None and len(ids):
            file.write(lengths // size)
    return {"documents": len(ids), "bytes": n_bytes, "token_size": size, "warned": warned}


class _CompleteEdit(NamedTuple):
    """The complete edit, the borders of the tasks in its order, and the warnings."""

    edit: Edit
    borders: list[int]
    warned: list[str]


@lru_cache(maxsize=1)
def _complete_edit(settings: str, n_tasks: int) -> _CompleteEdit | Exception:
    """Return the complete edit or its error; both are cached, because thousands of tasks would repeat the work."""
    fields = json.loads(settings)
    try:
        check_unchanged(fields["stamps"])
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            edit = _EDITS[fields["kind"]](fields["paths"], **fields["options"])
    except Exception as error:
        return error
    lengths = edit.documents.lengths[edit.order]
    starts = np.cumsum(lengths)
    starts -= lengths
    shares = [edit.documents.n_bytes * number // n_tasks for number in range(1, n_tasks)]
    borders = [0, *np.searchsorted(starts, shares).tolist(), len(starts)]
    return _CompleteEdit(edit, borders, [str(warning.message) for warning in warned])


def collect_edit(plan: Plan, *, if_exists: ExistencePolicy = "error", progress: Progress | None = None) -> EditResult:
    """Concatenate the outputs of the tasks of a plan of this module.

    Raises JobError with the names of tasks that are not done, and for a source that has changed; TargetExists by the
    policy.
    """
    target, n_sources = as_path(plan.settings["target"]), len(plan.settings["paths"])
    if plan.unneeded or not may_write(target, if_exists):
        return EditResult(target, sources=n_sources, written=False, kept_existing=True)
    done = results(plan)
    check_unchanged(plan.stamps)
    finished = [done[task.name] for task in plan.tasks]
    advance = byte_counter(progress, sum(found.result["bytes"] for found in finished))
    concatenate = _concatenate_merged if plan.function == _MERGE else _concatenate_shuffled
    return replace(concatenate(plan, finished, target, if_exists, advance), sources=n_sources)


def _concatenate_merged(
    plan: Plan, finished: Sequence[Done], target: AnyPath, policy: ExistencePolicy, advance: Callable[[int], None]
) -> EditResult:
    names = ("paths", "size", "compat")
    given = (plan.settings[name] for name in names)
    sources, size = read_sources(*given, **plan.settings["options"])
    outputs = [task_output(done, done.result["bytes"]) for done in finished]

    blocks = (block.view(f"<u{size}") for block in output_blocks(outputs, advance))
    return write_merged(sources, size, format_named(plan.settings["format"]), target, policy, blocks)


def _concatenate_shuffled(
    plan: Plan, finished: Sequence[Done], target: AnyPath, policy: ExistencePolicy, advance: Callable[[int], None]
) -> EditResult:
    for text in finished[0].result["warned"]:
        warnings.warn(text, DataWarning, stacklevel=3)
    n_documents = sum(done.result["documents"] for done in finished)
    size = finished[0].result["token_size"]
    outputs = [
        task_output(done, done.result["bytes"], 0 if size is None else done.result["documents"]) for done in finished
    ]
    if size is None:
        n_bytes = concatenate_bytes(outputs, target, policy, advance)
        return EditResult(target, n_documents, None, n_bytes)
    _, common = common_tokens(plan.settings["paths"], **_common_options(plan.settings["options"]))
    row, encoded = format_named(plan.settings["format"]), np.dtype(f"u{size}")
    mask = _mask(plan)
    n_empty = concatenate_tokens(outputs, encoded, edit_dtype(row, size), row, target, policy, advance, common, mask)
    n_tokens = sum(output.n_bytes for output in outputs) // size
    return EditResult(target, n_documents - n_empty, n_tokens, written_bytes(row, target), n_empty_dropped=n_empty)


def _mask(plan: Plan) -> MaskBits | None:
    """Return the loss mask of a shuffle; the order is computed again only if a source has a mask."""
    paths, options = plan.settings["paths"], plan.settings["options"]
    masks = DocumentMasks()
    common_tokens(paths, masks.add, **_common_options(options) | {"mix_tokenizers": True})
    if not masks.exist:
        return None
    edit = _EDITS[plan.settings["kind"]](paths, **options)
    assert edit.masks is not None
    assert edit.token_size is not None
    return edit.masks.bits(edit.order, edit.documents.lengths // edit.token_size)


def _common_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of `common_tokens` among those of an edit."""
    return {name: options[name] for name in ("mix_tokenizers", "eos_token_id") if name in options}
