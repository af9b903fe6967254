"""Reading packing plans."""

from __future__ import annotations

from typing import Any, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

from fastpack import kernels
from fastpack.display import Described, facts
from fastpack.errors import FormatError, JobError, counted
from fastpack.io import PathLike, is_remote, plain_path, stat_of
from fastpack.plans.balance import row_in_group
from fastpack.plans.count_column import Columns, CountColumn, Integers
from fastpack.plans.pieces import length_bits, piece_bytes, read_pieces
from fastpack.plans.plan_layout import read_sections
from fastpack.plans.plan_settings import ALGORITHMS, LONG
from fastpack.plans.plan_sources import PlanSource, check_source, folder_of, newest_time, open_all, source_from
from fastpack.tokens.token_file import TokenFile


class Segments(NamedTuple):
    """The segments of some rows, in the order of the rows and of their tokens.

    Attributes
    ----------
    row
        Position of the row among the requested rows, int64 [n], not descending.
    document
        Number of the document, counted across all sources, int64 [n].
    start, end
        The tokens [start, end) of the document, int64 [n].
    """

    row: Integers
    document: Integers
    start: Integers
    end: Integers


class PlanFile(Described):
    """A packing plan: which documents, or pieces of them, make up each row of `seq_length` tokens.

    The plan is mapped, not read; it is pickled as its path.

    Parameters
    ----------
    path
        The plan, as `plan` wrote it.

    Attributes
    ----------
    seq_length
        Number of tokens of a row, of which the last may be padding.
    n_rows, n_segments
        Number of rows, and of segments in them.
    n_documents, n_tokens
        Number of documents of which a segment is in some row, and of tokens in rows.
    n_padding, n_truncated, n_dropped
        Number of tokens that are missing in the rows, that are left out at the end of long documents, and that are
        left out with whole documents.
    n_cuts
        Number of places where a document is divided between two rows.
    n_source_documents, n_source_tokens
        Number of documents of all sources, below which they are numbered, and of tokens in those that take part.
    algorithm, long, seed, max_documents, data_parallel, pad_to_multiple
        As they were passed to `plan`.
    sources
        One entry for each pass over a token file; its documents are numbered after those of the entries before it.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    FormatError
        If the file is not a plan, or is damaged.
    """

    _subject = "path"
    _shown = facts(rows="n_rows", seq_length="seq_length", documents="n_documents", tokens="n_tokens")

    seq_length: int
    n_rows: int
    n_segments: int
    n_documents: int
    n_tokens: int
    n_padding: int
    n_truncated: int
    n_dropped: int
    n_cuts: int
    n_source_documents: int
    n_source_tokens: int
    algorithm: str
    long: str
    seed: int | None
    max_documents: int | None
    data_parallel: int | None
    pad_to_multiple: int
    sources: tuple[PlanSource, ...]

    def __init__(self, path: PathLike) -> None:
        self.path = plain_path(path)
        description, sections = read_sections(self.path)
        try:
            self._read_description(description)
            self._open_columns(sections)
        except (ValueError, TypeError, KeyError, IndexError) as error:
            if isinstance(error, FormatError):
                raise
            self._fail(f"a description that is not valid ({error})")
        self._n_stored = self.n_full_rows + (self._rows.n_items if self._rows is not None else 0)
        if self.algorithm == "none" and self._rows is None:
            self._n_stored = -(-self._documents.n_units // self.seq_length)
        if self._n_stored != self.n_rows or self._documents.n_items != self.n_source_documents:
            self._fail(f"{self._n_stored} rows of {self._documents.n_items} documents")

    def __reduce__(self) -> tuple[type[PlanFile], tuple[str]]:
        return type(self), (self.path,)

    def __len__(self) -> int:
        return self.n_rows

    @property
    def folder(self) -> str:
        """The folder that relative paths of sources start from."""
        return folder_of(self.path)

    def _read_description(self, fields: dict[str, Any]) -> None:
        for name in _COUNTS:
            if type(fields[name]) is not int or not 0 <= fields[name] < 1 << 56:
                raise ValueError(f"{name} {fields[name]!r}")
            setattr(self, name, fields[name])
        self.algorithm, self.long = fields["algorithm"], fields["long"]
        self.seed, self.max_documents = fields["seed"], fields["max_documents"]
        if self.algorithm not in ALGORITHMS or self.long not in LONG or not 0 < self.seq_length < 1 << 31:
            raise ValueError(f"{self.algorithm!r}, {self.long!r}, {self.seq_length}")
        if not {type(self.seed), type(self.max_documents)} <= {int, type(None)}:
            raise ValueError(f"{self.seed!r}, {self.max_documents!r}")
        (self.pad_to_multiple,) = _integers([fields.get("pad_to_multiple", 1)], self.seq_length + 1)
        if self.pad_to_multiple < 1 or self.seq_length % self.pad_to_multiple:
            raise ValueError(f"pad_to_multiple {self.pad_to_multiple}")
        found = [source_from(source) for source in fields["sources"]]
        self.sources = tuple(found[number] for number in _integers(fields["passes"], len(found)))
        if sum(source.n_documents for source in self.sources) != self.n_source_documents:
            raise ValueError("sources with another number of documents")
        balance = fields["balance"]
        self.data_parallel = None
        if balance is not None:
            (self.data_parallel,) = _integers([balance["data_parallel"]], 1 << 32)
            if self.data_parallel < 1:
                raise ValueError("no ranks")
        # Earlier plans contain the time at which they were written.
        (self._modified_ns,) = _integers([fields.get("written_ns", newest_time(self.sources))], 1 << 63)
        self._keys: npt.NDArray[np.uint64] | None = None
        if fields["keys"] is not None:
            self._keys = np.array(_integers(fields["keys"], 1 << 64), np.uint64)
            if len(self._keys) != 4:
                raise ValueError(f"{len(self._keys)} keys")

    def _open_columns(self, sections: Columns) -> None:
        self._documents = CountColumn(self.path, "documents", sections)
        self._rows = CountColumn(self.path, "rows", sections) if "rows" in sections else None
        self._pieces = sections.get("pieces", np.empty(0, np.uint8))
        self._widths = length_bits(self.seq_length), piece_bytes(self.n_source_documents, self.seq_length)
        self._n_pieces = len(self._pieces) // self._widths[1]
        self.n_full_rows = 0 if self.algorithm == "none" else self._documents.n_units
        if self.algorithm != "none" and self._rows is None:
            raise ValueError("no rows")

    def open_sources(self) -> list[TokenFile]:
        """Open the token files of `sources`, in this order; several passes over one file share it.

        Raises
        ------
        JobError
            If a file is missing or has changed since the plan was made.
        """
        return open_all(self.sources, self.folder, times_count=self._is_where_it_was_written())

    def changed_sources(self) -> list[JobError]:
        """Return an error for each token file of `sources` that is missing or has changed since the plan was made."""
        errors, times_count = [], self._is_where_it_was_written()
        for source in dict.fromkeys(self.sources):
            try:
                check_source(source, self.folder, times_count=times_count)
            except JobError as error:
                errors.append(error)
        return errors

    def _is_where_it_was_written(self) -> bool:
        """Return whether modification times count: a copy of plan and sources may have new ones."""
        return not is_remote(self.path) and stat_of(self.path).st_mtime_ns == self._modified_ns

    def stored_rows(self, rows: Integers) -> Integers:
        """Return where rows, int64 [k], are in the order in which the plan stores rows."""
        rows = np.ascontiguousarray(rows, np.int64)
        if len(rows) and rows.view(np.uint64).max() >= self.n_rows:  # a number below 0 becomes a large one
            wrong = int(rows[(rows < 0) | (rows >= self.n_rows)][0])
            raise IndexError(f"row {wrong} of {counted(self.n_rows, 'row')} in {self.path}")
        if self._keys is None or not len(rows):
            return rows
        if self.data_parallel is not None:
            return self._balanced_rows(rows, self._keys)
        stored = np.empty(len(rows), np.int64)
        kernels.feistel(self.n_rows, self._keys, rows, stored)
        return stored

    def _balanced_rows(self, rows: Integers, keys: npt.NDArray[np.uint64]) -> Integers:
        """Return where rows are stored: groups of one row per rank are permuted, and the rows after them stay."""
        assert self.data_parallel is not None
        size = self.data_parallel
        groups, lanes = np.divmod(rows, size)
        n_groups = self.n_rows // size
        inside = np.minimum(groups, max(0, n_groups - 1))
        if n_groups:
            kernels.feistel(n_groups, keys, inside, inside)
        return np.where(groups < n_groups, row_in_group(inside, lanes, size), rows)

    def padded(self, lengths: Integers) -> Integers:
        """Return the columns that segments of these lengths take in a row: the next multiples of `pad_to_multiple`."""
        return -(-lengths // self.pad_to_multiple) * self.pad_to_multiple

    def segments(self, rows: npt.ArrayLike) -> Segments:
        """Return the segments of rows.

        Parameters
        ----------
        rows
            Numbers of rows, int64 [k], 0 <= row < n_rows, in any order.

        Returns
        -------
        Segments
            Every segment has 0 <= start < end, and the segments of a row have at most `seq_length` tokens together,
            padded to multiples of `pad_to_multiple`.

        Raises
        ------
        IndexError
            If a row does not exist.
        FormatError
            If the plan is damaged.
        """
        stored = self.stored_rows(np.asarray(rows, np.int64).reshape(-1))
        if not len(stored):
            return Segments(*np.empty((4, 0), np.int64))
        is_stream = self.algorithm == "none"
        found = self._span_segments(stored) if is_stream else self._common_segments(stored)
        if found is None:  # large counts, or a damaged plan: the kernels accept only what `_check` accepts
            found = self._stream_segments(stored) if is_stream else self._bin_segments(stored)
            self._check(found, len(stored))
        return found

    def _common_segments(self, stored: Integers) -> Segments | None:
        """Return the segments of rows of fewer than 255 pieces of documents that fill fewer than 255 rows."""
        assert self._rows is not None
        capacity = 16 * len(stored)
        while True:
            out = np.empty((4, capacity), np.int64)
            n_segments = kernels.read_rows(
                stored, self.seq_length, *self._documents.narrow, *self._rows.narrow, self._pieces, *self._widths, out
            )
            if n_segments >= 0:
                return Segments(*out[:, :n_segments])
            if n_segments == -1:
                return None
            capacity = max(-n_segments, 2 * capacity)

    def _bin_segments(self, stored: Integers) -> Segments:
        assert self._rows is not None
        is_full = stored < self.n_full_rows
        bins = stored[~is_full] - self.n_full_rows
        n_pieces = np.ones(len(stored), np.int64)
        n_pieces[~is_full] = self._rows.counts(bins)
        if len(stored) and int(n_pieces.max()) > max(1, self._n_pieces):
            self._fail("a row of more pieces than there are")
        total = int(n_pieces.sum())
        row = np.repeat(np.arange(len(stored)), n_pieces)
        document, start, end = np.empty(total, np.int64), np.empty(total, np.int64), np.empty(total, np.int64)
        full = is_full[row]
        document[full], number = self._documents.locate(stored[is_full])
        start[full] = number * self.seq_length
        end[full] = start[full] + self.seq_length
        if len(bins):
            places = _ranges(self._rows.first(bins), n_pieces[~is_full])
            document[~full], lengths = self._read_pieces(places)
            start[~full] = self._documents.counts(document[~full]) * self.seq_length
            end[~full] = start[~full] + lengths
        return Segments(row, document, start, end)

    def _read_pieces(self, places: Integers) -> tuple[Integers, Integers]:
        if len(places) and int(places.max()) >= self._n_pieces:
            self._fail("a row of pieces beyond the section")
        document, length = read_pieces(self._pieces, places, self.n_source_documents, self.seq_length)
        if (document >= self.n_source_documents).any():
            self._fail("a document beyond the sources")
        return document, length

    def _spans(self, stored: Integers) -> tuple[Integers, Integers]:
        """Return the first token of each row among those of all documents, and the end."""
        if self._rows is None:
            first = stored * self.seq_length
            return first, np.minimum(first + self.seq_length, self._documents.n_units)
        first = self._rows.first(stored)
        return first, first + self._rows.counts(stored)

    def _span_segments(self, stored: Integers) -> Segments | None:
        """Return the segments of rows of a stream by one kernel call; None if the plan is damaged."""
        spans, capacity = self._spans(stored), 16 * len(stored)
        while True:
            out = np.empty((4, capacity), np.int64)
            n_segments = kernels.stream_segments(*spans, self.seq_length, *self._documents.arrays, *out)
            if n_segments <= capacity:
                return Segments(*out[:, :n_segments]) if n_segments >= 0 else None
            capacity = n_segments

    def _stream_segments(self, stored: Integers) -> Segments:
        n_tokens = self._documents.n_units
        first, end = self._spans(stored)
        if (end <= first).any() or int(end.max()) > n_tokens:
            self._fail("a row without tokens")
        first_document, offset = self._documents.locate(first)
        last_document, last_offset = self._documents.locate(end - 1)
        n_documents = last_document - first_document + 1
        if (n_documents < 1).any():
            self._fail("documents in another order than their tokens")
        return self._between(first_document, offset, last_document, last_offset + 1)

    def _between(self, first: Integers, offset: Integers, last: Integers, last_end: Integers) -> Segments:
        """Return the segments from token `offset` of documents `first` to token `last_end` of documents `last`."""
        n_documents = last - first + 1
        document = _ranges(first, n_documents)
        row = np.repeat(np.arange(len(first)), n_documents)
        start, end = np.zeros(len(document), np.int64), self._documents.counts(document)
        ends = np.cumsum(n_documents)
        end[ends - 1] = last_end
        start[ends - n_documents] = offset
        keep = end > start  # documents without tokens
        return Segments(row[keep], document[keep], start[keep], end[keep])

    def _check(self, found: Segments, n_rows: int) -> None:
        lengths = self.padded(found.end - found.start)
        if (lengths <= 0).any() or (found.start < 0).any():
            self._fail("a segment without tokens")
        if (np.bincount(found.row, lengths, n_rows) > self.seq_length).any():
            self._fail(f"a row of more than {self.seq_length} tokens")

    def _fail(self, found: str) -> NoReturn:
        raise FormatError(self.path, 0, found, "an undamaged plan: write it again")


def _integers(values: list[Any], end: int) -> list[int]:
    """Return values that must be integers in [0, end); ValueError."""
    if not isinstance(values, list) or any(type(value) is not int or not 0 <= value < end for value in values):
        raise ValueError(f"{values!r:.100}")
    return values


def _ranges(starts: Integers, counts: Integers) -> Integers:
    """Return the concatenation of arange(start, start + count)."""
    ends = np.cumsum(counts)
    shifts: Integers = np.repeat(starts - (ends - counts), counts)
    return shifts + np.arange(len(shifts))


_COUNTS = (
    "seq_length",
    "n_rows",
    "n_segments",
    "n_documents",
    "n_tokens",
    "n_padding",
    "n_truncated",
    "n_dropped",
    "n_cuts",
    "n_source_documents",
    "n_source_tokens",
)
