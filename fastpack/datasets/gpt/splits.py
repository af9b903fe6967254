"""The shares of a token file that the train, valid and test splits take (as Megatron)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import TypeAlias

import numpy as np

SPLITS = ("train", "valid", "test")

Share: TypeAlias = tuple[float, float] | None  # of the documents of a file, from 0 to 1; None: no such split
Split: TypeAlias = str | Sequence[Share]


def split_shares(split: Split) -> list[Share]:
    """Return the share of each split: of "99,1,0" [(0, 0.99), (0.99, 1.0), None]; shares are returned as they are.

    Raises ValueError if they are not three shares, or weights of up to three splits.
    """
    if not isinstance(split, str):
        shares = [None if share is None else (float(share[0]), float(share[1])) for share in split]
        if len(shares) != len(SPLITS) or any(share and not 0 <= share[0] <= share[1] <= 1 for share in shares):
            raise ValueError(f"split={split!r}: three pairs of bounds from 0 to 1 are needed, or None")
        return shares
    try:
        weights = [float(number) for number in re.findall(r"[.0-9]+", split)]
    except ValueError:
        weights = []
    if not 1 <= len(weights) <= len(SPLITS) or sum(weights) <= 0:
        raise ValueError(f"split={split!r}: weights of train, valid and test are needed, such as '969,30,1'")
    bounds = [0.0]
    for weight in normalized(weights + [0.0] * (len(SPLITS) - len(weights))):
        bounds.append(bounds[-1] + weight)
    return [(low, high) if high > low else None for low, high in pairwise(bounds)]


def normalized(weights: Sequence[float]) -> list[float]:
    """Return weights of sum 1, rounded as NumPy's sum and division round."""
    array = np.array(weights, np.float64)
    shares: list[float] = (array / np.sum(array)).tolist()
    return shares


def documents_of(share: tuple[float, float], n_documents: int) -> range:
    """Return the numbers of the documents of a share."""
    return range(round(share[0] * float(n_documents)), round(share[1] * float(n_documents)))
