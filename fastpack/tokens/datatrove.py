"""datatrove's tokenised files: raw tokens in `x.ds`, document ends in `x.ds.index`, a description in `x.ds.metadata`.

The ends are uint64, in tokens, exclusive; the last is the number of all tokens. The metadata has three lines: the
tokenizer and the token size, the number of tokens, and the same number for people. The loss mask, if there is one, is
in `x.ds.loss`, one byte per token, 1 if it counts.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from typing import Any

import numpy as np

from fastpack.errors import FormatError
from fastpack.io import (
    LOSS,
    AnyPath,
    AtomicFile,
    PathLike,
    as_path,
    check_exists,
    exists,
    open_bytes,
    read_head,
    remove,
    size_of,
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

SIZES: dict[int, np.dtype[Any]] = {2: np.dtype("<u2"), 4: np.dtype("<u4")}
_MAX_METADATA = 1 << 16


def tokens_path(path: PathLike) -> str:
    """Return the path of the `.ds` file to which a path, perhaps of a side file, belongs."""
    text = os.fspath(path)
    for suffix in (".index", ".metadata", LOSS):
        text = text.removesuffix(suffix)
    return text if text.endswith(".ds") else text + ".ds"


def fits(path: AnyPath) -> bool:
    """Return whether this is a `.ds` file or one of its side files."""
    return path.name.endswith((".ds", ".ds.index", ".ds.metadata", f".ds{LOSS}")) and not path.is_dir()


class DatatroveTokens(IndexedTokens):
    """A `.ds` file with its index. The token size is that of the metadata, else follows from the index."""

    def __init__(self, path: AnyPath, dtype: np.dtype[Any] | None = None) -> None:
        tokens = as_path(tokens_path(path))
        self.index_path = f"{tokens}.index"
        check_exists(tokens)
        if not exists(self.index_path):
            raise FormatError(tokens, 0, f"no index {self.index_path}", "the document ends (save_index=True)")
        n_bytes = size_of(self.index_path)
        if n_bytes % 8:
            raise FormatError(self.index_path, n_bytes // 8 * 8, f"a file of {n_bytes} bytes", "whole uint64 numbers")
        self._index = open_bytes(self.index_path)
        n_documents = n_bytes // 8
        self._total = int(read_array(self._index, n_bytes - 8, 1, "<u8")[0]) if n_documents else 0
        stored = self._token_dtype(tokens, dtype)
        segment = raw_segment(tokens, stored)
        super().__init__(tokens, "datatrove", [segment], n_documents)
        if self._total != segment.length:
            found = f"a last document end of {self._total}"
            raise FormatError(
                self.index_path, max(0, n_bytes - 8), found, f"{segment.length}, the number of tokens in {tokens}"
            )

    def _token_dtype(self, tokens: AnyPath, given: np.dtype[Any] | None) -> np.dtype[Any]:
        described = read_metadata(f"{tokens}.metadata")
        if described is not None:
            size, n_tokens = described
            check_given_dtype(f"{tokens}.metadata", 0, SIZES[size], given)
            if n_tokens != self._total:
                expected = f"{self._total}, as {self.index_path} says"
                raise FormatError(f"{tokens}.metadata", 0, f"a token count of {n_tokens}", expected)
            return SIZES[size]
        n_bytes = size_of(tokens)
        for dtype in SIZES.values():
            if n_bytes == self._total * dtype.itemsize and (n_bytes or given is None):
                check_given_dtype(tokens, 0, dtype, given)
                return dtype
        if given is not None and n_bytes == self._total == 0:
            return given
        raise FormatError(
            tokens, n_bytes, f"a file of {n_bytes} bytes", f"2 or 4 bytes for each of the {self._total} tokens"
        )

    def _read_document_ends(self) -> DocumentEnds:
        ends = np.empty(self._n_documents, np.int64)
        before = 0
        for first in range(0, len(ends), INDEX_ROWS):
            block = read_array(self._index, 8 * first, min(INDEX_ROWS, len(ends) - first), "<u8")
            wrong = first_decrease(block, before)
            if wrong is None and int(block[-1]) > self._total:
                wrong = int((block > self._total).argmax())
            if wrong is not None:
                expected = f"ascending numbers of tokens up to {self._total}"
                raise FormatError(
                    self.index_path,
                    8 * (first + wrong),
                    f"document end {block[wrong]} (entry {first + wrong})",
                    expected,
                )
            ends[first : first + len(block)] = block
            before = int(block[-1])
        return ends


def read_metadata(path: str) -> tuple[int, int] | None:
    """Return the token size and number of tokens of a metadata file; None without one."""
    if not exists(path):
        return None
    head, _ = read_head(path, _MAX_METADATA)
    first, _, rest = head.partition(b"\n")
    size, count = first.rpartition(b"|")[2].strip(), rest.partition(b"\n")[0].strip()
    if size not in (b"2", b"4"):
        raise FormatError(path, first.rfind(b"|") + 1, f"a token size of {size[:20]!r}", "<tokenizer>|2 or |4")
    if not (count.isdigit() and len(count) < 20):
        raise FormatError(path, len(first) + 1, f"a token count of {count[:20]!r}", "a number")
    return int(size), int(count)


class DatatroveWriter(PairedTokenWriter):
    """Writes a `.ds` file with its index and metadata, as datatrove does without the name of a tokenizer."""

    token_sizes = (2, 4)

    def side_paths(self, path: str) -> list[str]:
        """Return the paths of the index and of the metadata."""
        return [f"{path}.index", f"{path}.metadata"]

    def _commit(self, output: AtomicFile) -> None:
        """Also write the loss mask as datatrove stores it: `<file>.loss`, one byte per token, 1 if it counts."""
        remove(f"{output.path}{LOSS}")
        if self.mask is not None:
            with AtomicFile(f"{output.path}{LOSS}", follow=False) as loss:
                for first in range(0, self.n_tokens, INDEX_ROWS):
                    loss.write(self.mask.read(first, min(first + INDEX_ROWS, self.n_tokens)).view(np.uint8))
        super()._commit(output)

    def _write_sides(self, sides: list[AtomicFile]) -> None:
        index, metadata = sides
        lengths, before = np.frombuffer(self._lengths, np.int64), 0
        for first in range(0, len(lengths), INDEX_ROWS):
            ends = np.cumsum(lengths[first : first + INDEX_ROWS]) + before
            index.write(ends.astype("<u8"))
            before = int(ends[-1])
        metadata.write(_metadata(self.n_tokens, self.token_size_in_bytes))


def _metadata(n_tokens: int, token_size: int) -> bytes:
    # datatrove 0.10 itself writes `Unknown Tokenizer|2|2` here, which its merger cannot read.
    return f"Unknown Tokenizer|{token_size}\n{n_tokens}\n{humanized(n_tokens)}".encode()


def humanized(number: int) -> str:
    """Return a number of tokens with three digits and a prefix: "311 T", "1.50 kT"."""
    exponent = math.floor(math.log10(number)) if number else 0
    thousands = min(exponent // 3, 8)
    text = f"{number / 1000**thousands:.{max(0, 2 - exponent % 3)}f}"
    return f"{text} {' kMGTPEZY'[thousands].strip()}T"


def open_file(path: AnyPath, dtype: np.dtype[Any] | None, _eos: int | None) -> DatatroveTokens:
    """Open a file of this format."""
    return DatatroveTokens(path, dtype)


def create(path: AnyPath, dtype: np.dtype[Any], policy: Any) -> DatatroveWriter:
    """Create `x.ds`, `x.ds.index` and `x.ds.metadata`; `.ds` is added to the path where it is missing."""
    if dtype not in SIZES.values():
        raise ValueError(f"datatrove stores uint16 and uint32, not {dtype}")
    return DatatroveWriter(tokens_path(path), dtype.itemsize, if_exists=policy)


def predicted_size(n_tokens: int, token_size: int, documents: Iterable[Rows]) -> int:
    """Return the size of the three files in bytes."""
    return n_tokens * token_size + 8 * sum(map(len, documents)) + len(_metadata(n_tokens, token_size))
