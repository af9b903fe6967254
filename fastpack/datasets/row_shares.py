"""Spans of a batch's rows: the share that context parallelism gives to a rank, and how datasets fill it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from fastpack import kernels
from fastpack.datasets.outputs import ROW_OUTPUTS, Arrays
from fastpack.datasets.span_groups import span_groups
from fastpack.datasets.window_groups import check_fit
from fastpack.datasets.windows import Windows

Numbers: TypeAlias = npt.NDArray[np.int64]
PADDING = -1  # as the start of a span


class Spans(NamedTuple):
    """Spans of tokens, each int64 [k]: where they are in the rows of samples, and where they go in a batch.

    samples: the sample whose row it is. rows, columns: the place in the batch. starts, lengths: tokens in the sample's
    row; PADDING as the start. documents: the number of the span's document in its row. positions: of the first token in
    the document. Without known documents, the last two are 0.
    """

    samples: Numbers
    rows: Numbers
    columns: Numbers
    starts: Numbers
    lengths: Numbers
    documents: Numbers
    positions: Numbers

    def chosen(self, which: npt.NDArray[Any]) -> Spans:
        """Return the spans that an index or mask selects."""
        return Spans(*(field[which] for field in self))


def split_at_documents(spans: Spans, ends: Numbers, length: int) -> Spans:
    """Return `spans`, divided where documents end, with their documents and positions.

    ends: the ends of all documents in the batch as one sequence of rows of `length` tokens, int64 [n], ascending.
    """
    firsts = spans.rows * length + spans.starts
    stops = firsts + spans.lengths
    first_documents = np.searchsorted(ends, firsts, side="right")
    counts = np.searchsorted(ends, stops, side="left") - first_documents + 1
    which = np.repeat(np.arange(len(firsts)), counts)
    documents = np.arange(len(which)) + np.repeat(first_documents - (np.cumsum(counts) - counts), counts)
    opened = np.concatenate([[0], ends])[documents]
    starts = np.maximum(firsts[which], opened)
    before = np.searchsorted(ends, spans.rows * length, side="right")[which]
    return Spans(
        spans.samples[which],
        spans.rows[which],
        spans.columns[which] + starts - firsts[which],
        starts - spans.rows[which] * length,
        np.minimum(stops[which], ends[documents]) - starts,
        documents - before,
        starts - opened,
    )


def fill_window_spans(windows: Windows, eos: int | None, spans: Spans, arrays: Arrays, negative: bool) -> None:
    """Write spans of windows into the rows of checked arrays; only the tokens of the spans are read."""
    first = next(iter(arrays.values()))
    input_ids = arrays.get("input_ids")
    outputs = [np.empty_like(first) if input_ids is None else input_ids, *(arrays.get(n) for n in ROW_OUTPUTS[1:])]
    padding = spans.starts == PADDING
    kernel: Any = kernels.fill_spans
    if padding.any():
        pad, like = spans.chosen(padding), np.empty(0, np.uint16)
        kernel(np.zeros(len(pad.rows), np.uint64), *pad[1:3], *pad[4:], like, eos, *outputs)
        spans = spans.chosen(~padding)
    for group in span_groups(windows, spans.samples, spans.starts, spans.lengths + 1, negative):
        one = spans.chosen(group.rows)
        selector = group.dtype_selector
        check_fit(kernel(group.addresses, *one[1:3], *one[4:], selector, eos, *outputs), selector)


def window_document_ends(windows: Windows, eos: int, samples: Numbers, length: int, negative: bool) -> Numbers:
    """Return the ends of the documents in rows of windows, as `split_at_documents` takes them; reads all tokens."""
    found, ends = [np.zeros(0, np.int64)], np.empty(16 * len(samples) + 1024, np.int64)
    for group in windows.groups(samples, negative):
        call = (group.addresses, group.rows, length, group.dtype_selector, eos)
        needed = kernels.document_ends(*call, ends)
        if needed > len(ends):
            ends = np.empty(needed, np.int64)
            kernels.document_ends(*call, ends)
        found.append(ends[:needed].copy())
    return np.sort(np.concatenate(found), kind="stable")


def copy_row_spans(fill: Callable[[Numbers, Arrays], None], scratch: Arrays, spans: Spans, arrays: Arrays) -> None:
    """Write spans of rows that can only be filled whole, one row at a time.

    fill: writes samples into arrays. scratch: one whole row of each array that is cut; others are filled as they are.
    """
    paddings = {"labels": -100}
    for row in np.unique(spans.rows).tolist():
        own = spans.chosen(spans.rows == row)
        fill(own.samples[:1], {**{name: array[row : row + 1] for name, array in arrays.items()}, **scratch})
        for _, _, column, start, n_tokens, document, position in zip(*(field.tolist() for field in own), strict=True):
            stop = column + n_tokens
            for name, cut in scratch.items():
                if start != PADDING:
                    arrays[name][row, column:stop] = cut[0, start : start + n_tokens]
                elif name == "position_ids":
                    arrays[name][row, column:stop] = np.arange(position, position + n_tokens)
                else:
                    arrays[name][row, column:stop] = document if name == "doc_ids" else paddings.get(name, 0)
