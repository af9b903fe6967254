"""Compare a random share of the documents with the reference library while a faster engine encodes them."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from fastpack.packing.utf8_texts import Utf8Texts
from fastpack.tokenizers.interface import FaultyText, Lengths, Tokenizer, Tokens
from fastpack.tokenizers.postprocess import FasterTokenizer

SEED = 20_480
TIME_SHARE = 0.08  # share of a process's time for comparisons, if no share of the documents is given
_FIRST_RATE = 5e-7  # seconds per character, until measured


def check_share(share: float | None) -> None:
    """Raise ValueError for a share of documents outside 0 to 1."""
    if share is not None and not 0.0 <= share <= 1.0:
        raise ValueError(f"audit: found {share}, expected a share of the documents from 0 to 1, or None")


def _n_characters(texts: Sequence[str]) -> int:
    return len(texts.data) if isinstance(texts, Utf8Texts) else sum(map(len, texts))  # bytes: no decoding


class Audit:
    """Compare the ids of an engine. share: of the documents; None: as many as take `TIME_SHARE` of the time."""

    def __init__(self, tokenizer: Tokenizer, eod: int | None, share: float | None) -> None:
        self._reference = tokenizer.own if isinstance(tokenizer, FasterTokenizer) else None
        self._eod, self._share = eod, share
        self._credit = self._seconds = 0.0
        self._characters = 0

    def compare(
        self, texts: Sequence[str], tokens: Tokens, lengths: Lengths, key: int, seconds: float
    ) -> tuple[int, int | None]:
        """Return how many documents of a batch were compared, and the number of the first that differs, or None.

        key: seeds the random choice of documents; seconds: time that the engine took.
        """
        if self._reference is None or not texts or self._share == 0.0:
            return 0, None
        share = self._affordable(_n_characters(texts), seconds) if self._share is None else self._share
        chosen = np.flatnonzero(np.random.default_rng([SEED, key]).random(len(texts)) < share)
        if not len(chosen):
            return 0, None
        started = time.perf_counter()
        some = [texts[i] for i in chosen.tolist()]
        first = self._first_difference(some, chosen, tokens, lengths)
        self._seconds += (spent := time.perf_counter() - started)
        self._credit -= spent
        self._characters += sum(map(len, some))
        return len(chosen), first

    def _affordable(self, n_characters: int, seconds: float) -> float:
        """Return the share of a batch that can be compared within the share of the time."""
        self._credit += seconds * TIME_SHARE / (1 - TIME_SHARE)
        rate = self._seconds / self._characters if self._characters else _FIRST_RATE
        return max(0.0, self._credit) / max(rate * n_characters, 1e-12)

    def _first_difference(self, texts: list[str], chosen: Lengths, tokens: Tokens, lengths: Lengths) -> int | None:
        assert self._reference is not None
        ends = np.cumsum(lengths)
        try:
            expected, expected_lengths = self._reference.encode_many(texts, self._eod)
        except FaultyText:
            if len(texts) == 1:
                return int(chosen[0])
            found = (self._first_difference([t], chosen[i : i + 1], tokens, lengths) for i, t in enumerate(texts))
            return next((number for number in found if number is not None), None)
        expected_ends = np.cumsum(expected_lengths)
        for i, number in enumerate(map(int, chosen)):
            actual = tokens[ends[number] - lengths[number] : ends[number]]
            if not np.array_equal(actual, expected[expected_ends[i] - expected_lengths[i] : expected_ends[i]]):
                return number
        return None
