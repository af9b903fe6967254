"""The documents of the token files of a dataset, read once per file: numbers and bounds."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastpack.datasets.base import Dataset
from fastpack.datasets.concatenation import Concatenation
from fastpack.datasets.file_spans import OpenFiles, RowSpans, Traceable
from fastpack.tokens.formats import open_tokens
from fastpack.tokens.token_file import TokenFile
from fastpack.tokens.token_segment import SegmentPaths, TokenSegment


class Source(NamedTuple):
    """A dataset that `row_spans` numbers, and its samples in the whole dataset."""

    dataset: Any
    first: int
    end: int


def sources_of(dataset: Any, first: int = 0) -> list[Source]:
    """Return the datasets of a concatenation, those of concatenations in it one by one, or the dataset itself."""
    if not isinstance(dataset, Concatenation):
        return [Source(dataset, first, first + len(dataset))]
    starts = (first + start for start in dataset._bounds)
    return [source for one, start in zip(dataset.datasets, starts, strict=False) for source in sources_of(one, start)]


class FileDocuments:
    """The document ends of each file that a dataset's spans number."""

    def __init__(self, dataset: Dataset) -> None:
        self._dataset, self.sources = dataset, sources_of(dataset)
        self._files: dict[int, Sequence[str]] = {}
        self._named: dict[str, list[tuple[int, int]]] = {}
        self._ends: dict[str, npt.NDArray[np.int64] | None] = {}

    def files(self, source: int) -> Sequence[str]:
        """Return the paths of the files of a source."""
        if source not in self._files:
            assert isinstance(self._dataset, Traceable)
            self._files[source] = self._dataset.token_files(source)
        return self._files[source]

    def path(self, source: int, file: int) -> str:
        """Return the path of a file."""
        return self.files(source)[file]

    def ends(self, source: int, file: int) -> npt.NDArray[np.int64] | None:
        """Return the end of each document in tokens, int64 [n]; None if the boundaries are unknown.

        A file without an index is read as a whole, for its EOS tokens.
        """
        path = self.path(source, file)
        if path not in self._ends:
            dataset = self.sources[source].dataset
            if isinstance(dataset, OpenFiles):
                self._ends[path] = _ends_in(dataset._open_file(file))
                return self._ends[path]
            eos = getattr(dataset, "_document_eos", getattr(dataset, "_eos", None))
            files = self.files(source)
            segment = files.segments[file] if isinstance(files, SegmentPaths) else None
            self._ends[path] = _document_ends(path, eos, segment)
        return self._ends[path]

    def places_of(self, document: str) -> tuple[list[tuple[int, int]], int]:
        """Return source and file number of a document, FILE:NUMBER, for every source that has the file, and its number.

        Raises ValueError if there is no such document.
        """
        name, _, number = document.rpartition(":")
        if not name or not number.isdecimal():
            raise ValueError(f"{document!r} is not FILE:NUMBER, such as corpus.pbin:17")
        places = self._places(name)
        if not places:
            raise ValueError(f"{name} is not a file of the dataset")
        ends = self.ends(*places[0])
        if ends is None or int(number) >= len(ends):
            known = "unknown document boundaries" if ends is None else f"{len(ends)} documents"
            raise ValueError(f"{name} has {known}: there is no document {number}")
        return places, int(number)

    def _places(self, name: str) -> list[tuple[int, int]]:
        if name not in self._named:
            same = {name, os.path.realpath(name)}
            self._named[name] = [
                (source, file)
                for source in range(len(self.sources))
                for file, path in enumerate(self.files(source))
                if path in same or os.path.realpath(path) in same
            ]
        return self._named[name]

    def split(self, spans: RowSpans) -> RowSpans:
        """Return the spans cut at document boundaries, with the number of each document in its file."""
        found = []
        for span in zip(*(column.tolist() for column in spans), strict=True):
            row, offset, source, file, start, end, document = span
            ends = self.ends(source, file) if document < 0 else None
            if ends is None:
                found.append(span)
                continue
            first = int(np.searchsorted(ends, start, side="right"))
            last = int(np.searchsorted(ends, end, side="left"))
            bounds = [start, *ends[first:last].tolist(), end]
            for number, (begin, stop) in enumerate(pairwise(bounds)):
                if begin < stop:
                    known = first + number if first + number < len(ends) else -1
                    found.append((row, offset + begin - start, source, file, begin, stop, known))
        columns = np.array(found, np.int64).reshape(-1, len(RowSpans._fields)).T
        return RowSpans(*columns)


def _ends_in(tokens: TokenFile) -> npt.NDArray[np.int64] | None:
    """Return the document ends of a file and close it; None if its documents are not in order."""
    with tokens:
        return tokens.document_ends().copy() if tokens.is_contiguous() else None


def _document_ends(path: str, eos: int | None, segment: TokenSegment | None) -> npt.NDArray[np.int64] | None:
    try:
        dtype = None if segment is None else segment.dtype.name
        with open_tokens(path, dtype=dtype, eos_token_id=eos) as tokens:
            if segment is not None and tokens.segments()[0].offset != segment.offset:
                return None  # a shard of a folder whose documents are recorded for all shards together
            return tokens.document_ends().copy()
    except ValueError:
        return None
