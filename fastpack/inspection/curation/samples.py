"""Sample documents of a corpus: the first, random, shortest, longest and most repetitive ones, and their scripts."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fastpack.escape import escape_text
from fastpack.inspection.curation.documents import Documents, Hashed
from fastpack.inspection.curation.known_tokenizer import piece_text
from fastpack.inspection.curation.scripts import script_shares
from fastpack.tokenizers.decode import TokenDecoder
from fastpack.tokenizers.interface import FaultyText

SAMPLED = 1000  # documents whose text is looked at
_READ = {"tokens": 1024, "bytes": 4096}  # of each of them
_SHOWN_TOKENS, _SHOWN_CHARACTERS = 160, 800  # of a document
_EACH = 2  # documents of a kind
_LONG_ENOUGH = 256  # bytes: shorter texts compress badly
_COPY_CHARACTERS = 160

Values = npt.NDArray[Any]


class Extremes:
    """The shortest documents that are not empty, and the longest ones: (length, number)."""

    def __init__(self) -> None:
        self.shortest: list[tuple[int, int]] = []
        self.longest: list[tuple[int, int]] = []

    def add(self, part: Hashed) -> None:
        """Add documents."""
        filled = np.flatnonzero(part.lengths > 0)
        if not len(filled):
            return
        lengths, k = part.lengths[filled], min(_EACH, len(filled))
        low = np.argsort(lengths, kind="stable")[:k] if k == len(filled) else np.argpartition(lengths, k)[:k]
        high = np.argpartition(lengths, -k)[-k:]
        for kept, chosen, sign in ((self.shortest, low, 1), (self.longest, high, -1)):
            kept += [(int(lengths[i]), int(filled[i]) + part.first) for i in chosen.tolist()]
            kept.sort(key=lambda pair: (sign * pair[0], pair[1]))
            del kept[_EACH:]


@dataclass(frozen=True, slots=True)
class Showing:
    """How values become text. unit: "tokens" or "bytes"; decoder: None shows tokens as ids."""

    unit: str
    decoder: TokenDecoder | None

    def text(self, values: Values) -> str | None:
        """Return the text; None for tokens without a tokenizer, or with ids that it does not have."""
        if self.unit == "bytes":
            return values.tobytes().decode(errors="ignore")  # a character may be cut at the end
        if self.decoder is None or not self.knows(values):
            return None
        return self.decoder.text(values.tolist())

    def knows(self, values: Values) -> bool:
        """Return whether the tokenizer has all the ids."""
        decoder = self.decoder
        return decoder is not None and all(decoder.piece(token) is not None for token in set(values.tolist()))

    def sample(self, values: Values) -> dict[str, Any]:
        """Return the beginning of a document: ids and pieces of tokens, or a text."""
        if self.unit == "bytes" and self.decoder is None:
            shown = self.text(values) or ""
            text = escape_text(shown[:_SHOWN_CHARACTERS])
            return {"text": text, "ids": None, "pieces": None, "is_whole": len(shown) <= _SHOWN_CHARACTERS}
        ids = values
        if self.unit == "bytes":
            encoded = self.encoded(values)
            if encoded is None:
                return Showing("bytes", None).sample(values)
            ids = encoded
        shown_ids = ids[:_SHOWN_TOKENS].tolist()
        pieces = [piece_text(self.decoder, token) for token in shown_ids] if self.knows(ids[:_SHOWN_TOKENS]) else None
        return {"text": None, "ids": shown_ids, "pieces": pieces, "is_whole": len(ids) <= _SHOWN_TOKENS}

    def encoded(self, values: Values) -> Values | None:
        """Return the ids of a text; None if it cannot be encoded."""
        assert self.decoder is not None
        try:
            return np.asarray(self.decoder.encode(self.text(values) or ""))
        except FaultyText:
            return None


def choose_samples(n_rows: int, extremes: Extremes, seed: int, n_samples: int) -> dict[str, list[int]]:
    """Return the numbers of documents by kind; "looked at": `SAMPLED` random ones, of which some are shown."""
    looked_at = np.random.default_rng(seed).permutation(n_rows)[:SAMPLED] if n_rows <= 1 << 20 else None
    if looked_at is None:
        looked_at = np.unique(np.random.default_rng(seed).integers(0, n_rows, SAMPLED))
        looked_at = np.random.default_rng(seed).permutation(looked_at)
    numbers = {"looked at": looked_at.tolist(), "first": list(range(min(_EACH, n_rows)))}
    numbers["random"] = numbers["looked at"][:n_samples]
    numbers["shortest"] = [number for _, number in extremes.shortest]
    numbers["longest"] = [number for _, number in extremes.longest]
    return numbers if n_samples else {"looked at": numbers["looked at"]}


def read_samples(
    documents: Documents, chosen: dict[str, list[int]], groups: Sequence[tuple[int, int, int]], showing: Showing
) -> tuple[dict[str, Any] | None, list[dict[str, Any]], list[dict[str, Any]]]:
    """Return facts about the text of the documents looked at, the samples to show, and the groups of duplicates."""
    shows = len(chosen) > 1
    wanted = {number for numbers in chosen.values() for number in numbers}
    wanted |= {first for first, _, _ in groups} if shows else set()
    found = documents.read(sorted(wanted), _READ[documents.unit])
    looked_at = {number: found[number] for number in sorted(chosen["looked at"]) if number in found}
    texts = {number: text for number, values in looked_at.items() if (text := showing.text(values)) is not None}
    kinds = {kind: numbers for kind, numbers in chosen.items() if kind != "looked at"}
    ratios = _ratios(found, showing) if shows else {}
    if ratios:
        kinds["most repetitive"] = sorted(ratios, key=lambda number: ratios[number])[:_EACH]
    samples = [
        {"why": kind, "number": number, "compressed": ratios.get(number), **showing.sample(found[number])}
        for kind, numbers in kinds.items()
        for number in numbers
        if number in found
    ]
    copies = []
    for first, count, length in groups:
        text = showing.text(found[first][:_SHOWN_TOKENS]) if shows and first in found else None
        shown = None if text is None else escape_text(text[:_COPY_CHARACTERS])
        copies.append({"first": first, "count": count, "length": length, "text": shown})
    return _text_facts(looked_at, texts, showing), samples, copies


def _ratios(found: dict[int, Values], showing: Showing) -> dict[int, float]:
    """Return how far documents can be compressed: to which share of their size."""
    ratios = {}
    for number, values in found.items():
        text = showing.text(values)
        data = values.tobytes() if text is None else text.encode(errors="replace")
        if len(data) >= _LONG_ENOUGH:
            ratios[number] = len(zlib.compress(data, 1)) / len(data)
    return ratios


def _text_facts(looked_at: dict[int, Values], texts: dict[int, str], showing: Showing) -> dict[str, Any] | None:
    """Return bytes per token and shares of scripts in the documents looked at; None without their text."""
    if not texts:
        return None
    n_bytes = sum(len(text.encode(errors="replace")) for text in texts.values())
    ratio = None
    if showing.decoder is not None:
        encoded = (showing.encoded(values) if showing.unit == "bytes" else values for values in looked_at.values())
        ratio = n_bytes / max(1, sum(len(ids) for ids in encoded if ids is not None))
    scripts = script_shares(texts.values())
    shares = [{"script": name, "share": share} for name, share in scripts.items()]
    return {"documents": len(texts), "bytes": n_bytes, "bytes_per_token": ratio, "scripts": shares}
