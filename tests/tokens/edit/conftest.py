"""Packed files of every generation, written independently of fastpack."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from packed_files import packed_bytes

Documents = Sequence[Sequence[int]]
WritePacked = Callable[..., Path]


def bytes_of(documents: Documents, size: int, generation: int = 5) -> bytes:
    """Return a file with `documents`; tokens of generations 1 and 2 always take 4 bytes."""
    return packed_bytes(documents, generation, size if generation >= 3 else 4)


@pytest.fixture
def write_packed(tmp_path: Path) -> WritePacked:
    def write(name: str, documents: Documents, size: int = 2, generation: int = 5) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes_of(documents, size, generation))
        return path

    return write


@pytest.fixture
def expected_bytes() -> Callable[..., bytes]:
    """Return the bytes of a file of the current generation."""
    return bytes_of
