"""Packed files of every generation, written by the plain rules."""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

Documents = Sequence[Sequence[int]]
WritePacked = Callable[..., Path]

HEADERS = {1: ">I", 2: ">Q", 3: ">QI", 4: "<QI", 5: "<QI"}
BASES = {1: 4, 2: 8, 3: 12, 4: 12, 5: 0}


def packed_bytes(documents: Documents, size: int, generation: int = 5) -> bytes:
    """The file that holds `documents`; tokens of generations 1 and 2 take 4 bytes whatever `size` says."""
    size = 4 if generation < 3 else size
    dtype = f"{'<' if generation >= 4 else '>'}u{size}"
    parts = [np.array(document, np.int64).astype(dtype).tobytes() for document in documents]
    index, start = [], BASES[generation]
    for part in parts:
        index.append((start, len(part)))
        start += len(part)
    data = b"".join(parts)
    fields = (len(data), size) if generation >= 3 else (len(data),)
    return struct.pack(HEADERS[generation], *fields) + data + pickle.dumps(index, protocol=4)


@pytest.fixture
def write_packed(tmp_path: Path) -> WritePacked:
    def write(name: str, documents: Documents, size: int = 2, generation: int = 5) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(packed_bytes(documents, size, generation))
        return path

    return write


@pytest.fixture
def expected_bytes() -> Callable[..., bytes]:
    """The bytes of a file of today's."""
    return packed_bytes
