"""Facts about one file or dataset: what `inspect` returns, and the tables that `report` draws."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from fastpack.analysis.document_lengths import LengthTable, shares
from fastpack.analysis.token_ids import IdCounter


class File(NamedTuple):
    """One file of a dataset; `n_tokens` is None if the file contains no tokens."""

    name: str
    n_bytes: int
    n_tokens: int | None


@dataclass(slots=True)
class FileFacts:
    """Facts about a file or dataset.

    Attributes
    ----------
    facts
        What `inspect` returns.
    unit
        The unit of `lengths`: "tokens" or "bytes".
    lengths
        Lengths of the documents (lines, samples); None if unknown.
    files
        The files of the dataset.
    cut
        Number of documents cut by blocks of each sequence length; empty if unknown.
    ids
        Frequencies of token ids, if they were counted.
    """

    facts: dict[str, Any]
    unit: str
    lengths: LengthTable | None
    files: list[File]
    cut: Mapping[int, int] = field(default_factory=dict)
    ids: IdCounter | None = None


def length_facts(name: str, lengths: LengthTable | None) -> dict[str, Any]:
    """Return {name: summary, "histogram": {"of": name, "bins"}}, with None for both if the lengths are unknown."""
    if lengths is None:
        return {name: None, "histogram": None}
    return {name: lengths.summary(), "histogram": {"of": name, "bins": shares(lengths.bins())}}
