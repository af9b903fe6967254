"""Where the documents of one token file are: what the order of samples is computed from."""

from __future__ import annotations

import os
import threading
from typing import Any

import numpy as np
import numpy.typing as npt

from fastpack.errors import FormatError
from fastpack.io import PathLike
from fastpack.tokens.convert_dtypes import check_token_dtype
from fastpack.tokens.formats import open_tokens
from fastpack.tokens.indexed_tokens import INDEX_ROWS
from fastpack.tokens.megatron import MegatronTokens
from fastpack.tokens.token_file import TokenFile

Numbers = npt.NDArray[np.int64]


class DocumentSource:
    """The documents of a token file; for Megatron's files, the sequences, which Megatron's GPT samples consist of.

    Their starts and ends are read when they are first needed: opening reads no more than the header of an index.

    Raises ValueError if the document boundaries are unknown.
    """

    def __init__(self, path: PathLike, eos_token_id: int | None) -> None:
        self.path, self._eos = os.fspath(path), eos_token_id
        self._attach()
        check_token_dtype(self.tokens)

    def _attach(self) -> None:
        self._lock = threading.Lock()
        self._bounds: tuple[Numbers, Numbers] | None = None
        self.tokens = self.open()
        n_documents = self.tokens.n_documents
        if isinstance(self.tokens, MegatronTokens):
            n_documents = self.tokens.n_sequences
        if n_documents is None:
            raise ValueError(f"{self.path}: the document boundaries are unknown: pass eod_token_id")
        self.n_documents = n_documents

    def open(self) -> TokenFile:
        """Open the file once more."""
        return open_tokens(self.path, eos_token_id=self._eos)

    def n_tokens_of(self, documents: range) -> int:
        """Return the number of tokens of documents that follow each other."""
        if not documents:
            return 0
        if isinstance(self.tokens, MegatronTokens):
            return self.tokens.tokens_before(documents.stop) - self.tokens.tokens_before(documents.start)
        starts, ends = self.bounds()
        chosen = slice(documents.start, documents.stop)
        return int(ends[chosen].sum() - starts[chosen].sum())

    def bounds(self) -> tuple[Numbers, Numbers]:
        """Return the first token of each document, and its end (exclusive): int64 [n_documents] each."""
        with self._lock:
            if self._bounds is None:
                self._bounds = self._read_bounds()
        return self._bounds

    def _read_bounds(self) -> tuple[Numbers, Numbers]:
        tokens = self.tokens
        bounds = tokens.sequence_bounds() if isinstance(tokens, MegatronTokens) else self._read_contiguous()
        if bounds is not None:
            starts, ends = bounds[:-1], bounds[1:]
        else:
            rows = tokens.document_rows()
            starts, ends = np.ascontiguousarray(rows[:, 0]), rows[:, 0] + rows[:, 1]
        tokens.close()  # which releases its own copy of the index
        return starts, ends

    def _read_contiguous(self) -> Numbers | None:
        """Return 0 and the end of each document, by blocks; None if documents do not follow each other."""
        bounds = np.zeros(self.n_documents + 1, np.int64)
        for first in range(0, self.n_documents, INDEX_ROWS):
            rows = self.tokens.document_rows(first, first + INDEX_ROWS)
            block = bounds[first + 1 : first + 1 + len(rows)]
            np.add(rows[:, 0], rows[:, 1], out=block)
            if not np.array_equal(rows[:, 0], bounds[first : first + len(rows)]):
                return None
        return bounds

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path, "_eos": self._eos, "state": self._state()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(path=state["path"], _eos=state["_eos"])
        self._attach()
        if self._state() != state["state"]:
            raise FormatError(self.path, 0, "another file of that name", "the one the dataset was made of")

    def _state(self) -> tuple[Any, ...]:
        return self.tokens.dtype, self.tokens.n_tokens, self.n_documents
