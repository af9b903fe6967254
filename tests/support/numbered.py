"""Test helpers for loaders: a dataset whose items are their indices, and the batches of repeated `next` calls."""

from __future__ import annotations

from typing import Any

import fastpack


class Numbers:
    """A dataset whose item is its index."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        return index


def drawn(loader: fastpack.StatefulDataLoader, times: int) -> list[Any]:
    """Return the results of `next`, as the golden scripts record them."""
    found: list[Any] = []
    for _ in range(times):
        try:
            found.append(next(loader).tolist())
        except StopIteration:
            found.append("StopIteration")
    return found
