"""Packed files: of every generation by the plain rules, of today's by the writer, and what is in one."""

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
STARTS = {1: 4, 2: 8, 3: 12, 4: 12, 5: 0}  # of the first document, as the index counts


def packed_bytes(
    documents: Iterable[Iterable[int]], generation: int = 5, token_size: int = 4, first: int | None = None
) -> bytes:
    """A packed file as that generation's writer laid it out; first: what the index of generation 1 counts from."""
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
    """The path, with a file there as `PackedWriter` writes it."""
    with PackedWriter(path, token_size) as writer:
        for document in documents:
            writer.append(document)
    return path


def documents_of(path: Path | str) -> list[list[int]]:
    with PackedFile(path) as file:
        return [document.tolist() for document in file]
