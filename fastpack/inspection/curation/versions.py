"""Two versions of a corpus: the hashes of their documents, and which of them were added, removed or changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fastpack.analysis.document_lengths import LengthCounter, LengthTable
from fastpack.analysis.token_ids import IdCounter
from fastpack.inspection.curation.documents import NO_TEXT, Documents, Hashes, Numbers, hash_blocks, hash_names
from fastpack.inspection.curation.matching import Flags, match, places
from fastpack.io import Progress


@dataclass(frozen=True, slots=True)
class Version:
    """One version: hashes and ids of its documents, uint64 [n]; numbers: of the rows with a text, None for all."""

    hashes: Hashes
    keys: Hashes | None
    numbers: Numbers | None
    lengths: LengthTable
    without_text: int
    ids: IdCounter | None
    repeated_keys: int = 0
    without_key: int = 0

    def number(self, i: int) -> int:
        """Return the number in the source of document `i`."""
        return int(i) if self.numbers is None else int(self.numbers[i])

    def duplicates(self) -> int:
        """Return the number of documents that are equal to an earlier one."""
        ordered = np.sort(self.hashes)
        return int(np.count_nonzero(ordered[1:] == ordered[:-1]))


class Changes(NamedTuple):
    """Numbers of documents, int64 [k], that are only in one version; changed: int64 [k, 2], of both.

    unchanged: number of documents in both; same_order: whether they are in the same order.
    """

    unchanged: int
    same_order: bool
    removed: Numbers
    added: Numbers
    changed: Numbers


def read_version(documents: Documents, has_keys: bool, progress: Progress | None) -> Version:
    """Read all documents of a version: 8 bytes each are kept, and 8 more with keys."""
    counter = LengthCounter()
    ids = IdCounter() if documents.unit == "tokens" else None
    hashes: list[Hashes] = []
    keys: list[Hashes] = []
    present: list[Flags] = []
    for part in hash_blocks(documents, progress):
        has_text = part.lengths != NO_TEXT
        present.append(has_text)
        hashes.append(part.hashes[has_text])
        counter.add(part.lengths[has_text])
        if has_keys:
            keys.append(hash_names(part.block.keys or ())[has_text])
        if ids is not None:
            ids.add(part.block.values)
    flags = np.concatenate([np.empty(0, bool), *present])
    content, without = _joined(hashes), int(np.count_nonzero(~flags))
    numbers = np.flatnonzero(flags) if without else None
    if not has_keys:
        return Version(content, None, numbers, counter.table(), without, ids)
    found = _joined(keys)
    named = found[found != 0]
    repeated = len(named) - len(np.unique(named))
    filled = np.where(found == 0, content, found)
    return Version(content, filled, numbers, counter.table(), without, ids, repeated, len(found) - len(named))


def _joined(parts: Sequence[Hashes]) -> Hashes:
    return np.concatenate([np.empty(0, np.uint64), *parts])


def changes_of(first: Version, second: Version) -> Changes:
    """Return what differs: by keys if the versions have them, else by content.

    By content, documents with equal content are unchanged wherever they are. Of the others, one that has the same
    place as one of the other version is changed: after the same unchanged document, and the same number of others.
    """
    by_key = first.keys is not None and second.keys is not None
    mine, others = (first.keys, second.keys) if by_key else (first.hashes, second.hashes)
    assert mine is not None
    assert others is not None
    matched, other_matched = match(mine, others)
    same_order = _same_order(mine, matched, others, other_matched)
    if by_key:
        pairs = _pairs(mine, matched, others, other_matched)
        equal = first.hashes[pairs[:, 0]] == second.hashes[pairs[:, 1]]
        removed, added = np.flatnonzero(~matched), np.flatnonzero(~other_matched)
        return Changes(int(np.count_nonzero(equal)), same_order, removed, added, pairs[~equal])
    removed, added = np.flatnonzero(~matched), np.flatnonzero(~other_matched)
    place, other_place = places(mine, ~matched), places(others, ~other_matched)
    replaced, replacing = match(place, other_place)
    changed = _pairs(place, replaced, other_place, replacing)
    pairs = np.stack([removed[changed[:, 0]], added[changed[:, 1]]], axis=1)
    return Changes(int(np.count_nonzero(matched)), same_order, removed[~replaced], added[~replacing], pairs)


def _same_order(mine: Hashes, matched: Flags, others: Hashes, other_matched: Flags) -> bool:
    """Return whether matched entries are in the same order, except for those that one version repeats more often."""
    first, second = mine[matched], others[other_matched]
    if np.array_equal(first, second):
        return True
    left = np.concatenate([mine[~matched], others[~other_matched]])
    return np.array_equal(first[~np.isin(first, left, kind="sort")], second[~np.isin(second, left, kind="sort")])


def _pairs(mine: Hashes, matched: Flags, others: Hashes, other_matched: Flags) -> Numbers:
    """Return the positions of matched entries in both, int64 [k, 2]; equal entries are paired in order."""
    sides = []
    for hashes, flags in ((mine, matched), (others, other_matched)):
        at = np.flatnonzero(flags)
        sides.append(at[np.argsort(hashes[at], kind="stable")])
    pairs = np.stack(sides, axis=1)
    return pairs[np.argsort(pairs[:, 0], kind="stable")]
