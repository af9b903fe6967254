"""What a look at a dataset gives: plain facts to print, and the tables behind them that reports are drawn from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from fastpack.analysis.document_lengths import LengthTable, shares
from fastpack.tokens.token_facts import Eos, IdCounter, Read


class File(NamedTuple):
    """One file of a dataset: its name, its bytes, and its tokens (None where it holds none)."""

    name: str
    n_bytes: int
    n_tokens: int | None


@dataclass(slots=True)
class Measured:
    """facts: what `inspect` returns. lengths: of the documents (lines, samples), in `unit`; None where not known.

    cut: by sequence length, how many documents blocks of it cut; empty where not known. ids: where they were counted.
    """

    facts: dict[str, Any]
    unit: str
    lengths: LengthTable | None
    files: list[File]
    cut: Mapping[int, int] = field(default_factory=dict)
    ids: IdCounter | None = None


def length_facts(name: str, lengths: LengthTable | None) -> dict[str, Any]:
    """{name: the summary, "histogram": {"of": name, "bins"}}; None for both where lengths are not known."""
    if lengths is None:
        return {name: None, "histogram": None}
    return {name: lengths.summary(), "histogram": {"of": name, "bins": shares(lengths.bins())}}


def eos_facts(eos: Eos, read: Read | None) -> dict[str, Any]:
    """{"eos": {"id", "from", "tokens", "share"}, "largest_id"}: None for what is not known."""
    facts: dict[str, Any] | None = None
    if eos.id is not None:
        n_eos = None if read is None else read.n_eos
        share = None if read is None else round(read.n_eos / max(1, read.n_tokens), 6)
        facts = {"id": eos.id, "from": eos.known_from, "tokens": n_eos, "share": share}
    return {"eos": facts, "largest_id": None if read is None else read.largest}


def count_samples(file_tokens: Sequence[int], seq_len: int) -> dict[str, int]:
    """How many samples of `seq_len` inputs and labels the peers cut from files of so many tokens.

    modalities: of all tokens one behind the other, the last label being the next sample's first input. kempnerforge:
    of each file by itself, seq_len + 1 tokens for each, none of them used twice.
    """
    total = sum(file_tokens)
    return {
        "seq_len": seq_len,
        "modalities": max(0, total - 1) // seq_len,
        "kempnerforge": sum(n_tokens // (seq_len + 1) for n_tokens in file_tokens),
    }
