"""`WindowDataset`: rows that are windows of equal length over the tokens of files."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import numpy.typing as npt

from fastpack.datasets.base import Indices, RowDataset
from fastpack.datasets.file_spans import NumberedFiles, RowSpans
from fastpack.datasets.loss_labels import mask_labels, mask_span_labels
from fastpack.datasets.outputs import Arrays
from fastpack.datasets.row_format import TokenRows
from fastpack.datasets.row_shares import Spans, fill_window_spans, window_document_ends
from fastpack.datasets.shard_masks import ShardMasks
from fastpack.datasets.span_groups import will_need_spans
from fastpack.datasets.window_groups import RowNumbers, fill_rows
from fastpack.datasets.windows import Windows
from fastpack.item_numbers import item_numbers

LABELS = "request outputs=('input_ids', 'labels')"


class WindowDataset(NumberedFiles, RowDataset):
    """Base class of the datasets whose samples are windows of `_window` tokens."""

    _not_pickled: ClassVar[tuple[str, ...]] = ("_windows", "_format", "_masks")
    _windows: Windows
    _window: int
    _eos: int | None
    _negative = False  # whether negative indices count from the end
    _format: TokenRows  # of the windows; set with them
    _masks: ShardMasks | None = None  # which labels are -100; set with them

    @property
    def _row_format(self) -> TokenRows:
        return self._format

    def _fill_rows(self, index: npt.NDArray[np.int64], arrays: Arrays, rows: RowNumbers | None) -> None:
        block = self._format.block_in(arrays)
        fill_rows(self._windows.groups(index, self._negative), arrays, block, self._eos, rows)
        if self._masks is not None and block is not None:
            self._masks.note_unused(LABELS)
        elif self._masks is not None and "labels" in arrays:
            mask_labels(self._masks, self._windows, index, self._negative, arrays["labels"], rows)

    def _why_no_windows(self) -> str | None:
        if self._eos is not None:
            return "labels after the end of a document are -100"
        return None if self._masks is None else "labels are -100 where a loss mask says so"

    def _identity(self) -> bytes:
        return self._windows.cumulative.tobytes()

    def row_spans(self, indices: Indices) -> RowSpans:
        """Return where the tokens of samples lie in the files, without reading them.

        Parameters
        ----------
        indices
            Sample numbers, as for `batch`.

        Returns
        -------
        RowSpans
            The file and the token range of each sample; the last token of a window is a label only.

        Raises
        ------
        IndexError
            If an index is out of range.
        """
        return self._windows.spans(item_numbers(indices), self._negative)

    def _fill_spans(self, spans: Spans, arrays: Arrays) -> None:
        fill_window_spans(self._windows, self._eos, spans, arrays, self._negative)
        if self._masks is not None and "labels" in arrays:
            mask_span_labels(self._masks, self._windows, spans, self._negative, arrays["labels"])

    def _will_need_spans(self, spans: Spans) -> None:
        will_need_spans(self._windows, spans.samples, spans.starts, spans.lengths + 1, self._negative)

    def _document_ends(self, index: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        assert self._eos is not None
        return window_document_ends(self._windows, self._eos, index, self._format.length, self._negative)

    def will_need(self, indices: Indices) -> None:
        """Hint the OS to read these samples from the disk, for batches that are needed soon.

        Costs little where the pages are in memory. From the first call on, the mappings are advised as read at random:
        reading a page does not read its neighbours.

        Parameters
        ----------
        indices
            Sample numbers, as for `batch`.

        Raises
        ------
        IndexError
            If an index is out of range.
        """
        self._check_open()
        self._windows.will_need(indices, self._negative)

    def close(self) -> None:
        """Release the mappings; closing twice is allowed. Batches that were returned stay valid."""
        super().close()
        self._windows.close()
