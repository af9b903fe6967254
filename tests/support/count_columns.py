"""Columns of counts as a plan stores them."""

from __future__ import annotations

import numpy as np

from fastpack.plans.count_column import CountEncoder


def encode_counts(values: np.ndarray, dtype: str, size: int = 1 << 20) -> dict[str, np.ndarray]:
    """Encode `size` values at a time."""
    encoder = CountEncoder("c", dtype)
    for first in range(0, len(values), size):
        encoder.add(values[first : first + size])
    parts: dict[str, list[np.ndarray]] = {}
    for name, part in encoder.columns():
        parts.setdefault(name, []).append(part)
    assert encoder.n_items == len(values)
    return {name: np.concatenate(found) for name, found in parts.items()}
