"""Facts about tokens of any format: EOS tokens, largest id, documents found by EOS, sample counts, warnings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fastpack.analysis.document_lengths import DocumentStatistics, Lengths
from fastpack.analysis.options import InspectOptions
from fastpack.analysis.token_ids import LARGEST_PLAUSIBLE_ID, IdCounter
from fastpack.errors import counted
from fastpack.io import counting
from fastpack.tokens.token_scan import InnerEosCounter, TokenScan
from fastpack.tokens.token_segment import TokenSegment

SAMPLED_ENDS = 1000  # last tokens from which the EOS token is guessed
USUAL_SHARE = 0.9  # of the documents end in the same token: then it is the EOS token
_MIN_FILES = 3  # files whose last tokens must agree


@dataclass(frozen=True, slots=True)
class Eos:
    """The EOS token: its id (None if unknown), and how it is known."""

    id: int | None = None
    known_from: str = ""


@dataclass(frozen=True, slots=True)
class InnerEos:
    """EOS tokens before the end of their document, and the number of documents that contain them."""

    n_tokens: int
    n_documents: int


@dataclass(frozen=True, slots=True)
class TokenSummary:
    """Statistics of all tokens of some files.

    Attributes
    ----------
    ids
        Frequencies of the ids; None if they were not counted.
    inner_eos
        EOS tokens inside documents; None if documents are found by their EOS tokens.
    """

    n_tokens: int
    n_eos: int
    largest: int
    has_negative: bool
    ids: IdCounter | None = None
    inner_eos: InnerEos | None = None


def summarize_tokens(
    segments: Sequence[TokenSegment],
    eos: int | None,
    options: InspectOptions,
    documents: DocumentStatistics | None,
    borders: tuple[Lengths, Lengths] | None = None,
) -> TokenSummary:
    """Read all tokens.

    `documents`, if given, receives the documents that EOS tokens end, and the tokens after the last EOS token of each
    segment. `borders`: if the documents of a single segment are known, the numbers of the first and last token of
    each, int64 [n].
    """
    inner = None if borders is None or eos is None else InnerEosCounter(*borders, eos)
    scan = TokenScan(None, eos)
    ids = IdCounter() if options.count_ids else None
    total, done = sum(segment.length for segment in segments), 0
    progress = counting(options.progress, None if borders is None else len(borders[0]), total)
    for segment in segments:
        document_start = 0
        n_eos_before = scan.n_eos
        for start, tokens in scan.scan(segment):
            if inner is not None:
                inner.add(start, tokens, scan.n_eos - n_eos_before)
                n_eos_before = scan.n_eos
            if ids is not None:
                ids.add(tokens)
            if documents is not None and eos is not None:
                document_start = _add_documents(tokens, start, eos, document_start, documents)
            if progress is not None:
                size = segment.dtype.itemsize
                progress((done + start + len(tokens)) * size, total * size)
        if documents is not None and document_start < segment.length:
            documents.add(np.array([document_start]), np.array([segment.length - document_start]))
        done += segment.length
    inner_eos = None if inner is None else InnerEos(inner.n_tokens, inner.n_documents)
    return TokenSummary(scan.n_tokens, scan.n_eos, scan.largest, scan.smallest < 0, ids, inner_eos)


def _add_documents(
    tokens: npt.NDArray[Any], start: int, eos: int, document_start: int, documents: DocumentStatistics
) -> int:
    """Add the documents that end in a block that begins at token `start`; return where the next document begins."""
    ends = np.flatnonzero(tokens == eos) + (start + 1)
    if not len(ends):
        return document_start
    starts = np.concatenate([[document_start], ends[:-1]])
    documents.add(starts, ends - starts)
    return int(ends[-1])


def guess_eos(last_tokens: npt.NDArray[Any], unit: str) -> Eos:
    """Guess EOS from the last tokens of documents or files: the token that nearly all of them end in."""
    if not len(last_tokens):
        return Eos()
    values, counts = np.unique(last_tokens, return_counts=True)
    most = int(counts.max())
    if most < USUAL_SHARE * len(last_tokens):
        return Eos()
    return Eos(int(values[counts.argmax()]), f"the last token of {most:,} of {len(last_tokens):,} {unit} looked at")


def guess_eos_of_files(segments: Sequence[TokenSegment]) -> Eos:
    """Guess EOS from the last tokens of several files."""
    sampled = segments[:: max(1, len(segments) // SAMPLED_ENDS)]
    last = np.array([segment.open()[-1] for segment in sampled if segment.plain and segment.length], np.int64)
    return guess_eos(last, "files") if len(last) >= _MIN_FILES else Eos()


def eos_facts(eos: Eos, summary: TokenSummary | None) -> dict[str, Any]:
    """Return {"eos": {"id", "from", "tokens", "share"}, "largest_id"}, with None for what is unknown."""
    facts: dict[str, Any] | None = None
    if eos.id is not None:
        n_eos = None if summary is None else summary.n_eos
        share = None if summary is None else round(summary.n_eos / max(1, summary.n_tokens), 6)
        facts = {"id": eos.id, "from": eos.known_from, "tokens": n_eos, "share": share}
    return {"eos": facts, "largest_id": None if summary is None else summary.largest}


def count_samples(file_tokens: Sequence[int], seq_len: int) -> dict[str, int]:
    """Count the samples of `seq_len` inputs and labels that other systems cut from files of these numbers of tokens.

    "modalities": from all tokens concatenated; the last label of a sample is the first input of the next.
    "kempnerforge": from each file separately, seq_len + 1 tokens per sample without overlap.
    """
    total = sum(file_tokens)
    return {
        "seq_len": seq_len,
        "modalities": max(0, total - 1) // seq_len,
        "kempnerforge": sum(n_tokens // (seq_len + 1) for n_tokens in file_tokens),
    }


def inner_eos_text(n_tokens: int, n_documents: int) -> str:
    """Describe EOS tokens inside documents: readers that find documents by EOS tokens find more of them."""
    documents = counted(n_documents, "document")
    return f"{counted(n_tokens, 'EOS token')} inside documents: {documents} would be read as more"


def token_warnings(summary: TokenSummary | None, vocab_size: int | None) -> list[str]:
    """Return warnings about implausible token ids."""
    if summary is None:
        return []
    warnings = []
    if summary.inner_eos is not None and summary.inner_eos.n_tokens:
        warnings.append(inner_eos_text(summary.inner_eos.n_tokens, summary.inner_eos.n_documents))
    if summary.has_negative:
        warnings.append("some token ids are negative")
    if vocab_size is not None and summary.largest >= vocab_size:
        warnings.append(f"the largest id is {summary.largest:,}, the vocabulary ends before {vocab_size:,}")
    elif summary.largest > LARGEST_PLAUSIBLE_ID:
        warnings.append(f"the largest id is {summary.largest:,}, beyond any vocabulary: is the token size right?")
    return warnings
