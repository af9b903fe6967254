"""Writing packing plans."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastpack.plans.count_column import Integers, encode_counts
from fastpack.plans.pieces import encode_pieces
from fastpack.plans.plan_layout import PlanSections
from fastpack.plans.plan_result import PlanResult
from fastpack.plans.plan_settings import PlanSettings
from fastpack.plans.plan_sources import PlanSource

_BLOCK = 1 << 20  # pieces that are encoded at once


class Bins(NamedTuple):
    """Rows of pieces that are shorter than a row.

    Attributes
    ----------
    first
        Number of the document that the numbers in `documents` are relative to.
    documents
        Documents of the pieces, row by row, uint32 [n].
    counts
        Number of pieces of each row, uint32 [n_rows].
    """

    first: int
    documents: npt.NDArray[np.uint32]
    counts: npt.NDArray[np.uint32]


def write_bins(
    sections: PlanSections, bins: Iterable[Bins], full: npt.NDArray[Any], ends: npt.NDArray[Any], seq_length: int
) -> tuple[int, int]:
    """Write rows of pieces; return the number of these rows, and of the pieces in them.

    full: the number of rows that each document fills, integers [n_documents]; ends: the tokens of its piece.
    """
    counts = [np.empty(0, np.uint32)]
    n_pieces = 0
    sections.write("pieces", np.empty(0, np.uint8))
    for part in bins:
        counts.append(part.counts)
        n_pieces += len(part.documents)
        for first in range(0, len(part.documents), _BLOCK):
            numbers: Integers = part.documents[first : first + _BLOCK].astype(np.int64) + part.first
            sections.write("pieces", encode_pieces(numbers, ends[numbers].astype(np.int64), len(ends), seq_length))
    sections.write_columns(encode_counts("documents", full, "|u1"))
    rows = np.concatenate(counts)
    sections.write_columns(encode_counts("rows", rows, "|u1"))
    return len(rows), n_pieces


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


def describe(result: PlanResult, settings: PlanSettings, sources: Sequence[PlanSource]) -> dict[str, Any]:
    """Return the description of a plan: its counts and settings, and its sources, each once."""
    counts = {name: value for name, value in asdict(result).items() if name.startswith(("n_", "seq_"))}
    unique = list(dict.fromkeys(sources))
    numbers = {source: number for number, source in enumerate(unique)}
    return {
        **counts,
        **asdict(settings),
        "keys": permutation_keys(settings.seed),
        "sources": [asdict(source) for source in unique],
        "passes": [numbers[source] for source in sources],
    }
