"""`index` in tasks: ranges of bytes are scanned and judged anywhere, in any order, and then joined into the indexes.

A task's file has, of each of its pieces, the rows of the good lines, int64 [n, 2], and of the faulty ones, int64
[m, 3]: the number of the line, counted from the first of the piece, and its row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from fastpack.distributed.plan import Done, Plan, Task, check_size, cut, part_bytes, parts_folder, results
from fastpack.documents.create_index import FaultLog, IndexResult, check_paths, may_write_index
from fastpack.documents.create_indices import check_targets
from fastpack.documents.json_lines import Rows, faulty_lines, line_start_from, scan_lines
from fastpack.documents.raw_index import RawIndexWriter
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

_ROWS = 1 << 16  # joined at once


def plan_index(
    sources: Sources,
    index_path: PathLike | None = None,
    *,
    validate: bool = True,
    bytes_per_task: int | None = None,
    folder: str | None = None,
    file_existence_policy: ExistencePolicy = "error",
) -> Plan:
    """`create_raw_index` of one source, or `create_raw_indices`, in tasks; `collect_index` does the last step.

    bytes_per_task: of source (default: 64 MiB, or more where that would make thousands); folder: of the tasks' files.
    Raises what they raise before they read lines.
    """
    paths = _paths(sources)
    targets = [default_index_path(path) if index_path is None else as_path(index_path) for path in paths]
    for path, target in zip(paths, targets, strict=True):
        check_paths(path, target)
    known = enumerate(zip(paths, targets, strict=True))
    kept = {number for number, pair in known if not may_write_index(*pair, file_existence_policy)}
    stamps = list(map(fingerprint, paths))
    sizes = [size for _, size, _ in stamps]
    tasks = []
    for number, pieces in enumerate(cut(sizes, [False] * len(sizes), part_bytes(sum(sizes), bytes_per_task))):
        share = sum(sizes[source] // n_parts for source, _, n_parts in pieces)
        tasks.append(Task(f"{number:06d}", {"pieces": list(map(list, pieces))}, share))
    unneeded = frozenset(t.name for t in tasks if kept.issuperset(source for source, _, _ in t.arguments["pieces"]))
    settings = {"sources": paths, "targets": list(map(str, targets)), "validate": validate}
    home = parts_folder(str(targets[0]), folder)
    return Plan("fastpack.distributed.index_tasks:index_part", home, settings, stamps, tasks, unneeded)


def _paths(sources: Sources) -> list[str]:
    if is_one_file(sources):
        return [str(sources)]
    paths = find_sources(sources, compressed=False)
    check_targets(paths)
    return paths


def index_part(settings: Mapping[str, Any], arguments: Mapping[str, Any], path: str) -> list[list[int]]:
    """Do a task: rows into `path`; returns of each piece how many lines are good, and how many faulty."""
    counts: list[list[int]] = []
    with AtomicFile(path, follow=False) as file:
        for number, part, n_parts in arguments["pieces"]:
            data = open_bytes(settings["sources"][number])
            start, end = (line_start_from(data, len(data) * border // n_parts) for border in (part, part + 1))
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
    file_existence_policy: ExistencePolicy = "error",
    progress: Progress | None = None,
) -> list[IndexResult]:
    """Join what the tasks of `plan_index` left into the indexes; the results, in the order of the sources.

    Raises and warns as `create_raw_indices`, and JobError, with their names, where tasks are not done.
    """
    targets = [as_path(path) for path in plan.settings["targets"]]
    kept = [not may_write(target, file_existence_policy) for target in targets]
    pieces = _pieces(plan, results(plan)) if not all(kept) else {}
    total, done = sum(task.n_bytes for task in plan.tasks), 0
    found: list[IndexResult] = []
    for number, (source, target) in enumerate(zip(plan.settings["sources"], targets, strict=True)):
        if kept[number]:
            found.append(IndexResult(target, 0, 0, 0, written=False))
        else:
            found.append(_join(plan, source, target, pieces[number], drop_faulty_entries, file_existence_policy))
        done += size_of(source)
        if progress is not None:
            progress(min(done, total), total)
    return found


class _Piece:
    """Rows of a piece: `n_good` from byte `start` of `path` on, then `n_bad` faulty ones."""

    def __init__(self, path: str, start: int, n_good: int, n_bad: int) -> None:
        self.path, self.start, self.n_good, self.n_bad = path, start, n_good, n_bad

    def good(self) -> Iterator[Rows]:
        data = map_bytes(self.path)[self.start : self.start + 16 * self.n_good].view(np.int64).reshape(-1, 2)
        return (data[first : first + _ROWS] for first in range(0, len(data), _ROWS))

    def bad(self) -> Rows:
        start = self.start + 16 * self.n_good
        return map_bytes(self.path)[start : start + 24 * self.n_bad].view(np.int64).reshape(-1, 3)


def _pieces(plan: Plan, done: Mapping[str, Done]) -> dict[int, list[_Piece]]:
    """By the number of the source, in order."""
    pieces: dict[int, list[_Piece]] = {}
    for task in plan.needed:
        start, left = 0, done[task.name]
        for (number, _, _), (n_good, n_bad) in zip(task.arguments["pieces"], left.result, strict=True):
            pieces.setdefault(number, []).append(_Piece(left.path, start, n_good, n_bad))
            start += 16 * n_good + 24 * n_bad
        check_size(left, start)
    return pieces


def _join(
    plan: Plan, source: str, target: AnyPath, pieces: Sequence[_Piece], drop: bool, policy: ExistencePolicy
) -> IndexResult:
    n_bad = sum(piece.n_bad for piece in pieces)
    n_bytes = size_of(source)
    faults = FaultLog(source, open_bytes(source) if n_bad else np.empty(0, np.uint8), drop)
    with RawIndexWriter(target, policy) as writer:
        if plan.settings["validate"] and n_bytes == 0:
            faults.empty_file()
        for piece in pieces:
            for number, *row in piece.bad() if piece.n_bad else ():
                faults.report(faults.n_lines + int(number), np.array(row))
            for rows in piece.good() if piece.n_good else ():
                writer.append(rows)
            faults.n_lines += piece.n_good + piece.n_bad
    faults.summarise()
    return IndexResult(target, writer.n_rows, faults.dropped, n_bytes)
