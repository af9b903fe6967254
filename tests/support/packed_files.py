"""Write packed files of every generation from the specification, or by `PackedWriter`; read documents."""

from __future__ import annotations

import pickle
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from fastpack.tokens.pbin.packed_file import PackedFile
from fastpack.tokens.pbin.packed_writer import PackedWriter

EOS = 9
DOCUMENTS = [[1, 2, EOS], [3, EOS], [4, 5, 6, EOS]]
HEADERS = {1: ">I", 2: ">Q", 3: ">QI", 4: "<QI", 5: "<QI"}
STARTS = {1: 4, 2: 8, 3: 12, 4: 12, 5: 0}  # offset of the first document in the index


def packed_bytes(
    documents: Iterable[Iterable[int]], generation: int = 5, token_size: int = 4, first: int | None = None
) -> bytes:
    """Return the bytes of a packed file of a generation; first: another offset of the first document in the index."""
    order = "<" if generation >= 4 else ">"
    arrays = [np.array(list(tokens), f"{order}u{token_size}") for tokens in documents]
    data = b"".join(array.tobytes() for array in arrays)
    if generation == 0:
        return data
    header = struct.pack(HEADERS[generation], len(data), *([token_size] if generation >= 3 else []))
    start = STARTS[generation] if first is None else first
    index = []
    for array in arrays:
        index.append((start, array.nbytes))
        start += array.nbytes
    return header + data + pickle.dumps(index, protocol=4)


def write_packed(path: Path, documents: Iterable[Sequence[int]] = DOCUMENTS, token_size: int = 2) -> Path:
    """Write a file with `PackedWriter`; return its path."""
    with PackedWriter(path, token_size) as writer:
        for document in documents:
            writer.append(document)
    return path


def documents_of(path: Path | str) -> list[list[int]]:
    with PackedFile(path) as file:
        return [document.tolist() for document in file]
