"""Raw indices of many JSON lines files: large files one by one on all threads, small ones side by side."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

from fastpack.documents.create_index import IndexResult, create_raw_index
from fastpack.documents.raw_index_check import default_index_path
from fastpack.documents.source_paths import Sources, find_sources
from fastpack.io import ExistencePolicy, Progress, size_of

LARGE = 64 << 20  # bytes; below, threads of one file would wait for its fsync more than they work


def create_raw_indices(
    sources: Sources,
    *,
    validate: bool = True,
    drop_faulty_entries: bool = False,
    file_existence_policy: ExistencePolicy = "error",
    num_threads: int = 1,
    progress: Progress | None = None,
) -> list[IndexResult]:
    """Write the raw index of each of `sources` beside it: paths, directories, patterns (`build.sources`).

    As `create_raw_index` for each; compressed files in directories and patterns are left out. The results, in the
    order of the sources, do not depend on num_threads. An error ends the run; indices that are complete stay.

    Raises as `create_raw_index`, and ValueError where two sources would have the same index.
    """
    paths = find_sources(sources, compressed=False)
    check_targets(paths)
    report = _Report(progress, sum(map(size_of, paths)))

    def index(path: str, threads: int) -> IndexResult:
        return create_raw_index(
            path,
            validate=validate,
            drop_faulty_entries=drop_faulty_entries,
            file_existence_policy=file_existence_policy,
            num_threads=threads,
            progress=report.of_one_file(),
        )

    small = [path for path in paths if size_of(path) < LARGE or num_threads == 1]
    results = {path: index(path, num_threads) for path in paths if path not in set(small)}
    results |= _side_by_side(lambda path: index(path, 1), small, num_threads)
    return [results[path] for path in paths]


def _side_by_side(
    index: Callable[[str], IndexResult], paths: Iterable[str], num_threads: int
) -> dict[str, IndexResult]:
    if num_threads == 1:
        return {path: index(path) for path in paths}
    with ThreadPoolExecutor(num_threads, "fastpack-index") as pool:
        futures = {path: pool.submit(index, path) for path in paths}
        try:
            return {path: future.result() for path, future in futures.items()}
        finally:
            pool.shutdown(cancel_futures=True)


def check_targets(paths: Iterable[str]) -> None:
    """ValueError where two sources would have the same index."""
    taken: dict[str, str] = {}
    for path in paths:
        other = taken.setdefault(str(default_index_path(path)), path)
        if other != path:
            raise ValueError(f"{other} and {path} would both have the index {default_index_path(path)}: rename one")


class _Report:
    """Adds up the bytes that several threads report, each for a file of its own."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress, self._total = progress, total
        self._done = 0
        self._lock = threading.Lock()

    def of_one_file(self) -> Progress | None:
        if self._progress is None:
            return None
        before = 0

        def report(done: int, _total: int) -> None:
            nonlocal before
            with self._lock:
                self._done += done - before
                before = done
                assert self._progress is not None
                self._progress(self._done, self._total)

        return report
