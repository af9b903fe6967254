"""Which documents of two versions of a corpus are the same, by their hashes; duplicates are matched one to one."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fastpack.inspection.curation.documents import Hashes, Numbers
from fastpack.kernels.document_hashes_np import STEP, mix

Flags = npt.NDArray[np.bool_]

_CHUNK = 1 << 20  # hashes handled at once


def match(first: Hashes, second: Hashes) -> tuple[Flags, Flags]:
    """Return which entries of each have an entry in the other, bool [n] each; of repeated ones, the first as many."""
    orders = [np.argsort(one, kind="stable") for one in (first, second)]
    ordered = [one[order] for one, order in zip((first, second), orders, strict=True)]
    return _matched(ordered[0], orders[0], ordered[1]), _matched(ordered[1], orders[1], ordered[0])


def _matched(ordered: Hashes, order: Numbers, other: Hashes) -> Flags:
    matched = np.zeros(len(ordered), bool)
    for start in range(0, len(ordered), _CHUNK):
        some = ordered[start : start + _CHUNK]
        rank = np.arange(start, start + len(some)) - np.searchsorted(ordered, some)
        n_other = np.searchsorted(other, some, "right") - np.searchsorted(other, some)
        matched[order[start : start + _CHUNK]] = rank < n_other
    return matched


def places(hashes: Hashes, unmatched: Flags) -> Hashes:
    """Return the places of the unmatched documents, uint64 [k].

    A place is the hash of the last matched document before it, and the number of unmatched documents since.
    """
    numbers = np.flatnonzero(unmatched)
    at = np.arange(len(hashes))
    before = np.maximum.accumulate(np.where(unmatched, -1, at))[numbers] if len(numbers) else numbers
    anchors = np.where(before >= 0, hashes[before], np.uint64(0))
    return mix(anchors + (numbers - before).astype(np.uint64) * np.uint64(STEP))
