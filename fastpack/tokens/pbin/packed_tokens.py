"""A packed file `.pbin` as a TokenFile."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fastpack.errors import FormatError
from fastpack.io import PathLike
from fastpack.tokens.pbin.packed_file import PackedFile
from fastpack.tokens.token_file import DocumentEnds, DocumentSpans, Rows, SegmentedTokens


class PackedTokens(SegmentedTokens):
    """The tokens and documents of a packed file; `file` is the PackedFile."""

    format = "pbin"

    def __init__(self, path: PathLike, dtype: np.dtype[Any] | None = None) -> None:
        """Raise FormatError if `dtype` contradicts the header."""
        self.file = PackedFile(path)
        self.path = self.file.path
        self._segments = [self.file.segment]
        if dtype is not None and dtype != self.dtype:
            raise FormatError(self.path, 8, f"the dtype {self.dtype}", f"{dtype}, as given")

    @property
    def n_documents(self) -> int:
        """The number of documents, by the index."""
        return len(self.file)

    def is_contiguous(self) -> bool:
        """Return whether the documents are in the order of the file, without gaps, and contain all tokens."""
        return self._is_ordered() and super().is_contiguous()

    def _is_ordered(self) -> bool:
        starts = self.file.index[:, 0]
        ends = starts + self.file.index[:, 1]  # .sum(axis=1) takes 20 times as long
        return len(starts) == 0 or (int(starts[0]) == 0 and bool((starts[1:] == ends[:-1]).all()))

    def _read_document_ends(self) -> DocumentEnds:
        index = self.file.index
        ends = index[:, 0] + index[:, 1]
        if not self._is_ordered():
            found = "an index whose documents are not contiguous and in order"
            expected = "contiguous documents (`fastpack merge` keeps such an index, `fastpack filter` rewrites it)"
            raise FormatError(self.path, self.file.layout.index_offset, found, expected)
        return ends // self.file.token_size_in_bytes

    def document_rows(self, first: int = 0, end: int | None = None) -> Rows:
        """Return start and length in tokens, int64 [k, 2], of the documents [first, end), in the order of the index."""
        rows = self.file.index[first:] if end is None else self.file.first(end)[first:]
        return rows >> (self.file.token_size_in_bytes.bit_length() - 1)  # a division by 1, 2 or 4 takes 5 times as long

    def document(self, i: int) -> npt.NDArray[Any]:
        """Return the tokens of document `i`, 0 <= i < n_documents, in the dtype of the file; read-only."""
        self.file.index  # noqa: B018 (decoded once: the start of the index would be decoded for each document)
        return super().document(i)

    def tokens(self, start: int, end: int) -> npt.NDArray[Any]:
        """Return the tokens [start, end) in the dtype of the file; read-only."""
        return self.file.tokens(start, end)

    def document_spans(self, first: int = 0, end: int | None = None) -> list[DocumentSpans]:
        """Return the documents [first, end) as byte ranges, in the order of the index."""
        file = self.file
        rows = file.index[first:end]
        if len(rows) < len(file):
            rows = rows.copy()  # a slice would keep the whole index in memory
        swap = file.token_size_in_bytes if file.generation < 4 else 1
        return [DocumentSpans(file.file, rows, file.data_offset, swap)]

    def close(self) -> None:
        """Release the mapping of the file."""
        super().close()
        self.file.close()
