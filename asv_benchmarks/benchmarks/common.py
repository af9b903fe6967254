"""What every benchmark uses: ratios measured in one process, interleaved, and realistic seeded inputs.

A `track_*` function returns a speed ratio (its `unit` says against what, e.g. "x memcpy"), carries a `title` for the
README's table and a `bar`, the ratio to reach (a number, or a dict from the first parameter to a number). Where the bar
cannot be reached, or noise decides, a `gate` below it says, with its reason, what CI fails on.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

F = TypeVar("F", bound=Callable[..., Any])
CORPUS_SEED = 20_261_121


def ratio(
    ours: Callable[[], object],
    limit: Callable[[], object],
    rounds: int = 9,
    clock: Callable[[], float] = time.thread_time,
) -> float:
    """CPU time of `limit` over that of `ours`, each the best of `rounds` interleaved calls after one warm-up call."""
    best = {ours: float("inf"), limit: float("inf")}
    ours(), limit()
    for _ in range(rounds):
        for function in (ours, limit):
            started = clock()
            function()
            best[function] = min(best[function], clock() - started)
    return best[limit] / best[ours]


def row(
    title: str, unit: str, bar: float | dict[Any, float], *, gate: float | None = None, gated: bool = True
) -> Callable[[F], F]:
    """Marks a `track_*` function as a row of the README's table, and gives it the bar it is gated on.

    gated=False: for what takes half a minute; only the table has it, `--check` does not measure it.
    """

    def mark(function: F) -> F:
        function.title, function.unit, function.bar, function.gate = title, unit, bar, gate  # type: ignore[attr-defined]
        function.gated = gated  # type: ignore[attr-defined]
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
