"""`PlannedDataset`: the rows of a packing plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from fastpack import kernels
from fastpack.datasets.base import Indices, RowDataset
from fastpack.datasets.document_table import DocumentTable
from fastpack.datasets.file_spans import NumberedFiles, RowSpans
from fastpack.datasets.loss_labels import IGNORED, Places, mask_places
from fastpack.datasets.outputs import LOSS_MASK, OUTPUTS, PAIR_OUTPUTS, ROW_OUTPUTS, WHOLE_OUTPUTS, Arrays
from fastpack.datasets.recorded_tokenizers import tokenizer_of_shards
from fastpack.datasets.row_format import PlannedRows
from fastpack.datasets.segment_reader import Numbers, SegmentReader
from fastpack.datasets.shard_masks import FileMasks
from fastpack.datasets.window_groups import RowNumbers, check_fit
from fastpack.display import facts
from fastpack.errors import FormatError
from fastpack.io import PathLike, stat_of
from fastpack.item_numbers import item_number, item_numbers
from fastpack.plans.plan_file import PlanFile, Segments
from fastpack.plans.plan_sources import open_all
from fastpack.tokens.common_fingerprint import described_files
from fastpack.tokens.token_file import TokenFile
from fastpack.tokens.token_segment import stamp_of


class _Places(NamedTuple):
    """Where the tokens of each segment come from and go; int64 [k] each.

    first: the first token, -1 for padding. length: tokens, 0 for padding. size: columns that the segment takes. number:
    of the segment within the row.
    """

    first: Numbers
    row: Numbers
    column: Numbers
    length: Numbers
    size: Numbers
    number: Numbers


class PlannedDataset(NumberedFiles, RowDataset):
    """Read the rows of a packing plan: whole documents, or pieces of them, in rows of `seq_length` tokens.

    A sample is {"input_ids", "labels", "doc_ids"}, each int64 [seq_length], or the given outputs. The tokens of a row
    are those of its segments, one after another, and then padding. No label crosses a border: the label of the last
    token of each segment is -100, and so is that of padding. In a plan with `pad_to_multiple`, each segment is followed
    by padding up to a multiple of that many tokens.

    Parameters
    ----------
    plan_path
        The plan, as `fastpack.plan` wrote it.
    pad_token_id
        The token in input_ids that pads a row.
    outputs
        The outputs of samples, and of batches by default: input_ids, labels, doc_ids, position_ids, loss_mask,
        cu_seqlens, max_seqlen.
    mix_tokenizers
        Read sources that were written with different tokenizers, as their side files record (see
        `TokenizerFingerprint`), with a DataWarning. By default they are refused. Sources in a store are not compared.

    Attributes
    ----------
    plan : PlanFile
        The plan.

    Raises
    ------
    FileNotFoundError
        If the plan or one of its sources does not exist.
    FormatError
        If the plan or a source is damaged; on access, if the plan names tokens that a source does not have.
    JobError
        If a source has changed since the plan was made.
    ValueError
        If an output is unknown, or the recorded tokenizers of two sources differ.

    Notes
    -----
    The outputs of a batch of B rows of L = seq_length tokens:

    - input_ids, labels, doc_ids, position_ids: [B, L]. doc_ids number the segments of a row from 0, position_ids the
      tokens of each segment. The padding at the end of a row is one more segment; padding after a segment belongs to
      it, so that all segments begin and end at multiples of `plan.pad_to_multiple`.
    - cu_seqlens and max_seqlen include padding as segments: the last entry of cu_seqlens is B * L.
    - loss_mask: bool [B, L], whether the label is not -100.

    Labels are also -100 where the loss mask of a source says that the token does not count (see `pack_conversations`).

    The dataset pickles as the path of the plan. Document boundaries of a source are read when a batch first needs
    them, and take 16 bytes per document.

    Examples
    --------
    >>> import tempfile, fastpack
    >>> folder = tempfile.mkdtemp()
    >>> with fastpack.PackedWriter(f"{folder}/corpus.pbin", token_size_in_bytes=2) as writer:
    ...     writer.append_many([5, 6, 7, 8, 9, 1, 2, 3], lengths=[3, 2, 3])
    >>> _ = fastpack.plan(f"{folder}/corpus.pbin", f"{folder}/corpus.plan", seq_length=6)
    >>> dataset = fastpack.PlannedDataset(f"{folder}/corpus.plan")
    >>> batch = dataset.batch([0, 1])
    >>> batch["input_ids"]
    array([[5, 6, 7, 1, 2, 3],
           [8, 9, 0, 0, 0, 0]])
    >>> batch["labels"]
    array([[   6,    7, -100,    2,    3, -100],
           [   9, -100, -100, -100, -100, -100]])
    >>> dataset.documents(0)
    array([[0, 0, 3],
           [2, 0, 3]])
    """

    _subject = "plan_path"
    _shown = facts(rows="_total", seq_length="seq_length", sources=lambda self: self.plan.sources, closed="_closed")
    _not_pickled: ClassVar[tuple[str, ...]] = (
        "plan",
        "_format",
        "_table",
        "_reader",
        "_passes",
        "_file_sources",
        "_masks",
    )

    def __init__(
        self,
        plan_path: PathLike,
        *,
        pad_token_id: int = 0,
        outputs: Sequence[str] = PAIR_OUTPUTS,
        mix_tokenizers: bool = False,
    ) -> None:
        self.plan_path, self.pad_token_id, self.outputs = plan_path, pad_token_id, tuple(outputs)
        for name in outputs:
            if name not in (*OUTPUTS, LOSS_MASK):
                raise ValueError(f"unknown output {name!r}: choose from {', '.join((*OUTPUTS, LOSS_MASK))}")
        self._stamp = stamp_of(stat_of(plan_path))
        self._attach()
        described = [path for file in self._table.files for path in described_files(file)]
        self._recorded = tokenizer_of_shards(described, mix_tokenizers, None)
        self._total = self.plan.n_rows

    def _attach(self) -> None:
        self.plan = PlanFile(self.plan_path)
        passes = self.plan.open_sources()
        self._table = DocumentTable(passes)
        self._file_sources = {id(file): source for file, source in zip(passes, self.plan.sources, strict=True)}
        self._reader = SegmentReader(self._table.files)
        self._passes = self._table.passes(self._reader.first_tokens)
        self._masks = FileMasks(dict(enumerate(self._table.files)))
        self._format = PlannedRows(self.plan.seq_length, True, names=self.outputs)

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._check_plan()
        self._attach()

    @property
    def seq_length(self) -> int:
        """The number of tokens of a row."""
        return self.plan.seq_length

    @property
    def _row_format(self) -> PlannedRows:
        return self._format

    def __getitem__(self, index: int) -> dict[str, Any]:
        """Return row `index` as arrays [seq_length]; IndexError if it is out of range, also below 0."""
        batch: dict[str, Any] = self.batch([item_number(index)])
        return {name: value if name in WHOLE_OUTPUTS else value[0] for name, value in batch.items()}

    def documents(self, i: int) -> npt.NDArray[np.int64]:
        """Return the documents of a row.

        Parameters
        ----------
        i
            The number of the row.

        Returns
        -------
        numpy.ndarray
            int64 [k, 3]: for each segment, the number of its document, counted across all sources in the order of the
            plan, and the tokens of the document that it contains, from the first to the end (exclusive).

        Raises
        ------
        IndexError
            If the row is out of range.
        """
        found = self._segments(np.array([item_number(i)]))
        return np.stack([found.document, found.start, found.end], axis=1)

    def row_spans(self, indices: Indices) -> RowSpans:
        """Return where the tokens of rows lie in the token files.

        Parameters
        ----------
        indices
            Row numbers, as for `batch`.

        Returns
        -------
        RowSpans
            One run of tokens for each segment, with the number of its document in its file; padding has none.

        Raises
        ------
        IndexError
            If a number is out of range.
        """
        found = self._segments(item_numbers(indices))
        place = self._table.locate(found.document)
        sizes = self.plan.padded(found.end - found.start)
        before = np.cumsum(sizes) - sizes
        offsets = before - before[np.searchsorted(found.row, found.row)]
        starts, ends, zeros = place.start + found.start, place.start + found.end, np.zeros_like(sizes)
        return RowSpans(found.row, offsets, zeros, place.file, starts, ends, place.number)

    def _token_files(self) -> Sequence[str]:
        return [file.path for file in self._table.files]

    def _open_file(self, number: int) -> TokenFile:
        source = self._file_sources[id(self._table.files[number])]
        return open_all([source], self.plan.folder, times_count=False)[0]

    def _identity(self) -> bytes:
        plan = self.plan
        counts = [(source.n_documents, source.n_tokens) for source in plan.sources]
        known = (plan.seq_length, plan.algorithm, plan.long, plan.seed, plan.n_segments, counts)
        # Runs were described before plans could pad documents.
        return repr(known if plan.pad_to_multiple == 1 else (*known, plan.pad_to_multiple)).encode()

    def _segments(self, index: Numbers) -> Segments:
        self._check_open()
        try:
            return self.plan.segments(index)
        except IndexError:
            wrong = index[((index < 0) | (index >= self._total)).argmax()]
            raise IndexError(f"Index {wrong} out of range [0, {self._total})") from None

    def _fill_rows(self, index: npt.NDArray[np.int64], arrays: Arrays, rows: RowNumbers | None) -> None:
        places = self._places(index)
        outputs = _kernel_outputs(arrays)
        columns, fill = [outputs.get(name) for name in ROW_OUTPUTS], cast(Any, kernels.fill_segments)
        for group in self._reader.numbered_groups(places.first, places.length):
            is_all = len(group.which) == len(places.first)  # then `which` numbers them in their order
            _, row, *others = places if is_all else (values[group.which] for values in places)
            place = (group.addresses, row if rows is None else rows[row], *others)
            misfit = fill(*place, self.pad_token_id, group.dtype_selector, *columns)
            check_fit(misfit, group.dtype_selector)
        if "labels" in outputs:
            self._mask_labels(places, outputs["labels"], rows)
        if LOSS_MASK in arrays:
            if rows is None:
                np.not_equal(outputs["labels"], IGNORED, out=arrays[LOSS_MASK])
            else:
                arrays[LOSS_MASK][rows] = outputs["labels"][rows] != IGNORED

    def _mask_labels(self, places: _Places, labels: npt.NDArray[Any], rows: RowNumbers | None) -> None:
        """Set the labels of tokens that do not count to -100; the last label of a segment is -100 anyway."""
        if not self._masks.exist:
            return
        chosen = (places.first >= 0) & (places.length > 1)
        first, row, column, length = (field[chosen] for field in places[:4])
        files = np.searchsorted(self._reader.first_tokens, first, side="right") - 1
        starts = first - self._reader.first_tokens[files] + 1  # a label is the next token
        targets = row if rows is None else rows[row]
        mask_places(self._masks, Places(files, starts, length - 1, targets, column), labels, IGNORED)

    def _places(self, index: Numbers) -> _Places:
        """Return where the segments of rows come from and go; FormatError for tokens that a document does not have."""
        segments, n_rows = self._segments(index), len(index)
        placed = np.empty((6, len(segments.row) + n_rows), np.int64)
        for is_last in (False, True):
            tables = (self._passes, self._table.starts, self._table.ends)
            shape = (n_rows, self.seq_length, self.plan.pad_to_multiple)
            n = kernels.place_segments(*segments, *tables, *shape, placed)
            if n >= 0:
                return _Places(*placed[:, :n])
            if is_last:
                raise FormatError(self.plan_path, 0, "a row of too many tokens", f"at most {self.seq_length}")
            self._check_documents(segments)  # reads the boundaries of documents of files that are new
        raise AssertionError

    def _check_documents(self, segments: Segments) -> None:
        """Raise FormatError for tokens beyond their document."""
        found = self._table.locate(segments.document)
        outside = (segments.start < 0) | (segments.end < segments.start) | (segments.end > found.end - found.start)
        if outside.any():
            k = int(outside.argmax())
            document, n_tokens = segments.document[k], found.end[k] - found.start[k]
            text = f"tokens {segments.start[k]} to {segments.end[k]} of document {document}"
            raise FormatError(self.plan_path, 0, text, f"tokens between 0 and {n_tokens}, the end of the document")

    def will_need(self, indices: Indices) -> None:
        """Hint the OS, or the block cache of a store, to read these rows, for batches that are needed soon.

        Parameters
        ----------
        indices
            Row numbers, as for `batch`.

        Raises
        ------
        IndexError
            If a number is out of range.
        """
        places = self._places(item_numbers(indices))
        which = places.first >= 0
        self._reader.numbered_will_need(places.first[which], places.length[which])

    def check_unchanged(self) -> None:
        """Raise FormatError if the plan or a source has changed since construction.

        Objects in a store are checked on reading instead: each request names the version.
        """
        self._check_plan()
        self._reader.check_unchanged()

    def _check_plan(self) -> None:
        if stamp_of(stat_of(self.plan_path)) != self._stamp:
            raise FormatError(self.plan_path, 0, "another plan of that name", "the one the dataset was made of")

    def close(self) -> None:
        """Release the mappings; closing twice is allowed. Batches that were returned stay valid."""
        super().close()
        self._reader.close()


def _kernel_outputs(arrays: Arrays) -> Arrays:
    """Return the arrays that the kernel writes: those of a batch, and labels where only the loss mask is requested."""
    if "input_ids" in arrays and LOSS_MASK not in arrays:
        return arrays
    grids = {name: array for name, array in arrays.items() if name != LOSS_MASK}
    needed = ("input_ids", "labels") if LOSS_MASK in arrays else ("input_ids",)
    some = next(iter(grids.values()), np.empty(arrays[next(iter(arrays))].shape, np.int64))
    return {**{name: np.empty_like(some) for name in needed if name not in grids}, **grids}
