"""Creates the raw indexes of many JSON Lines files: large files one after another, small ones in parallel."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable

from fastpack.argument_aliases import accept_aliases
from fastpack.documents.create_index import IndexResult, create_raw_index
from fastpack.documents.raw_index_check import default_index_path
from fastpack.documents.source_paths import Sources, find_json_lines
from fastpack.io import ExistencePolicy, Progress, size_of

LARGE = 64 << 20  # bytes; with several threads per smaller file, fsync would dominate


@accept_aliases(file_existence_policy="if_exists")
def create_raw_indices(
    sources: Sources,
    *,
    validate: bool = True,
    drop_faulty_entries: bool = False,
    if_exists: ExistencePolicy = "error",
    num_threads: int = 1,
    progress: Progress | None = None,
) -> list[IndexResult]:
    r"""Write the byte-offset index of each of many JSON Lines files next to it.

    An error ends the run; complete indexes are kept.

    Parameters
    ----------
    sources
        Paths, directories and glob patterns. Compressed files in directories and patterns are left out.
    validate, drop_faulty_entries, if_exists
        As `create_raw_index`.
    num_threads
        Number of threads. The result does not depend on it.
    progress
        Called with (bytes done, total bytes).

    Returns
    -------
    list of IndexResult
        The results in the order of the sources.

    Raises
    ------
    ValueError
        If two sources would have the same index.
    FaultyLine, FileNotFoundError, TargetExists
        As `create_raw_index`.

    Examples
    --------
    >>> import pathlib, tempfile, fastpack
    >>> folder = tempfile.TemporaryDirectory()
    >>> for name in ("a", "b"):
    ...     _ = pathlib.Path(folder.name, f"{name}.jsonl").write_text('{"text": ""}\n')
    >>> [(result.path.name, result.entries) for result in fastpack.create_raw_indices(folder.name)]
    [('a.idx', 1), ('b.idx', 1)]
    >>> folder.cleanup()
    """
    paths = find_json_lines(sources)
    check_targets(paths)
    total = _TotalProgress(progress, sum(map(size_of, paths)))

    def index(path: str, threads: int) -> IndexResult:
        return create_raw_index(
            path,
            validate=validate,
            drop_faulty_entries=drop_faulty_entries,
            if_exists=if_exists,
            num_threads=threads,
            progress=total.of_one_file(),
        )

    small = [path for path in paths if size_of(path) < LARGE or num_threads == 1]
    results = {path: index(path, num_threads) for path in paths if path not in set(small)}
    results |= _in_parallel(lambda path: index(path, 1), small, num_threads)
    return [results[path] for path in paths]


def _in_parallel(
    index: Callable[[str], IndexResult], paths: Collection[str], num_threads: int
) -> dict[str, IndexResult]:
    if num_threads == 1 or len(paths) == 1:
        return {path: index(path) for path in paths}
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(num_threads, "fastpack-index") as pool:
        futures = {path: pool.submit(index, path) for path in paths}
        try:
            return {path: future.result() for path, future in futures.items()}
        finally:
            pool.shutdown(cancel_futures=True)


def check_targets(paths: Iterable[str]) -> None:
    """Raise ValueError if two sources have the same default index path."""
    taken: dict[str, str] = {}
    for path in paths:
        other = taken.setdefault(str(default_index_path(path)), path)
        if other != path:
            raise ValueError(f"{other} and {path} would both have the index {default_index_path(path)}: rename one")


class _TotalProgress:
    """Adds up the progress of several threads, each of which processes one file."""

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
