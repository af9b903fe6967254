"""Packing the ends of documents into rows, by shards of documents that are independent of one another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from fastpack import kernels
from fastpack.io.threads import in_order
from fastpack.plans.balance import sort_rows
from fastpack.plans.pieces import encode_pieces

if TYPE_CHECKING:
    from fastpack.plans.plan_settings import PlanSettings
    from fastpack.plans.source_lengths import PieceLengths

UNLIMITED = 1 << 40
_BLOCK = 1 << 18  # pieces that are encoded at once
_Numbers = npt.NDArray[np.uint32]


class PackedShard(NamedTuple):
    """Rows of pieces that are shorter than a row.

    Attributes
    ----------
    full
        Number of other rows that each document of the shard fills, uint32 [n_documents].
    pieces
        The pieces, row by row, as `encode_pieces` returns them.
    counts
        Number of pieces of each row, uint32 [n_rows].
    costs
        Cost of each row of a balanced plan, float64 [n_rows].
    n_even
        Number of rows, from the first on, that make up groups of even cost; all rows of other plans.
    n_skipped
        Number of rows of one document that could have been in the first group, but are in no group of even cost.
    """

    full: _Numbers
    pieces: npt.NDArray[np.uint8]
    counts: _Numbers
    costs: npt.NDArray[np.float64]
    n_even: int
    n_skipped: int


def pack_shards(
    shards: Iterable[PieceLengths], settings: PlanSettings, n_documents: int, n_full: int, num_threads: int
) -> Iterator[PackedShard]:
    """Yield the rows of shards of documents, in order.

    n_documents: of all shards. n_full: number of rows that one document fills, for a balanced plan.
    """

    def pack(shard: PieceLengths) -> PackedShard:
        return _pack_shard(shard, settings, n_documents, 0 if shard.first else n_full)

    yield from map(pack, shards) if num_threads == 1 else in_order(pack, shards, num_threads)


def _pack_shard(shard: PieceLengths, settings: PlanSettings, n_documents: int, n_full: int) -> PackedShard:
    order, bins, sizes = fit(shard.ends, settings)
    costs, n_even, n_skipped = np.empty(0), len(sizes), 0
    if (balance := settings.balance) is not None:
        before = np.full(n_full % balance.data_parallel, balance.of_one(settings.seq_length))
        bins, sizes, costs, n_even, n_skipped = sort_rows(bins, shard.ends[order], sizes, balance, before)
    starts = np.cumsum(sizes, dtype=np.int64) - sizes
    documents = np.empty(len(order), np.uint32)
    kernels.group_by_bin(order, bins, starts, documents)
    encoded = [np.empty(0, np.uint8)]
    for first in range(0, len(documents), _BLOCK):
        places = documents[first : first + _BLOCK]
        numbers, lengths = places.astype(np.int64) + shard.first, shard.ends[places].astype(np.int64)
        encoded.append(encode_pieces(numbers, lengths, n_documents, settings.seq_length))
    return PackedShard(shard.full, np.concatenate(encoded), sizes, costs, n_even, n_skipped)


def fit(ends: _Numbers, settings: PlanSettings) -> tuple[_Numbers, _Numbers, _Numbers]:
    """Return documents in the order of packing, the row of each, and the number of pieces of each row, uint32.

    ends: tokens of each document's piece, below `seq_length`, uint32 [n_documents]; 0 for none.
    """
    algorithm = first_fit if settings.algorithm == "first_fit" else _best_fit
    most, multiple = settings.max_documents or UNLIMITED, settings.pad_to_multiple
    if multiple == 1:
        return algorithm(ends, settings.seq_length, most)
    capacity = settings.seq_length // multiple
    units = (ends // multiple + (ends % multiple > 0)).astype(np.uint32)
    alone = np.flatnonzero(units == capacity).astype(np.uint32)  # with their padding, they fill rows
    units[alone] = 0
    order, bins, sizes = algorithm(units, capacity, most)
    rows = np.arange(len(sizes), len(sizes) + len(alone), dtype=np.uint32)
    return np.append(order, alone), np.append(bins, rows), np.append(sizes, np.ones_like(rows))


def _best_fit(ends: _Numbers, seq_length: int, most: int) -> tuple[_Numbers, _Numbers, _Numbers]:
    counts, order = np.empty(seq_length, np.int64), np.empty(len(ends), np.uint32)
    order = order[: kernels.sort_lengths(ends, counts, order)]
    return order, *best_fit(counts, most)


def best_fit(counts: npt.NDArray[np.int64], most: int) -> tuple[_Numbers, _Numbers]:
    """Return the row of each piece, from the longest one on, and the number of pieces of each row; `most` in a row.

    counts: number of pieces of each length, int64 [seq_length], 0 of length 0.
    """
    n_pieces, capacity = int(counts.sum()), len(counts)
    queues, words = np.empty(2 * capacity, np.uint32), np.empty(capacity // 64 + capacity // 4096 + 2, np.uint64)
    bins, sizes, links = (np.empty(n_pieces, np.uint32) for _ in range(3))
    n_bins = kernels.best_fit(counts, most, queues, links, words, bins, sizes)
    return bins, sizes[:n_bins].copy()


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
