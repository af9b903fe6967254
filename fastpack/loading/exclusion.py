"""Documents whose tokens are no labels: how `StatefulDataLoader.exclude` leaves data out without rewriting files."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from os import PathLike, fspath
from typing import Any, TypedDict

import numpy as np
import numpy.typing as npt

from fastpack.datasets.base import RowDataset
from fastpack.datasets.file_documents import FileDocuments
from fastpack.datasets.file_spans import RowSpans, Traceable
from fastpack.datasets.row_shares import PADDING, Spans
from fastpack.io import as_path
from fastpack.item_numbers import item_numbers
from fastpack.loading.fetch import Fetch

IGNORED = -100  # the label of a token that is none

FileNumber = tuple[int, int]  # source and file


class ExcludedFile(TypedDict):
    """A list of documents, as a state records it."""

    path: str
    digest: str
    step: int


class Exclusion:
    """The token ranges of the documents that a file lists, one `FILE:NUMBER` per line.

    Parameters
    ----------
    path
        The list; empty lines and lines that begin with # are ignored.
    dataset
        The dataset of the loader.

    Raises
    ------
    ValueError
        If a line is no document of the dataset, or the dataset does not know where its tokens are.
    """

    def __init__(self, path: str | PathLike[str], dataset: Any) -> None:
        if not isinstance(dataset, Traceable) or not isinstance(dataset, RowDataset):
            raise ValueError(
                f"documents of a {type(dataset).__name__} cannot be excluded: its samples are no rows of token files"
            )
        data = as_path(path).read_bytes()
        self.path, self.digest = fspath(path), hashlib.blake2b(data, digest_size=16).hexdigest()
        documents = FileDocuments(dataset)
        numbers: dict[FileNumber, set[int]] = defaultdict(set)
        self.n_documents = 0
        for line_number, line in enumerate(data.decode().splitlines(), 1):
            if line.strip() and not line.startswith("#"):
                try:
                    places, number = documents.places_of(line.strip())
                except ValueError as error:
                    raise ValueError(f"{self.path}, line {line_number}: {error}") from error
                self.n_documents += 1
                for place in places:
                    numbers[place].add(number)
        self._ranges = {place: _ranges(documents, place, found) for place, found in numbers.items()}

    def mask(self, dataset: Traceable, indices: npt.NDArray[np.int64], batch: Any, shares: Spans | None = None) -> None:
        """Set the labels of the samples `indices` that are tokens of an excluded document to -100.

        Where a batch has a loss_mask, that becomes 0. shares: the spans of the rows that the batch holds; by default it
        holds whole rows.
        """
        outputs = [(batch[name], value) for name, value in (("labels", IGNORED), ("loss_mask", 0)) if name in batch]
        for row, first, stop in self._columns(dataset.row_spans(indices)):
            for where in [(row, slice(first, stop))] if shares is None else _places(shares, row, first, stop):
                for array, value in outputs:
                    array[where] = value

    def _columns(self, spans: RowSpans) -> Iterator[tuple[int, int, int]]:
        """Yield the row, the first column and the end of runs of labels of excluded documents."""
        for place, ranges in self._ranges.items():
            for k in np.flatnonzero((spans.sources == place[0]) & (spans.files == place[1])).tolist():
                start, end = int(spans.starts[k]), int(spans.ends[k])
                first, last = np.searchsorted(ranges[:, 1], start, "right"), np.searchsorted(ranges[:, 0], end, "left")
                shift = int(spans.offsets[k]) - start - 1  # the label in a column is the token of the next one
                for begin, stop in ranges[first:last].tolist():
                    yield int(spans.rows[k]), max(0, max(begin, start) + shift), max(0, min(stop, end) + shift)


def _places(shares: Spans, row: int, first: int, stop: int) -> Iterator[tuple[int, slice]]:
    """Yield where columns [first, stop) of a row are in a batch that holds these spans."""
    ends = shares.starts + shares.lengths
    inside = (shares.rows == row) & (shares.starts != PADDING) & (shares.starts < stop) & (ends > first)
    for k in np.flatnonzero(inside).tolist():
        start = int(shares.starts[k])
        shift = int(shares.columns[k]) - start
        yield row, slice(max(first, start) + shift, min(stop, int(ends[k])) + shift)


def _ranges(documents: FileDocuments, place: FileNumber, numbers: set[int]) -> npt.NDArray[np.int64]:
    """Return start and end of the documents in tokens, int64 [n, 2], sorted."""
    ends = documents.ends(*place)
    assert ends is not None
    chosen = np.array(sorted(numbers), np.int64)
    starts = np.where(chosen > 0, ends[chosen - 1], 0)
    return np.stack([starts, ends[chosen]], axis=1)


class ExcludingFetch(Fetch):
    """Masks the labels of the batches of another fetch."""

    def __init__(self, fetch: Fetch, dataset: Traceable, exclusions: Sequence[Exclusion]) -> None:
        self._fetch, self._dataset, self._exclusions = fetch, dataset, tuple(exclusions)
        self.will_need = fetch.will_need

    def __call__(self, indices: Any) -> Any:
        batch, shares = self._fetch.with_spans(indices)
        for exclusion in self._exclusions:
            exclusion.mask(self._dataset, item_numbers(indices), batch, shares)
        return batch

    @contextmanager
    def session(self) -> Iterator[None]:
        with self._fetch.session():
            yield
