"""Hashes of the documents in a stream of tokens: the specification of the `document_hashes` kernel, in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

STEP = 0x9E3779B97F4A7C15  # of the positions in a document, by the golden ratio
FIRST, SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB  # the factors of SplitMix64 (Steele, Lea, Flood: 2014)


def mix(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return SplitMix64's finalizer of uint64 values: a bijection whose every output bit depends on every input bit."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(FIRST)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(SECOND)
    return values ^ (values >> np.uint64(31))


def add_hashes(tokens: npt.NDArray[Any], rows: npt.NDArray[np.int64], sums: npt.NDArray[np.uint64]) -> None:
    """Add the hashes of the tokens of each document that are in this block of a stream to the document's sum.

    A token t at position p of its document adds mix(t + (p + 1) * STEP), modulo 2^64: the sum does not depend on how
    the stream is divided into blocks, or on the dtype. tokens: as in `scan_tokens`, [n]. rows: int64 [k, 2], start of
    each document, relative to the block and negative if it began earlier, and its length. sums: uint64 [k]. The parts
    of a document outside the block are left out. Raises ValueError if there are not as many sums as rows.
    """
    if len(rows) != len(sums):
        raise ValueError("expected a sum for each document")
    for number, (start, length) in enumerate(rows.tolist()):
        first, end = max(start, 0), min(start + length, len(tokens))
        if first < end:
            places = np.arange(first - start + 1, end - start + 1).astype(np.uint64)
            hashed = mix(tokens[first:end].astype(np.int64).astype(np.uint64) + places * np.uint64(STEP))
            sums[number : number + 1] += hashed.sum(dtype=np.uint64)  # of an array, which wraps without a warning
