"""Context parallelism: the tokens of every row that one rank of a group processes, filled without the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from fastpack.datasets.base import Indices, RowDataset
from fastpack.datasets.outputs import WHOLE_OUTPUTS, Allocate, OutputDtype, Outputs
from fastpack.datasets.row_format import OutputOptions
from fastpack.datasets.row_shares import PADDING, Numbers, Spans, split_at_documents
from fastpack.item_numbers import item_numbers
from fastpack.loading.sampler import DistributedSampler

CpLayout: TypeAlias = Literal["zigzag", "contiguous", "documents"]

GLOBAL_OUTPUTS = ("cu_seqlens_global", "max_seqlen_global")  # of the whole batch; WHOLE_OUTPUTS are of the share


class Cut(NamedTuple):
    """The share of a batch: its spans, the tokens of a row in it, and the ends of its sequences.

    global_ends: those of the documents in the whole batch; None if no output needs them.
    """

    spans: Spans
    width: int
    ends: Numbers
    global_ends: Numbers | None = None


class ContextShare:
    """The share of one rank of a context-parallel group in the rows of a dataset.

    Raises
    ------
    ValueError
        If the rank, the layout or an output is unknown, or the rows cannot be cut.
    """

    def __init__(
        self,
        dataset: Any,
        context_parallel: tuple[int, int],
        layout: CpLayout,
        outputs: Sequence[str] | None,
        dtype: OutputDtype,
        cu_seqlens_length: int | None,
    ) -> None:
        self._rank, self._size = _checked(context_parallel, layout)
        if not isinstance(dataset, RowDataset):
            raise ValueError(f"context_parallel cuts rows of tokens: a {type(dataset).__name__} has none")
        self._dataset, self._layout, self._cu_seqlens_length = dataset, layout, cu_seqlens_length
        self._format = dataset._row_format
        self._length = self._format.length
        self._names = tuple(self._format.default if outputs is None else outputs)
        rows = tuple(name for name in self._names if name not in WHOLE_OUTPUTS + GLOBAL_OUTPUTS)
        self._options = OutputOptions(rows, dtype, None)
        self._check(outputs)
        needed = set(self._names) - set(rows) or layout == "documents"
        self._needs_ends = bool(needed or (self._format.has_documents and {"doc_ids", "position_ids"} & set(rows)))

    def _check(self, outputs: Sequence[str] | None) -> None:
        options = self._options if outputs is not None else self._options._replace(outputs=None)
        given = self._format.allocate(0, options, np.empty)
        if any(array.shape[1:] == (self._length + 1,) for array in given.values()):
            raise ValueError("context_parallel cuts inputs and labels: pass outputs=('input_ids', 'labels')")
        self._dataset._require_documents([name.removesuffix("_global") for name in self._names])
        if self._layout == "documents":
            if not self._format.has_documents:
                raise ValueError("cp_layout='documents' needs the dataset's eos_token_id")
            return
        n_chunks = self._size * (2 if self._layout == "zigzag" else 1)
        if self._length % n_chunks:
            raise ValueError(
                f"rows of {self._length} tokens cannot be cut into {n_chunks} equal chunks "
                f"(context_parallel={self._rank, self._size}, cp_layout={self._layout!r})"
            )

    def batch(self, samples: npt.NDArray[np.int64], empty: Allocate = np.empty) -> Outputs:
        """Return this rank's share of a batch; arrays are made by `empty(shape, dtype)`."""
        return self.fill(self.cut(samples), len(samples), empty)

    def cut(self, samples: npt.NDArray[np.int64]) -> Cut:
        """Return where this rank's share is in the rows of `samples`."""
        self._dataset._check_open()
        ends = self._dataset._document_ends(samples) if self._needs_ends else None
        return self._cut(samples, ends)._replace(global_ends=ends)

    def fill(self, cut: Cut, n_rows: int, empty: Allocate) -> Outputs:
        """Return the batch of a share of `n_rows` rows."""
        out = self._allocate(n_rows, cut.width, empty)
        if out:
            self._dataset._fill_spans(cut.spans, out)
        if cut.global_ends is not None:
            whole = cut.ends * self._size if self._layout == "documents" else cut.global_ends
            out |= self._bounds(cut.ends, "") | self._bounds(whole, "_global")
        return {name: out[name] for name in self._names}

    def new_outputs(self, n_rows: int, empty: Allocate) -> Outputs:
        """Allocate the arrays of a batch; those whose shape depends on the tokens are None."""
        is_fixed = self._layout != "documents"
        out = self._allocate(n_rows, self._length // self._size, empty) if is_fixed else {}
        return {name: out.get(name) for name in self._names}

    def _allocate(self, n_rows: int, width: int, empty: Allocate) -> Outputs:
        def allocate(shape: tuple[int, ...], dtype: Any) -> npt.NDArray[Any]:
            return empty((shape[0], width) if shape[1:] == (self._length,) else shape, dtype)

        return self._format.allocate(n_rows, self._options, allocate)

    def _cut(self, samples: Numbers, ends: Numbers | None) -> Cut:
        if self._layout == "documents":
            assert ends is not None
            return document_chunks(samples, ends, self._length, self._rank, self._size)
        spans = row_chunks(samples, self._length, self._rank, self._size, self._layout)
        if ends is not None:
            spans = split_at_documents(spans, ends, self._length)
        width = self._length // self._size
        return Cut(spans, width, np.sort(spans.rows * width + spans.columns + spans.lengths))

    def _bounds(self, ends: Numbers, suffix: str) -> Outputs:
        """Return cu_seqlens and max_seqlen of consecutive sequences, if they are outputs."""
        out: Outputs = {}
        if f"cu_seqlens{suffix}" in self._names:
            length = self._cu_seqlens_length or len(ends) + 1
            if len(ends) >= length:
                raise ValueError(f"cu_seqlens has room for {length} entries, this batch needs {len(ends) + 1}")
            if ends[-1] > np.iinfo(np.int32).max:
                raise ValueError(f"cu_seqlens are int32: a batch of {ends[-1]} tokens is too long for them")
            out[f"cu_seqlens{suffix}"] = bounds = np.full(length, ends[-1], np.int32)
            bounds[0], bounds[1 : len(ends) + 1] = 0, ends
        if f"max_seqlen{suffix}" in self._names:
            out[f"max_seqlen{suffix}"] = int(np.diff(ends, prepend=0).max())
        return out

    def will_need(self, samples: Indices) -> None:
        """Hint that these samples are needed soon: only the share, unless documents must be found in whole rows."""
        if self._needs_ends:
            self._dataset.will_need(samples)
        else:
            self._dataset._will_need_spans(self._cut(item_numbers(samples), None).spans)


def default_sampler(dataset: Any, context_parallel: tuple[int, int] | None) -> DistributedSampler:
    """Return the sampler of a loader that was given none; ValueError where its ranks would draw different samples."""
    sampler = DistributedSampler(dataset)
    if context_parallel is not None and sampler.num_replicas > 1:
        raise ValueError(
            "context_parallel needs a sampler of data-parallel ranks: pass "
            "sampler=fastpack.DistributedSampler(dataset, num_replicas, rank), see fastpack.ParallelRanks"
        )
    return sampler


def _checked(context_parallel: tuple[int, int], layout: str) -> tuple[int, int]:
    rank, size = context_parallel
    if not 0 <= rank < size:
        raise ValueError(f"context_parallel is {(rank, size)}: (rank, size) with 0 <= rank < size is needed")
    if layout not in get_args(CpLayout):
        raise ValueError(f"cp_layout is {layout!r}: choose from {', '.join(get_args(CpLayout))}")
    return rank, size


def row_chunks(samples: Numbers, length: int, rank: int, size: int, layout: str) -> Spans:
    """Return the chunks of each row: one, or the two of a zigzag (adjacent ones as one span)."""
    chunk = length // size
    if layout == "contiguous":
        starts = [rank * chunk]
    elif rank == size - 1:
        starts = [rank * chunk // 2]
    else:
        chunk //= 2
        starts = [rank * chunk, (2 * size - 1 - rank) * chunk]
    n_rows, n_chunks = len(samples), len(starts)
    rows = np.repeat(np.arange(n_rows), n_chunks)
    columns = np.tile(np.arange(n_chunks) * chunk, n_rows)
    firsts, zeros = np.tile(np.array(starts, np.int64), n_rows), np.zeros_like(rows)
    return Spans(samples[rows], rows, columns, firsts, zeros + chunk, zeros, zeros)


def document_chunks(samples: Numbers, ends: Numbers, length: int, rank: int, size: int) -> Cut:
    """Cut every document of each row as a zigzag, padded to a multiple of 2 * size tokens.

    ends: as `split_at_documents` takes them. A row that is shorter than the longest one ends with padding that is cut
    as a document of its own.
    """
    starts = np.concatenate([[0], ends[:-1]])
    rows, tokens, n_rows = starts // length, ends - starts, len(samples)
    chunks = -(-tokens // (2 * size))
    opens = np.searchsorted(rows, np.arange(n_rows + 1))  # the first document of each row
    total = np.concatenate([[0], np.cumsum(2 * chunks)])
    columns, widths = total[:-1] - total[opens[rows]], np.diff(total[opens])
    width = int(widths.max(initial=0))
    short = np.flatnonzero(widths < width)  # add a document without tokens to these rows
    numbers = np.concatenate([np.arange(len(rows)) - opens[rows], np.diff(opens)[short]])
    none = np.zeros_like(short)
    starts, tokens = np.concatenate([starts - rows * length, none]), np.concatenate([tokens, none])
    columns, rows = np.concatenate([columns, widths[short]]), np.concatenate([rows, short])
    chunks = np.concatenate([chunks, (width - widths[short]) // 2])
    spans = []
    for k, chunk in enumerate((rank, 2 * size - 1 - rank)):
        first, column = chunk * chunks, columns + k * chunks
        found = np.clip(tokens - first, 0, chunks)
        place = samples[rows], rows
        spans.append(Spans(*place, column, starts + first, found, numbers, first))
        spans.append(Spans(*place, column + found, np.full_like(rows, PADDING), chunks - found, numbers, first + found))
    every = Spans(*map(np.concatenate, zip(*spans, strict=True)))
    return Cut(every.chosen(every.lengths > 0), width, np.sort(rows * width + columns + 2 * chunks))
