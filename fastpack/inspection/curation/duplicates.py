"""Exact duplicates among the documents of a corpus, by their hashes, in bounded memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fastpack.inspection.curation.documents import Hashed, Hashes, Numbers

MAX_HASHES = 1 << 25  # with numbers and lengths: 768 MiB; beyond, only documents with small hashes are kept
_GROUPS = 5  # the largest ones that are listed


class Kept(NamedTuple):
    """Hashes, numbers and lengths of documents, [n] each."""

    hashes: Hashes
    numbers: Numbers
    lengths: Numbers

    def where(self, chosen: Any) -> Kept:
        """Return some of them, by a mask or by positions."""
        return Kept(self.hashes[chosen], self.numbers[chosen], self.lengths[chosen])


class HashSample:
    """The documents with content whose hash is below a limit: all, until there are more than `MAX_HASHES`.

    Copies have the same hash, so the share of duplicates among the documents kept is that of the corpus, up to chance.
    share: of the documents that are kept.
    """

    def __init__(self) -> None:
        self._parts: list[Kept] = []
        self._n = 0
        self.halvings = 0

    @property
    def share(self) -> float:
        """The share of all documents that is kept."""
        return 0.5**self.halvings

    def add(self, part: Hashed) -> None:
        """Add documents."""
        numbers = np.arange(part.first, part.first + len(part.hashes))
        some = Kept(part.hashes, numbers, part.lengths).where(part.lengths > 0)
        if self.halvings:
            some = some.where(some.hashes < self._limit())
        self._parts.append(some)
        self._n += len(some.hashes)
        while self._n > MAX_HASHES:
            self.halve()

    def halve(self) -> None:
        """Keep only the documents with the smaller half of the hashes."""
        self.halvings += 1
        kept = self.kept()
        self._parts = [kept.where(kept.hashes < self._limit())]
        self._n = len(self._parts[0].hashes)

    def _limit(self) -> np.uint64:
        return np.uint64((1 << 64 - self.halvings) - 1)

    def kept(self) -> Kept:
        """Return the documents that are kept, in order."""
        if len(self._parts) != 1:
            empty = Kept(np.empty(0, np.uint64), np.empty(0, np.int64), np.empty(0, np.int64))
            self._parts = [Kept(*map(np.concatenate, zip(empty, *self._parts, strict=True)))]
        return self._parts[0]


class Duplicates(NamedTuple):
    """copies: documents that are equal to an earlier one, in order; groups: (number of the first, copies, length)."""

    copies: Kept
    groups: list[tuple[int, int, int]]


def find_duplicates(kept: Kept) -> Duplicates:
    """Return the documents that are equal to an earlier one, and the largest groups of equal documents."""
    order = np.argsort(kept.hashes, kind="stable")
    ordered = kept.hashes[order]
    repeats = np.zeros(len(ordered), bool)
    repeats[1:] = ordered[1:] == ordered[:-1]
    starts = np.flatnonzero(~repeats)
    counts = np.diff(np.append(starts, len(ordered)))
    largest = np.argsort(-counts, kind="stable")[:_GROUPS]
    groups = []
    for group in largest[counts[largest] > 1].tolist():
        first = order[starts[group]]
        groups.append((int(kept.numbers[first]), int(counts[group]), int(kept.lengths[first])))
    return Duplicates(kept.where(np.sort(order[repeats])), groups)


def duplicate_facts(found: Duplicates, sample: HashSample, documents: int, total: int) -> dict[str, Any]:
    """Return the number and share of duplicates, of documents and of their tokens or bytes; estimated from a sample."""
    scale = 2**sample.halvings
    n_documents, amount = len(found.copies.hashes) * scale, int(found.copies.lengths.sum()) * scale
    return {
        "documents": n_documents,
        "share": min(1.0, n_documents / max(1, documents)),
        "amount": amount,
        "amount_share": min(1.0, amount / max(1, total)),
        "sampled": sample.share,
    }


def across(samples: Sequence[HashSample]) -> tuple[int, int]:
    """Return the number of documents of several corpora that are equal to one of an earlier corpus, and of all."""
    halvings = max(sample.halvings for sample in samples)
    for sample in samples:
        while sample.halvings < halvings:
            sample.halve()
    seen = np.empty(0, np.uint64)
    repeated = n_documents = 0
    for sample in samples:
        hashes = sample.kept().hashes
        at = np.searchsorted(seen, hashes)
        inside = at < len(seen)
        repeated += int(np.count_nonzero(seen[at[inside]] == hashes[inside]))
        n_documents += len(hashes)
        seen = np.union1d(seen, hashes)
    return repeated << halvings, n_documents << halvings
