"""Megatron's indexed datasets: raw tokens in `x.bin`; lengths, offsets and documents in `x.idx`.

The index begins with a magic, a version, the code of the dtype, and the numbers S of sequences and D of document
entries. Then follow int32 [S] lengths in tokens, int64 [S] offsets in bytes, int64 [D] numbers of the first sequence of
each document and S, and, for multimodal data, int8 [S] modes. Nothing is aligned.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from fastpack.errors import FormatError
from fastpack.io import (
    AnyPath,
    AtomicFile,
    PathLike,
    TargetExists,
    as_path,
    check_exists,
    exists,
    open_bytes,
    read_head,
)
from fastpack.tokens.indexed_tokens import (
    INDEX_ROWS,
    IndexedTokens,
    check_given_dtype,
    first_decrease,
    raw_segment,
    read_array,
)
from fastpack.tokens.paired_writer import PairedTokenWriter
from fastpack.tokens.token_file import DocumentEnds, Rows

MAGIC = b"MMIDIDX\0\0"
HEADER = struct.Struct("<9sQBQQ")
CODES = {1: "u1", 2: "i1", 3: "i2", 4: "i4", 5: "i8", 8: "u2"}  # 6 and 7 are float64 and float32
MAX_LENGTH = (1 << 31) - 1  # tokens of a sequence: lengths are int32


def prefix_of(path: PathLike) -> str:
    """Return the path without `.bin` or `.idx`."""
    text = os.fspath(path)
    return text[:-4] if text.endswith((".bin", ".idx")) else text


def fits(path: AnyPath) -> bool:
    """Return whether this is the `.bin`, the `.idx` or the common prefix of an indexed dataset."""
    if path.suffix not in (".bin", ".idx") and exists(path) and not path.is_dir():
        return False
    index = as_path(prefix_of(path) + ".idx")
    return exists(index) and not index.is_dir() and read_head(index, len(MAGIC))[0] == MAGIC


class MegatronTokens(IndexedTokens):
    """An indexed dataset. Sequences are concatenated to documents, as the document entries say.

    Attributes
    ----------
    n_sequences : int
        The number of sequences.
    """

    def __init__(self, path: AnyPath, dtype: np.dtype[Any] | None = None) -> None:
        prefix = prefix_of(path)
        self.index_path = prefix + ".idx"
        check_exists(as_path(prefix + ".bin"))
        self._index = open_bytes(self.index_path)
        stored, self.n_sequences, n_entries = self._read_header()
        check_given_dtype(self.index_path, 17, stored, dtype)
        self._lengths_at = HEADER.size
        self._offsets_at = self._lengths_at + 4 * self.n_sequences
        self._documents_at = self._offsets_at + 8 * self.n_sequences
        segment = raw_segment(prefix + ".bin", stored)
        super().__init__(prefix, "megatron", [segment], n_entries - 1)
        self._check_extent(segment.length)

    def _read_header(self) -> tuple[np.dtype[Any], int, int]:
        path, size = self.index_path, len(self._index)
        if size < HEADER.size:
            raise FormatError(path, size, f"the end of the file after {size} bytes", f"a header of {HEADER.size}")
        magic, version, code, n_sequences, n_entries = HEADER.unpack(bytes(self._index[: HEADER.size]))
        if magic != MAGIC:
            raise FormatError(path, 0, f"{magic!r}", f"{MAGIC!r}, the start of Megatron's index")
        if version != 1:
            raise FormatError(path, 9, f"version {version}", "version 1")
        if code not in CODES:
            raise FormatError(path, 17, f"dtype code {code}", f"an integer dtype: {', '.join(map(str, CODES))}")
        if n_entries < 1:
            raise FormatError(path, 26, "no document entries", "at least one, the number of sequences")
        expected = HEADER.size + 12 * n_sequences + 8 * n_entries
        if size not in (expected, expected + n_sequences):
            what = f"{expected} bytes (or {expected + n_sequences} with modes) for {n_sequences} sequences"
            raise FormatError(path, min(size, expected), f"a file of {size} bytes", f"{what}, {n_entries} entries")
        return np.dtype(f"<{CODES[code]}"), n_sequences, n_entries

    def _check_extent(self, n_tokens: int) -> None:
        """Check the last entries, so that the numbers of tokens and documents are right before anything is read."""
        size, last = self.dtype.itemsize, self.n_sequences - 1
        end = 0
        if self.n_sequences:
            length = int(read_array(self._index, self._lengths_at + 4 * last, 1, "<i4")[0])
            end = int(read_array(self._index, self._offsets_at + 8 * last, 1, "<i8")[0]) + length * size
        if end != n_tokens * size:
            path = self._segments[0].path
            expected = f"{end} bytes, as {self.index_path} says"
            raise FormatError(path, max(0, min(end, n_tokens * size)), f"a file of {n_tokens * size} bytes", expected)

    def _read_document_ends(self) -> DocumentEnds:
        starts = self.sequence_bounds()
        entries = read_array(self._index, self._documents_at, self._n_documents + 1, "<i8")
        wrong = first_decrease(entries)
        if wrong is not None or entries[0] != 0 or entries[-1] != self.n_sequences:
            number = wrong if wrong is not None else 0 if entries[0] != 0 else self._n_documents
            expected = f"ascending numbers of sequences from 0 to {self.n_sequences}"
            raise FormatError(
                self.index_path, self._documents_at + 8 * number, f"document entry {entries[number]}", expected
            )
        found: DocumentEnds = starts[entries[1:]]
        return found

    def tokens_before(self, sequence: int) -> int:
        """Return the number of tokens before a sequence, or of all tokens; the index is not checked."""
        if sequence >= self.n_sequences:
            return self.n_tokens
        return int(read_array(self._index, self._offsets_at + 8 * sequence, 1, "<i8")[0]) // self.dtype.itemsize

    def sequence_bounds(self) -> npt.NDArray[np.int64]:
        """Return 0 and the end of each sequence in tokens, int64 [n_sequences + 1].

        Raises FormatError if the lengths and offsets contradict each other.
        """
        bounds = np.zeros(self.n_sequences + 1, np.int64)
        size, before = self.dtype.itemsize, 0
        for first in range(0, self.n_sequences, INDEX_ROWS):
            count = min(INDEX_ROWS, self.n_sequences - first)
            lengths = read_array(self._index, self._lengths_at + 4 * first, count, "<i4")
            if int(lengths.min()) < 0:
                number = first + int((lengths < 0).argmax())
                found = f"length {lengths[number - first]} of sequence {number}"
                raise FormatError(self.index_path, self._lengths_at + 4 * number, found, "0 or more tokens")
            block = np.cumsum(lengths, dtype=np.int64) + before
            offsets = read_array(self._index, self._offsets_at + 8 * first, count, "<i8")
            expected = (block - lengths) * size
            if (offsets != expected).any():
                at = int((offsets != expected).argmax())
                found = f"offset {offsets[at]} of sequence {first + at}"
                where = self._offsets_at + 8 * (first + at)
                raise FormatError(self.index_path, where, found, f"{expected[at]}, the end of the one before")
            bounds[first + 1 : first + 1 + count] = block
            before = int(block[-1])
        return bounds


class MegatronWriter(PairedTokenWriter):
    """Writes an indexed dataset with one sequence per document, as Megatron's preprocess_data does."""

    token_sizes = (1, 2, 4, 8)

    def side_paths(self, path: str) -> list[str]:
        """Return the path of the index. Raises TargetExists if it is the index of a JSONL file."""
        index = prefix_of(path) + ".idx"
        if exists(index) and read_head(index, len(MAGIC))[0] != MAGIC:
            raise TargetExists(f"{index} exists and is not Megatron's, perhaps the index of a JSONL file: rename it")
        return [index]

    def _check_documents(self, lengths: npt.NDArray[np.int64]) -> None:
        if len(lengths) and int(lengths.max()) > MAX_LENGTH:
            number = int((lengths > MAX_LENGTH).argmax())
            found = f"document {number} has {lengths[number]} tokens"
            raise ValueError(f"{found}: Megatron's index holds at most {MAX_LENGTH}")

    def _write_sides(self, sides: list[AtomicFile]) -> None:
        lengths = np.frombuffer(self._lengths, np.int64)
        self._check_documents(lengths)
        (index,) = sides
        code = {dtype: code for code, dtype in CODES.items()}[self._dtype.str[1:]]
        index.write(HEADER.pack(MAGIC, 1, code, len(lengths), len(lengths) + 1))
        index.write(lengths.astype("<i4"))
        before = 0
        for first in range(0, len(lengths), INDEX_ROWS):
            block = lengths[first : first + INDEX_ROWS]
            ends = np.cumsum(block) + before
            index.write(((ends - block) * self.token_size_in_bytes).astype("<i8"))
            before = int(ends[-1])
        for first in range(0, len(lengths) + 1, INDEX_ROWS):
            index.write(np.arange(first, min(first + INDEX_ROWS, len(lengths) + 1), dtype="<i8"))


def open_file(path: AnyPath, dtype: np.dtype[Any] | None, _eos: int | None) -> MegatronTokens:
    """Open a file of this format."""
    return MegatronTokens(path, dtype)


def create(path: AnyPath, dtype: np.dtype[Any], policy: Any) -> MegatronWriter:
    """Create `<prefix>.bin` and `<prefix>.idx`; the path may be any of them or the prefix."""
    if dtype.str[1:] not in CODES.values():
        raise ValueError(f"Megatron has no dtype {dtype}: use uint16, or int32 for larger ids")
    target = prefix_of(path) + ".bin"
    return MegatronWriter(target, dtype.itemsize, if_exists=policy, signed=dtype.kind == "i")


def predicted_size(n_tokens: int, token_size: int, documents: Iterable[Rows]) -> int:
    """Return the size of both files in bytes."""
    n_documents = sum(map(len, documents))
    return n_tokens * token_size + HEADER.size + 20 * n_documents + 8
