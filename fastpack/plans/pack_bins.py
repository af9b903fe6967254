"""Packing the ends of documents into rows, by shards of documents that are independent of one another."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from fastpack import kernels
from fastpack.io.threads import in_order
from fastpack.plans.balance import sort_rows
from fastpack.plans.plan_settings import PlanSettings
from fastpack.plans.plan_writer import Bins

SHARD_DOCUMENTS = 1 << 26  # packed together: 1.5 GB of working memory, and every shard adds some rows that are not full
UNLIMITED = 1 << 40
_Numbers = npt.NDArray[np.uint32]


def pack_ends(ends: _Numbers, settings: PlanSettings, num_threads: int) -> Iterator[Bins]:
    """Yield the rows of shards of documents, in order.

    ends: tokens of each document's piece, below `seq_length`, uint32 [n_documents]; 0 for none.
    """

    def pack(first: int) -> Bins:
        ascending = bool(first // SHARD_DOCUMENTS % 2)  # so that rows of similar cost meet where shards do
        return Bins(first, *pack_shard(ends[first : first + SHARD_DOCUMENTS], settings, ascending))

    shards = range(0, len(ends), SHARD_DOCUMENTS)
    yield from map(pack, shards) if num_threads == 1 else in_order(pack, shards, num_threads)


def pack_shard(ends: _Numbers, settings: PlanSettings, ascending: bool = False) -> tuple[_Numbers, _Numbers]:
    """Return the documents of all rows, one after the other, and their number in each row, uint32.

    ascending: the order of the rows of a balanced plan by cost.
    """
    order, bins, sizes = _fit(ends, settings)
    if settings.balance is not None:
        bins, sizes = sort_rows(bins, ends[order], sizes, settings.balance, ascending)
    starts = np.cumsum(sizes, dtype=np.int64) - sizes
    documents = np.empty(len(order), np.uint32)
    kernels.group_by_bin(order, bins, starts, documents)
    return documents, sizes


def _fit(ends: _Numbers, settings: PlanSettings) -> tuple[_Numbers, _Numbers, _Numbers]:
    """Return the documents in the order in which they were packed, their rows, and the number of pieces of each row."""
    fit = first_fit if settings.algorithm == "first_fit" else _best_fit
    most, multiple = settings.max_documents or UNLIMITED, settings.pad_to_multiple
    if multiple == 1:
        return fit(ends, settings.seq_length, most)
    capacity = settings.seq_length // multiple
    units = (ends // multiple + (ends % multiple > 0)).astype(np.uint32)
    alone = np.flatnonzero(units == capacity).astype(np.uint32)  # with their padding, they fill rows
    units[alone] = 0
    order, bins, sizes = fit(units, capacity, most)
    rows = np.arange(len(sizes), len(sizes) + len(alone), dtype=np.uint32)
    return np.append(order, alone), np.append(bins, rows), np.append(sizes, np.ones_like(rows))


def _best_fit(ends: _Numbers, seq_length: int, most: int) -> tuple[_Numbers, _Numbers, _Numbers]:
    counts, order = np.empty(seq_length, np.int64), np.empty(len(ends), np.uint32)
    order = order[: kernels.sort_lengths(ends, counts, order)]
    queues = np.empty(2 * seq_length, np.uint32)
    words = np.empty(seq_length // 64 + seq_length // 4096 + 2, np.uint64)
    bins, sizes, links = (np.empty(len(order), np.uint32) for _ in range(3))
    n_bins = kernels.best_fit(counts, most, queues, links, words, bins, sizes)
    return order, bins, sizes[:n_bins].copy()


def first_fit(ends: _Numbers, seq_length: int, most: int) -> tuple[_Numbers, _Numbers, _Numbers]:
    """Return documents in order, the row of each, and the number of pieces of each row; `most` pieces in a row."""
    order = np.flatnonzero(ends).astype(np.uint32)
    # Two rows in succession have more than `seq_length` tokens, or one of them has `most` documents.
    n_rows = min(len(order), 2 * int(ends.sum(dtype=np.int64)) // seq_length + 2 * len(order) // most + 2)
    sizes = np.empty(n_rows, np.uint32)
    tree = np.empty(2 << max(n_rows - 1, 0).bit_length(), np.uint32)
    bins = np.empty(len(order), np.uint32)
    n_bins = kernels.first_fit(ends, order, seq_length, most, tree, bins, sizes)
    return order, bins, sizes[:n_bins].copy()


def cut_stream(used: _Numbers, settings: PlanSettings) -> tuple[_Numbers | None, int, int]:
    """Cut concatenated documents into rows; return the tokens of each row, and the numbers of rows and of segments.

    used: tokens of each document, uint32 [n_documents]. The rows are None if all but the last are full.
    """
    ends = np.cumsum(used, dtype=np.int64)
    n_tokens, n_used = int(ends[-1]) if len(ends) else 0, int(np.count_nonzero(used))
    if settings.max_documents is None:
        n_rows = -(-n_tokens // settings.seq_length)
        n_at_row_ends = int(np.count_nonzero((ends % settings.seq_length == 0) & (used > 0) & (ends < n_tokens)))
        return None, n_rows, n_used + max(0, n_rows - 1 - n_at_row_ends)
    rows = np.empty(n_tokens // settings.seq_length + n_used // settings.max_documents + 1, np.uint32)
    n_rows = kernels.cut_stream(used, settings.seq_length, settings.max_documents, rows)
    rows = rows[:n_rows].copy()
    row_ends = np.cumsum(rows[:-1], dtype=np.int64)
    n_at_row_ends = len(np.intersect1d(row_ends, ends[used > 0], assume_unique=True))
    return rows, n_rows, n_used + max(0, n_rows - 1 - n_at_row_ends)
