"""The rows of Megatron's GPT samples, written from parts of documents: tokens, labels, loss mask and positions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fastpack import kernels
from fastpack.datasets.gpt.document_source import Numbers
from fastpack.datasets.gpt.sample_order import Parts
from fastpack.datasets.loss_labels import Places, mask_places
from fastpack.datasets.outputs import Arrays
from fastpack.datasets.segment_reader import SegmentGroup, SegmentReader
from fastpack.datasets.shard_masks import FileMasks
from fastpack.datasets.windows import row_numbers

NO_PAD = -1  # Megatron's padding token where the tokenizer has none of its own: no token of a text
Output = npt.NDArray[Any]


@dataclass(frozen=True)
class MaskRules:
    """How labels, loss masks and positions are made.

    extra: whether samples have an extra token, their last label (1 or 0). pad, eod: token ids. by_document: whether
    positions restart with each part of a document. reset: whether they restart after EOD tokens. mask_eod: whether EOD
    tokens have no loss. reads_tokens: whether a mask depends on tokens; not if none can be `pad`.
    """

    extra: int
    pad: int
    eod: int
    by_document: bool
    reset: bool
    mask_eod: bool
    reads_tokens: bool


class RowFiller:
    """Writes samples into rows of the outputs that `arrays` has, all of one shape.

    Parameters
    ----------
    parts, files
        The parts of the samples, and the file of each part in `reader`.
    rows
        The row of each sample; None: sample k fills row k of as many.
    """

    def __init__(self, parts: Parts, files: Numbers, rows: Numbers | None, rules: MaskRules, arrays: Arrays) -> None:
        self._parts, self._files, self._rules = parts, files, rules
        self._every_row: Any = slice(None) if rows is None else rows
        self._rows = row_numbers(len(parts.sizes)) if rows is None else rows
        self._part_rows = parts.samples if rows is None else rows[parts.samples]
        shape = next(iter(arrays.values())).shape
        dtype = next((array.dtype for name, array in arrays.items() if name != "loss_mask"), np.dtype(np.int64))
        self._length = shape[1]
        needed = ("tokens", "labels", "loss_mask") if rules.reads_tokens else ("tokens",)
        scratch = {
            name: np.empty(shape, np.float32 if name == "loss_mask" else dtype) for name in needed if name not in arrays
        }
        self._arrays = {**scratch, **arrays}

    def fill(self, reader: SegmentReader, masks: FileMasks) -> None:
        """Write every output; OverflowError if a token does not fit into int32 outputs."""
        for group in reader.groups(self._files, self._parts.starts, self._parts.lengths):
            self._copy(group)
        self._mask()
        if masks.exist and "loss_mask" in self._arrays:
            self._mask_files(masks, self._arrays["loss_mask"])
        if "position_ids" in self._arrays and not self._rules.reset:
            self._number(self._arrays["position_ids"])

    def _copy(self, group: SegmentGroup) -> None:
        parts, arrays, which = self._parts, self._arrays, group.which
        rows, columns, lengths = self._part_rows, parts.columns, parts.lengths
        if len(which) < len(rows):
            rows, columns, lengths = rows[which], columns[which], lengths[which]
        positions = arrays.get("position_ids") if self._rules.by_document else None
        shown = np.minimum(lengths, self._length - columns)
        tokens = (rows, columns, shown, shown, rows, 0, group.dtype_selector, arrays["tokens"], None, None, positions)
        misfit = kernels.fill_segments(group.addresses, *tokens)
        if "labels" in arrays:
            skipped = ((columns == 0) & (lengths > 0)).astype(np.int64)  # the first token of a row is no label
            addresses = group.addresses + (skipped * group.dtype_selector.itemsize).view(np.uint64)
            before = np.maximum(columns - 1, 0)
            labels = (rows, before, lengths - skipped, group.dtype_selector, arrays["labels"])
            misfit |= kernels.copy_segments(addresses, *labels)
        if misfit:
            what = f"a token of {group.dtype_selector.dtype} does not fit into int32 outputs"
            raise OverflowError(f"{what}: pass dtype='int64'")

    def _mask(self) -> None:
        """Write padding and the loss mask, and positions that restart after EOD tokens."""
        arrays, rules, reads = self._arrays, self._rules, self._rules.reads_tokens
        if "loss_mask" in arrays and not reads:
            arrays["loss_mask"][self._every_row] = 1
        for sample in self._shorter_than(self._length + 1):
            row, end = int(self._rows[sample]), int(self._parts.sizes[sample])
            arrays["tokens"][row, end:] = rules.pad if reads else 0
            for name in ("labels", "loss_mask"):
                if name in arrays:
                    arrays[name][row, max(end - 1, 0) :] = rules.pad if reads else 0
        if reads:
            positions = arrays.get("position_ids") if rules.reset else None
            outputs = (arrays["tokens"], arrays["labels"], arrays["loss_mask"], positions)
            kernels.mask_tokens(self._rows, rules.pad, rules.eod, rules.mask_eod, *outputs)

    def _mask_files(self, masks: FileMasks, loss_mask: Output) -> None:
        """Set the loss mask to 0 where the label, a token of the next column, does not count."""
        parts = self._parts
        skipped = np.minimum(parts.columns == 0, parts.lengths)  # the first token of a row is no label
        columns = parts.columns + skipped - 1
        places = Places(self._files, parts.starts + skipped, parts.lengths - skipped, self._part_rows, columns)
        mask_places(masks, places, loss_mask, 0)

    def _number(self, position_ids: Output) -> None:
        """Write positions that count from 0 in each row; padding continues the last document."""
        if not self._rules.by_document:
            position_ids[self._every_row] = np.arange(self._length)
            return
        for sample in self._shorter_than(self._length + self._rules.extra):
            starts = document_bounds(self._parts, sample, self._length, self._rules.extra)
            position_ids[self._rows[sample], starts[-2] :] = np.arange(self._length - starts[-2])

    def _shorter_than(self, n_tokens: int) -> list[int]:
        """Return the samples that end before the others, with all documents."""
        sizes = self._parts.sizes
        return [] if not len(sizes) or sizes.min() >= n_tokens else np.flatnonzero(sizes < n_tokens).tolist()


def document_bounds(parts: Parts, sample: int, length: int, extra: int) -> list[int]:
    """Return where the parts of documents in a sample begin, and `length`: the cu_seqlens of the sample.

    The extra token belongs to no part, and padding to the last one (as Megatron). Empty documents have bounds too.
    """
    lengths = parts.lengths[parts.samples == sample].tolist()
    if extra and lengths:
        lengths[-1] -= 1
        if lengths[-1] == 0:
            lengths.pop()
    if not lengths:
        lengths = [0]
    lengths[-1] += max(0, length - sum(lengths))
    return [0, *np.cumsum(lengths).tolist()]
