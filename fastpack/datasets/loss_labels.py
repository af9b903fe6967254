"""Labels of tokens that do not count in the loss are -100, as the loss masks next to token files say."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastpack.datasets.row_shares import PADDING, Numbers, Spans
from fastpack.datasets.shard_masks import FileMasks, ShardMasks
from fastpack.datasets.windows import Windows

IGNORED = -100


class Places(NamedTuple):
    """Where tokens come from and go, each int64 [k]: file, first token there, number of tokens, and row and column."""

    files: Numbers
    starts: Numbers
    lengths: Numbers
    rows: Numbers
    columns: Numbers


def mask_labels(
    masks: ShardMasks,
    windows: Windows,
    index: npt.NDArray[np.int64],
    negative: bool,
    labels: npt.NDArray[Any],
    rows: npt.NDArray[np.int64] | None,
) -> None:
    """Set the labels [n, L] of windows of L + 1 tokens to -100 where the token does not count."""
    n_rows, zeros = len(index), np.zeros(len(index), np.int64)
    targets = np.arange(n_rows) if rows is None else rows
    whole = Spans(index, targets, zeros, zeros, np.full(n_rows, labels.shape[1]), zeros, zeros)
    mask_span_labels(masks, windows, whole, negative, labels)


def mask_span_labels(
    masks: ShardMasks, windows: Windows, spans: Spans, negative: bool, labels: npt.NDArray[Any]
) -> None:
    """Set the labels of spans of windows to -100 where the token does not count."""
    spans = spans.chosen(spans.starts != PADDING)
    found = windows.spans(spans.samples, negative)
    starts = found.starts + spans.starts + 1  # a label is the next token
    mask_places(masks, Places(found.files, starts, spans.lengths, spans.rows, spans.columns), labels, IGNORED)


def mask_places(masks: ShardMasks | FileMasks, places: Places, out: npt.NDArray[Any], value: int) -> None:
    """Set out [n, L] to `value` at places whose tokens do not count."""
    for file, start, length, row, column in zip(*(field.tolist() for field in places), strict=True):
        mask = masks.of(file)
        if mask is not None:
            out[row, column : column + length][~mask.read(start, start + length)] = value
