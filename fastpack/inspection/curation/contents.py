"""The contents of a corpus, as a curator looks at them: samples, duplicates, odd documents, shares, scripts."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fastpack.analysis.document_lengths import LengthCounter
from fastpack.inspection.curation.documents import NO_TEXT, Documents, Hashed, hash_blocks
from fastpack.inspection.curation.duplicates import HashSample, duplicate_facts, find_duplicates
from fastpack.inspection.curation.samples import Extremes, Showing, choose_samples, read_samples
from fastpack.inspection.curation.streamed import MISSING, OTHERS, EosCounter, GroupCounter, MarkCounter, Places
from fastpack.io import Progress
from fastpack.tokenizers.decode import TokenDecoder

VERY_LONG = {"tokens": 1 << 17, "bytes": 1 << 20}  # the longest sequence length of a report; 1 MiB of text
_MAX_FILES = 40
_PLACED_GROUPS = 6  # values of a field that are counted by place in the corpus
_DOCUMENTS, _AMOUNT, _COPIES, _GROUPS = 0, 1, 2, 3  # columns of Places


@dataclass(frozen=True, slots=True)
class Asked:
    """What a report asks for. eos: of tokens, if they end documents; n_samples: 0 shows no document."""

    eos: int | None = None
    group: str | None = None
    decoder: TokenDecoder | None = None
    seed: int = 0
    n_samples: int = 5


class _Stream:
    """Everything that one pass over the documents counts."""

    def __init__(self, documents: Documents, asked: Asked) -> None:
        self.lengths, self.hashes, self.extremes = LengthCounter(), HashSample(), Extremes()
        self.groups = None if asked.group is None else GroupCounter()
        self.places = Places(_GROUPS + (_PLACED_GROUPS + 1 if asked.group else 0))
        self.codes: dict[str, int] = {}
        marked = _controls(asked.decoder) if documents.unit == "tokens" else _control_bytes()
        self.controls = None if marked is None else MarkCounter(marked)
        self.eos = None if asked.eos is None or documents.unit != "tokens" else EosCounter(asked.eos)
        self.n_rows = self.without_text = 0

    def add(self, part: Hashed) -> None:
        present = part.lengths != NO_TEXT
        self.n_rows = part.first + len(part.lengths)
        self.without_text += int(np.count_nonzero(~present))
        self.lengths.add(part.lengths[present])
        self.hashes.add(part)
        self.extremes.add(part)
        for counter in (self.controls, self.eos):
            if counter is not None:
                counter.add(part.block)
        numbers = np.flatnonzero(present) + part.first
        amounts = part.lengths[present]
        self.places.add(numbers, np.stack([np.ones_like(amounts), amounts], axis=1))
        if self.groups is not None:
            self.groups.add(part)
            codes = np.array([self._code(value) for value in part.block.groups or ()], np.int64)[present]
            chosen = codes[:, None] == np.arange(_PLACED_GROUPS + 1)
            self.places.add(numbers, chosen * amounts[:, None], _GROUPS)

    def _code(self, value: str | None) -> int:
        name = MISSING if value is None else value
        if name not in self.codes and len(self.codes) >= _PLACED_GROUPS:
            return _PLACED_GROUPS
        return self.codes.setdefault(name, len(self.codes))


def contents_of(documents: Documents, asked: Asked, progress: Progress | None) -> tuple[dict[str, Any], HashSample]:
    """Return the facts of `fastpack.inspection.curation.contents_types.Contents`, and the hashes of the documents."""
    stream = _Stream(documents, asked)
    for part in hash_blocks(documents, progress):
        stream.add(part)
    table = stream.lengths.table()
    duplicates = find_duplicates(stream.hashes.kept())
    stream.places.add(duplicates.copies.numbers, np.ones((len(duplicates.copies.numbers), 1), np.int64), _COPIES)
    n_empty = int(table.counts[table.values == 0].sum())
    if stream.eos is not None and stream.eos.n_without == 0:
        n_empty += int(table.counts[table.values == 1].sum())  # only the EOS token
    limit = VERY_LONG[documents.unit]
    chosen = choose_samples(stream.n_rows, stream.extremes, asked.seed, asked.n_samples)
    showing = Showing(documents.unit, asked.decoder)
    text, samples, groups = read_samples(documents, chosen, duplicates.groups, showing)
    facts: dict[str, Any] = {
        "unit": documents.unit,
        "documents": table.documents,
        "amount": table.total,
        "without_text": stream.without_text,
        "empty": n_empty,
        "very_long": {"limit": limit, "documents": int(table.counts[table.values >= limit].sum())},
        "duplicates": duplicate_facts(duplicates, stream.hashes, table.documents, table.total) | {"groups": groups},
        "eos": _eos(stream.eos),
        "controls": _marks(stream.controls),
        "places": _places(stream),
        "groups": None if stream.groups is None or asked.group is None else stream.groups.facts(asked.group),
        "files": _files(documents),
        "text": text,
        "samples": samples,
    }
    return facts, stream.hashes


def _control_bytes() -> npt.NDArray[np.bool_]:
    """Return which bytes are control characters, other than tabs and line ends."""
    marked = np.zeros(256, bool)
    marked[:32] = True
    marked[[9, 10, 13]] = False
    marked[127] = True
    return marked


def _controls(decoder: TokenDecoder | None) -> npt.NDArray[np.bool_] | None:
    """Return which token ids contain control characters; the last entry is for ids outside the vocabulary."""
    if decoder is None:
        return None
    bad = frozenset(np.flatnonzero(_control_bytes()).tolist())
    pieces = (decoder.piece(token) or b"" for token in range(decoder.vocab_size))
    return np.array([*(not bad.isdisjoint(piece) for piece in pieces), False])


def _eos(counter: EosCounter | None) -> dict[str, int] | None:
    if counter is None:
        return None
    return {"inside": counter.n_inside, "documents": counter.n_documents, "documents_without": counter.n_without}


def _marks(counter: MarkCounter | None) -> dict[str, Any] | None:
    if counter is None:
        return None
    return {"count": counter.n_values, "documents": counter.n_documents, "first": counter.first}


def _places(stream: _Stream) -> dict[str, Any]:
    names = [*stream.codes, OTHERS]
    scale = 2**stream.hashes.halvings
    parts = []
    for sums in stream.places.parts():
        part: dict[str, Any] = {
            "documents": sums[_DOCUMENTS],
            "amount": sums[_AMOUNT],
            "duplicates": sums[_COPIES] * scale,
        }
        if stream.groups is not None:
            part["groups"] = [sums[_GROUPS + k] for k in (*range(len(stream.codes)), _PLACED_GROUPS)]
        parts.append(part)
    return {"width": stream.places.width, "groups": names if stream.groups is not None else [], "parts": parts}


def _files(documents: Documents) -> dict[str, Any]:
    found = documents.files()
    rows = [
        {"name": os.path.basename(path), "documents": n_documents, "amount": amount}
        for path, n_documents, amount in found[:_MAX_FILES]
    ]
    return {"count": len(found), "rows": rows}
