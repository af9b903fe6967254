"""What every benchmark uses: ratios measured in one process, interleaved, and realistic seeded inputs.

A `track_*` function returns a speed ratio (its `unit` says against what, e.g. "x memcpy") and carries a `title` for its
row in docs/measured.md. What it has to reach stands in ../thresholds.toml.
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
    """CPU time of `limit` over that of `ours`, each the best of `rounds` interleaved calls after one warm-up call."""
    best = {ours: float("inf"), limit: float("inf")}
    ours(), limit()
    began = clock()
    for done in range(1, rounds + 1):
        for function in (ours, limit):
            started = clock()
            function()
            best[function] = min(best[function], clock() - started)
        # Many short rounds cost nothing: only where they are long does it pay to stop.
        needed = _enough if done >= 3 else 2 * _enough
        if clock() - began > 0.3 and best[limit] >= needed * best[ours]:
            break
    return best[limit] / best[ours]


@contextlib.contextmanager
def enough_at(value: float) -> Iterator[None]:
    """Inside, `ratio` ends before its last round once it has found `value` in three rounds, or twice that in one."""
    global _enough
    before, _enough = _enough, value
    try:
        yield
    finally:
        _enough = before


def row(title: str, unit: str) -> Callable[[F], F]:
    """Marks a `track_*` function as a row of the table."""

    def mark(function: F) -> F:
        function.title, function.unit, function.pretty_name = title, unit, title  # type: ignore[attr-defined]
        return function

    return mark


def document_lengths(n_tokens: int, rng: np.random.Generator) -> np.ndarray:
    """Log-normal document lengths in tokens, mean about 800, until they sum to at least `n_tokens`."""
    lengths = rng.lognormal(mean=6.18, sigma=1.0, size=max(16, n_tokens // 500))
    return np.maximum(2, lengths).astype(np.int64)


def token_stream(n_tokens: int, dtype: str, eos: int, rng: np.random.Generator) -> np.ndarray:
    """`n_tokens` tokens over the whole range of `dtype`, `eos` at the end of each document and nowhere else."""
    top = np.iinfo(dtype).max
    tokens = rng.integers(0, top, n_tokens, dtype=dtype, endpoint=True)
    tokens[tokens == eos] = eos + 1
    ends = np.cumsum(document_lengths(n_tokens, rng)) - 1
    tokens[ends[ends < n_tokens]] = eos
    return tokens
