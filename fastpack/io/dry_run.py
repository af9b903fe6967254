"""A replacement for output files in a dry run."""

from __future__ import annotations

from typing import Any


class NoFile:
    """A replacement for an AtomicFile that counts the bytes (`tell`) and writes none."""

    def __init__(self) -> None:
        self._n_bytes = 0

    def write(self, data: Any) -> int:
        n_bytes = memoryview(data).nbytes
        self._n_bytes += n_bytes
        return n_bytes

    def tell(self) -> int:
        return self._n_bytes

    def __enter__(self) -> NoFile:
        return self

    def __exit__(self, *_: object) -> None:
        pass
