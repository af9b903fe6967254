"""Shared by all benchmarks: interleaved measurement of ratios in one process, and realistic seeded inputs.

A `track_*` function returns a speed ratio (its `unit` names the reference, for example "x memcpy") and has a `title`
for its row in docs/measured.md. ../thresholds.toml contains its target.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np

F = TypeVar("F", bound=Callable[..., Any])
CORPUS_SEED = 20_261_121
_enough = float("inf")


def ratio(
    ours: Callable[[], object],
    limit: Callable[[], object],
    rounds: int = 9,
    clock: Callable[[], float] = time.thread_time,
) -> float:
    """Return the CPU time of `limit` divided by that of `ours`, each the best of `rounds` interleaved calls."""
    best = {ours: float("inf"), limit: float("inf")}
    ours(), limit()
    began = clock()
    for done in range(1, rounds + 1):
        for function in (ours, limit):
            started = clock()
            function()
            best[function] = min(best[function], clock() - started)
        # Short rounds are cheap: end early only if they are long.
        needed = _enough if done >= 3 else 2 * _enough
        if clock() - began > 0.3 and best[limit] >= needed * best[ours]:
            break
    return best[limit] / best[ours]


@contextlib.contextmanager
def enough_at(value: float) -> Iterator[None]:
    """Let `ratio` end early once it has found `value` in three rounds, or twice that in one."""
    global _enough
    before, _enough = _enough, value
    try:
        yield
    finally:
        _enough = before


def row(title: str, unit: str) -> Callable[[F], F]:
    """Mark a `track_*` function as a row of the table."""

    def mark(function: F) -> F:
        function.title, function.unit, function.pretty_name = title, unit, title  # type: ignore[attr-defined]
        return function

    return mark


def document_lengths(n_tokens: int, rng: np.random.Generator) -> np.ndarray:
    """Return log-normal document lengths (mean about 800 tokens) that sum to at least `n_tokens`."""
    lengths = rng.lognormal(mean=6.18, sigma=1.0, size=max(16, n_tokens // 500))
    return np.maximum(2, lengths).astype(np.int64)


def token_stream(n_tokens: int, dtype: str, eos: int, rng: np.random.Generator) -> np.ndarray:
    """Return `n_tokens` tokens over the whole range of `dtype`; `eos` occurs only at the end of each document."""
    top = np.iinfo(dtype).max
    tokens = rng.integers(0, top, n_tokens, dtype=dtype, endpoint=True)
    tokens[tokens == eos] = eos + 1
    ends = np.cumsum(document_lengths(n_tokens, rng)) - 1
    tokens[ends[ends < n_tokens]] = eos
    return tokens
