"""Where documents are, in many token files, by their number in all of them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from fastpack.tokens.token_file import TokenFile

Numbers: TypeAlias = npt.NDArray[np.int64]


class Places(NamedTuple):
    """The file of each document, and its tokens [start, end) there; int64 [k] each."""

    file: Numbers
    start: Numbers
    end: Numbers


class DocumentTable:
    """The documents of token files, numbered consecutively over a sequence in which files may be repeated.

    The boundaries of a file's documents are read when they are first needed, and take 16 bytes per document.

    Attributes
    ----------
    files
        The distinct files.
    n_documents
        The number of documents, repeated ones included.
    starts, ends
        The tokens of each document in its file, int64 [n_entries]; 0 until they are read.
    """

    def __init__(self, passes: Sequence[TokenFile]) -> None:
        self.files = list({id(file): file for file in passes}.values())
        numbers = {id(file): number for number, file in enumerate(self.files)}
        self._file_of_pass = np.array([numbers[id(file)] for file in passes], np.int64)
        counts = np.array([file.n_documents or 0 for file in self.files], np.int64)
        self._pass_ends = np.cumsum(counts[self._file_of_pass])
        self._pass_begins = self._pass_ends - counts[self._file_of_pass]
        self.n_documents = int(self._pass_ends[-1]) if len(passes) else 0
        self._first = np.cumsum(counts) - counts  # entry of the first document of each file
        n_entries = int(counts.sum())
        # Memory that is not written to is not occupied; documents that were not read yet are empty.
        self.starts, self.ends = np.zeros(n_entries, np.int64), np.zeros(n_entries, np.int64)
        self._is_read = np.zeros(len(self.files), np.bool_)
        self._lock = threading.Lock()

    def passes(self, first_tokens: Numbers) -> Numbers:
        """Return the passes as `kernels.place_segments` takes them; first_tokens: of the files, int64 [n_files]."""
        shifts = self._first[self._file_of_pass] - self._pass_begins
        return np.stack([self._pass_ends, shifts, first_tokens[self._file_of_pass]], axis=1)

    def locate(self, documents: Numbers) -> Places:
        """Return where documents are; ValueError for a number that no document has."""
        if len(documents) and not 0 <= documents.min() <= documents.max() < self.n_documents:
            raise ValueError(f"document {documents.min()} or {documents.max()} of {self.n_documents}")
        passes = np.searchsorted(self._pass_ends, documents, side="right")
        files = self._file_of_pass[passes]
        if not self._is_read[files].all():
            self._read(np.unique(files).tolist())
        entries = documents - self._pass_begins[passes] + self._first[files]
        return Places(files, self.starts[entries], self.ends[entries])

    def _read(self, numbers: list[int]) -> None:
        """Read the document boundaries of files."""
        with self._lock:
            for number in numbers:
                if not self._is_read[number]:
                    file, rows = self.files[number], self.files[number].document_rows()
                    entries = slice(self._first[number], self._first[number] + (file.n_documents or 0))
                    self.starts[entries], self.ends[entries] = rows[:, 0], rows[:, 0] + rows[:, 1]
                    self._is_read[number] = True
                    file.close()
