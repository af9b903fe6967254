"""What loaders are tested with: a dataset whose items tell their place, and what is drawn from a loader."""

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
    """What `next` gives, as the golden scripts write it."""
    found: list[Any] = []
    for _ in range(times):
        try:
            found.append(next(loader).tolist())
        except StopIteration:
            found.append("StopIteration")
    return found
