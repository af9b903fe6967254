"""Progress functions that also receive numbers of documents and tokens, and their division among files."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Protocol, runtime_checkable

from fastpack.io.if_exists import Progress
from fastpack.io.paths import AnyPath


@runtime_checkable
class CountsDocuments(Protocol):
    """A `Progress` that also shows the number of documents and tokens that are done."""

    def count(self, documents: int, tokens: int) -> None:
        """Receive the numbers, 0 for an unknown one; called before the call that reports the bytes."""
        ...


def counting(progress: Progress | None, documents: int | None, tokens: int | None) -> Progress | None:
    """Return a progress function that also reports the share of these documents and tokens, if `progress` shows it."""
    counter: object = progress
    if progress is None or not isinstance(counter, CountsDocuments):
        return progress

    def report(done: int, total: int) -> None:
        counter.count(*((number or 0) * done // max(total, 1) for number in (documents, tokens)))
        progress(done, total)

    return report


def divide_progress(progress: Progress | None, paths: Sequence[AnyPath]) -> list[Progress | None]:
    """Divide a progress function among several files, by their sizes."""
    if progress is None or len(paths) == 1:
        return [progress] * len(paths)
    sizes = [max(1, _n_bytes(path)) for path in paths]
    counts: dict[int, tuple[int, int]] = {}
    return [_Share(progress, end - n, n, sum(sizes), counts) for end, n in zip(accumulate(sizes), sizes, strict=True)]


class _Share:
    """The progress function of one of several files. counts: position -> documents and tokens, of all files."""

    def __init__(
        self, progress: Progress, before: int, n_bytes: int, whole: int, counts: dict[int, tuple[int, int]]
    ) -> None:
        self._progress, self._counts = progress, counts
        self._before, self._n_bytes, self._whole = before, n_bytes, whole

    def count(self, documents: int, tokens: int) -> None:
        self._counts[self._before] = documents, tokens
        counter: object = self._progress
        if isinstance(counter, CountsDocuments):
            counter.count(*map(sum, zip(*self._counts.values(), strict=True)))

    def __call__(self, done: int, total: int) -> None:
        self._progress(self._before + self._n_bytes * done // max(1, total), self._whole)


def _n_bytes(path: AnyPath) -> int:
    if path.is_dir():
        return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    return path.stat().st_size if path.exists() else 0
