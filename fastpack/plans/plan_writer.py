"""Writing packing plans."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastpack.plans.count_column import Integers, encode_counts
from fastpack.plans.pieces import encode_pieces
from fastpack.plans.plan_layout import PlanSections
from fastpack.plans.plan_sources import PlanSource, source_fields

_BLOCK = 1 << 20  # pieces that are encoded at once


class Bins(NamedTuple):
    """Rows of pieces that are shorter than a row.

    Attributes
    ----------
    documents, lengths
        Document number and tokens of each piece, row by row, integers [n].
    counts
        Number of pieces of each row, integers [n_rows].
    """

    documents: npt.NDArray[Any]
    lengths: npt.NDArray[Any]
    counts: npt.NDArray[Any]


def write_bins(
    sections: PlanSections, bins: Iterable[Bins], full: npt.NDArray[Any], n_documents: int, seq_length: int
) -> None:
    """Write rows of pieces; full: the number of rows that each document fills, integers [n_documents]."""
    counts = [np.empty(0, np.uint32)]
    sections.write("pieces", np.empty(0, np.uint8))
    for part in bins:
        counts.append(part.counts)
        for first in range(0, len(part.documents), _BLOCK):
            numbers: Integers = part.documents[first : first + _BLOCK].astype(np.int64)
            lengths: Integers = part.lengths[first : first + _BLOCK].astype(np.int64)
            sections.write("pieces", encode_pieces(numbers, lengths, n_documents, seq_length))
    sections.write_columns(encode_counts("documents", full, "|u1"))
    sections.write_columns(encode_counts("rows", np.concatenate(counts), "|u1"))


def write_stream(sections: PlanSections, used: npt.NDArray[Any], rows: npt.NDArray[Any] | None) -> None:
    """Write rows that divide the concatenation of documents.

    used: tokens that are used of each document; rows: tokens of each row, None if all but the last are full.
    """
    sections.write_columns(encode_counts("documents", used, "<u4"))
    if rows is not None:
        sections.write_columns(encode_counts("rows", rows, "<u4"))


def permutation_keys(seed: int | None) -> list[int] | None:
    """Return the keys of `kernels.feistel` for the order of the rows; None for the order in which they are stored."""
    if seed is None:
        return None
    return [int(key) for key in np.random.SeedSequence(seed).generate_state(4, np.uint64)]


def describe(counts: dict[str, Any], sources: Sequence[PlanSource]) -> dict[str, Any]:
    """Return the description of a plan: its settings and counts, and its sources, each once."""
    unique = list(dict.fromkeys(sources))
    numbers = {source: number for number, source in enumerate(unique)}
    passes = [numbers[source] for source in sources]
    keys = permutation_keys(counts["seed"])
    return {**counts, "keys": keys, "sources": [source_fields(source) for source in unique], "passes": passes}
