"""What packing would give, from the distribution of document lengths."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fastpack.analysis.document_lengths import Lengths, LengthTable
from fastpack.plans.pack_bins import UNLIMITED, best_fit, first_fit
from fastpack.plans.plan_settings import MOST_TOKENS

_MOST_PIECES = 1 << 24  # packed exactly; of more documents a sample with the same distribution is packed
_MOST_IN_ORDER = 1 << 20  # packed by first_fit, whose time per document grows with the number of rows


@dataclass(frozen=True, slots=True)
class PackingEstimate:
    """Rows of one plan.

    Attributes
    ----------
    seq_len, algorithm, long
        As for `plan`.
    rows
        Number of rows. It depends on the order of documents for first_fit, which gets them in random order.
    padding_share
        The share of the tokens of all rows that is padding.
    documents_cut
        Number of documents that are divided between rows, or truncated; None if unknown.
    left_out
        Number of tokens in no row.
    """

    seq_len: int
    algorithm: str
    long: str
    rows: int
    padding_share: float
    documents_cut: int | None
    left_out: int


def estimate_bins(table: LengthTable, seq_len: int, algorithm: str, long: str) -> PackingEstimate:
    """Return what the algorithm best_fit or first_fit gives for documents of these lengths."""
    values, counts = table.values, table.counts
    is_long = values > seq_len
    n_long = int(counts[is_long].sum())
    if long == "truncate":
        values = np.minimum(values, seq_len)
    elif long == "drop":
        values, counts = values[~is_long], counts[~is_long]
    n_tokens = int(values @ counts)
    pieces = np.zeros(seq_len, np.int64)
    np.add.at(pieces, values % seq_len, counts)
    pieces[0] = 0
    count_bins = _best_fit_bins if algorithm == "best_fit" else _first_fit_bins
    rows = int((values // seq_len) @ counts) + count_bins(pieces)
    return _estimate(table, seq_len, algorithm, long, rows, n_tokens, n_long if long != "drop" else 0)


def estimate_stream(table: LengthTable, seq_len: int, n_cut: int | None) -> PackingEstimate:
    """Return what concatenating and cutting gives; n_cut: documents that are cut."""
    rows = -(-table.total // seq_len)
    return _estimate(table, seq_len, "none", "split", rows, table.total, n_cut)


def packing_rows(table: LengthTable, cut: Mapping[int, int | None]) -> Iterator[dict[str, Any]]:
    """Yield estimates at each sequence length in `cut`, the number of documents that the algorithm none cuts."""
    for seq_len, n_cut in cut.items():
        if seq_len > MOST_TOKENS:
            continue
        for long in ("split", "truncate", "drop"):
            yield asdict(estimate_bins(table, seq_len, "best_fit", long))
        yield asdict(estimate_bins(table, seq_len, "first_fit", "split"))
        yield asdict(estimate_stream(table, seq_len, n_cut))


def _estimate(
    table: LengthTable, seq_len: int, algorithm: str, long: str, rows: int, n_tokens: int, n_cut: int | None
) -> PackingEstimate:
    padding = 1 - n_tokens / (rows * seq_len) if rows else 0.0
    return PackingEstimate(seq_len, algorithm, long, rows, padding, n_cut, table.total - n_tokens)


def _best_fit_bins(pieces: Lengths) -> int:
    """Return the number of rows of pieces; pieces: how many there are of each length, int64 [seq_len]."""
    sample, scale = _sample(pieces, _MOST_PIECES)
    return math.ceil(len(best_fit(sample, UNLIMITED)[1]) * scale)


def _first_fit_bins(pieces: Lengths) -> int:
    """Return the number of rows as `_best_fit_bins`, for pieces in random order."""
    sample, scale = _sample(pieces, _MOST_IN_ORDER)
    lengths = np.repeat(np.arange(len(pieces), dtype=np.uint32), sample)
    lengths = lengths[np.argsort(_hashes(len(lengths)))]  # numpy.random takes 7 ms to import
    return math.ceil(len(first_fit(lengths, len(pieces), UNLIMITED)[2]) * scale)


def _hashes(n: int) -> npt.NDArray[np.uint64]:
    """Return n different numbers in random order: SplitMix64 (Steele, Lea and Flood, 2014) of 0 to n - 1."""
    state = np.arange(n, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


def _sample(pieces: Lengths, most: int) -> tuple[Lengths, float]:
    """Return at most `most` pieces of the same distribution, and by what to multiply their rows."""
    total = int(pieces.sum())
    if total <= most:
        return pieces, 1.0
    sample = np.diff(np.cumsum(pieces) * most // total, prepend=0)
    lengths = np.arange(len(pieces))
    return sample, int(pieces @ lengths) / int(sample @ lengths)
