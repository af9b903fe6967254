"""Where the tokens of rows lie in the files of a dataset: what tracing a batch needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from fastpack.tokens.token_file import TokenFile

Numbers = npt.NDArray[np.int64]


class RowSpans(NamedTuple):
    """Runs of tokens of rows, each int64 [n], in the order of the rows and within a row from left to right.

    Attributes
    ----------
    rows
        The row: the position of the sample in the list of sample numbers.
    offsets
        The column of the first token in the row.
    sources
        The number of the dataset in a mixture, otherwise 0.
    files
        The number of the file within its dataset.
    starts, ends
        The first token, and the end (exclusive), counted from the first token of the file. The last token of a window
        is a label only.
    documents
        The number of the document within its file; -1 if the dataset does not know it.
    """

    rows: Numbers
    offsets: Numbers
    sources: Numbers
    files: Numbers
    starts: Numbers
    ends: Numbers
    documents: Numbers

    def chosen(self, which: npt.NDArray[Any]) -> RowSpans:
        """Return the runs at these places."""
        return RowSpans(*(column[which] for column in self))


@runtime_checkable
class Traceable(Protocol):
    """A dataset that knows where the tokens of its samples are."""

    def row_spans(self, indices: Numbers, /) -> RowSpans:
        """Return the runs of tokens of the samples `indices`."""
        ...

    def token_files(self, source: int, /) -> Sequence[str]:
        """Return the files of a source by number."""
        ...


class NumberedFiles:
    """Base class of the traceable datasets that are one source."""

    def token_files(self, source: int = 0) -> Sequence[str]:
        """Return the paths of the files that `row_spans` numbers.

        Parameters
        ----------
        source
            The number of the dataset in a mixture: 0.

        Returns
        -------
        sequence of str
            The paths.
        """
        return self._token_files() if source == 0 else ()

    def _token_files(self) -> Sequence[str]:
        raise NotImplementedError


@runtime_checkable
class NamedSamples(Protocol):
    """A dataset whose samples have names, such as the keys of a `WebDataset`."""

    def _sample_names(self, index: Numbers, /) -> list[dict[str, Any]]:
        """Return what names each of the samples, as JSON values."""
        ...


@runtime_checkable
class OpenFiles(Protocol):
    """A traceable dataset that opens its token files itself, with the document boundaries that it uses."""

    def _open_file(self, number: int, /) -> TokenFile:
        """Open a file, by its number in `row_spans`; the caller closes it."""
        ...


def row_spans(
    files: Numbers, starts: Numbers, ends: Numbers, rows: Numbers | None = None, offsets: Numbers | None = None
) -> RowSpans:
    """Return spans of one source; by default span k is row k, from its first column."""
    zeros = np.zeros(len(starts), np.int64)
    rows = np.arange(len(starts)) if rows is None else rows
    return RowSpans(rows, zeros if offsets is None else offsets, zeros, files, starts, ends, zeros - 1)
