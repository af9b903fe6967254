"""`index` as tasks: scan and validate chunks of the sources, then concatenate the rows into the indexes.

The file of a task contains, for each chunk, the rows of the valid lines, int64[n, 2], and those of the faulty lines,
int64[m, 3]: the number of the line, counted from 0 in the chunk, and its row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from fastpack.distributed.map_concatenate import chunk_bytes, numbered_tasks, split_sources, task_bytes, task_folder
from fastpack.distributed.plan import Done, Plan, check_size, results
from fastpack.documents.create_index import FaultLog, IndexResult, check_paths, may_write_index
from fastpack.documents.create_indices import check_targets
from fastpack.documents.json_lines import Rows, faulty_lines, line_start_from, scan_lines
from fastpack.documents.raw_index import open_raw_index_writer
from fastpack.documents.raw_index_check import default_index_path
from fastpack.documents.source_paths import Sources, find_sources, is_one_file
from fastpack.io import (
    AnyPath,
    AtomicFile,
    ExistencePolicy,
    PathLike,
    Progress,
    as_path,
    map_bytes,
    may_write,
    open_bytes,
    size_of,
    stop_at,
)
from fastpack.io.source_fingerprints import fingerprint

_ROWS = 1 << 16  # copied at once


def plan_index(
    sources: Sources,
    index_path: PathLike | None = None,
    *,
    validate: bool = True,
    bytes_per_task: int | None = None,
    folder: str | None = None,
    if_exists: ExistencePolicy = "error",
) -> Plan:
    """Plan `create_raw_index` of one source, or `create_raw_indices`, as tasks; `collect_index` is the last step.

    bytes_per_task: of source (default: 64 MiB, or more where that would make thousands); folder: of the tasks' files.
    Raises what they raise before they read lines.
    """
    paths = _paths(sources)
    targets = [default_index_path(path) if index_path is None else as_path(index_path) for path in paths]
    for path, target in zip(paths, targets, strict=True):
        check_paths(path, target)
    known = enumerate(zip(paths, targets, strict=True))
    kept = {number for number, pair in known if not may_write_index(*pair, if_exists)}
    stamps = list(map(fingerprint, paths))
    sizes = [stamp.n_bytes for stamp in stamps]
    groups = split_sources(sizes, [False] * len(sizes), task_bytes(sum(sizes), bytes_per_task))
    tasks = numbered_tasks(({"chunks": list(map(list, group))}, chunk_bytes(group, sizes)) for group in groups)
    unneeded = frozenset(t.name for t in tasks if kept.issuperset(source for source, _, _ in t.arguments["chunks"]))
    settings = {"sources": paths, "targets": list(map(str, targets)), "validate": validate}
    home = task_folder(str(targets[0]), folder)
    return Plan("index", home, settings, stamps, tasks, unneeded)


def _paths(sources: Sources) -> list[str]:
    if is_one_file(sources):
        return [str(sources)]
    paths = find_sources(sources, compressed=False)
    check_targets(paths)
    return paths


def index_task(settings: Mapping[str, Any], arguments: Mapping[str, Any], path: str) -> list[list[int]]:
    """Scan the chunks of a task and write the rows to `path`; return [valid, faulty] lines of each chunk."""
    counts: list[list[int]] = []
    with AtomicFile(path, follow=False) as file:
        for number, chunk, n_chunks in arguments["chunks"]:
            data = open_bytes(settings["sources"][number])
            start, end = (line_start_from(data, len(data) * border // n_chunks) for border in (chunk, chunk + 1))
            n_good, bad, before = 0, [np.empty((0, 3), np.int64)], 0
            for rows in scan_lines(stop_at(data, end), start=start, end=end):
                faults = [row for row, _ in faulty_lines(data, rows)] if settings["validate"] else []
                bad.append(np.column_stack([np.array(faults, np.int64) + before, rows[faults]]))
                before += len(rows)
                rows = np.delete(rows, faults, axis=0) if faults else rows
                n_good += len(rows)
                if len(rows):
                    file.write(rows)
            wrong = np.concatenate(bad)
            if len(wrong):
                file.write(wrong)
            counts.append([n_good, len(wrong)])
    return counts


def collect_index(
    plan: Plan,
    *,
    drop_faulty_entries: bool = False,
    if_exists: ExistencePolicy = "error",
    progress: Progress | None = None,
) -> list[IndexResult]:
    """Concatenate the rows of all tasks into the indexes; return the results in the order of the sources.

    Raises and warns as `create_raw_indices`; raises JobError with the names of tasks that are not done.
    """
    targets = [as_path(path) for path in plan.settings["targets"]]
    kept = [not may_write(target, if_exists) for target in targets]
    chunks = _chunk_rows(plan, results(plan)) if not all(kept) else {}
    total, done = sum(task.n_bytes for task in plan.tasks), 0
    found: list[IndexResult] = []
    for number, (source, target) in enumerate(zip(plan.settings["sources"], targets, strict=True)):
        if kept[number]:
            found.append(IndexResult(target, 0, 0, 0, written=False))
        else:
            found.append(_concatenate(plan, source, target, chunks[number], drop_faulty_entries, if_exists))
        done += size_of(source)
        if progress is not None:
            progress(min(done, total), total)
    return found


class _ChunkRows:
    """The rows of a chunk: `n_good` from byte `start` of `path`, then `n_bad` rows of faulty lines."""

    def __init__(self, path: str, start: int, n_good: int, n_bad: int) -> None:
        self.path, self.start, self.n_good, self.n_bad = path, start, n_good, n_bad

    def good(self) -> Iterator[Rows]:
        data = map_bytes(self.path)[self.start : self.start + 16 * self.n_good].view(np.int64).reshape(-1, 2)
        return (data[first : first + _ROWS] for first in range(0, len(data), _ROWS))

    def bad(self) -> Rows:
        start = self.start + 16 * self.n_good
        return map_bytes(self.path)[start : start + 24 * self.n_bad].view(np.int64).reshape(-1, 3)


def _chunk_rows(plan: Plan, done: Mapping[str, Done]) -> dict[int, list[_ChunkRows]]:
    """Return the rows of each source by its number, in order."""
    chunks: dict[int, list[_ChunkRows]] = {}
    for task in plan.needed:
        start, finished = 0, done[task.name]
        for (number, _, _), (n_good, n_bad) in zip(task.arguments["chunks"], finished.result, strict=True):
            chunks.setdefault(number, []).append(_ChunkRows(finished.path, start, n_good, n_bad))
            start += 16 * n_good + 24 * n_bad
        check_size(finished, start)
    return chunks


def _concatenate(
    plan: Plan, source: str, target: AnyPath, chunks: Sequence[_ChunkRows], drop: bool, policy: ExistencePolicy
) -> IndexResult:
    n_bad = sum(chunk.n_bad for chunk in chunks)
    n_bytes = size_of(source)
    faults = FaultLog(source, open_bytes(source) if n_bad else np.empty(0, np.uint8), drop)
    with open_raw_index_writer(target, policy) as writer:
        if plan.settings["validate"] and n_bytes == 0:
            faults.empty_file()
        for chunk in chunks:
            for number, *row in chunk.bad() if chunk.n_bad else ():
                faults.report(faults.n_lines + int(number), np.array(row))
            for rows in chunk.good() if chunk.n_good else ():
                writer.append(rows)
            faults.n_lines += chunk.n_good + chunk.n_bad
    faults.summarise()
    return IndexResult(target, writer.n_rows, faults.dropped, n_bytes)
