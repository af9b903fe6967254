"""From weights to sample counts: KempnerForge's arithmetic, bit for bit, on every Python version."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence


def check_weights(weights: Sequence[float], where: str) -> None:
    """Raise ValueError for an empty list, a negative weight, or a sum of 0; `where` names the list in the message."""
    if not len(weights):
        raise ValueError(f"{where}: weights list is empty")
    if any(weight < 0 for weight in weights):
        raise ValueError(f"{where}: weights must be non-negative, got {weights}")
    if compensated_sum(weights) <= 0:
        raise ValueError(f"{where}: weights must sum to > 0 (at least one dataset must have weight > 0), got {weights}")


def probabilities(weights: Sequence[float], temperature: float) -> list[float]:
    """Return the weights as shares of 1; a temperature other than 1 applies a softmax to log(weight) / temperature.

    The softmax treats a weight of 0 as 1e-12, so its share grows with the temperature.
    """
    if temperature != 1.0:
        logs = [math.log(max(weight, 1e-12)) / temperature for weight in weights]
        highest = max(logs)
        weights = [math.exp(log - highest) for log in logs]
    total = compensated_sum(weights)
    return [weight / total for weight in weights]


def available(size: int, num_replicas: int, drop_last: bool) -> int:
    """Return the samples of a rank in a dataset of `size` samples."""
    return size // num_replicas if drop_last else -(-size // num_replicas)


def targets(shares: Sequence[float], total: int) -> list[int]:
    """Split `total` samples by shares: round half to even, then add or remove single samples until the sum is right.

    The largest share changes first; equal shares change in their order.
    """
    counts = [round(share * total) for share in shares]
    missing = total - sum(counts)
    by_share = sorted(range(len(shares)), key=lambda i: -shares[i])
    for k in range(abs(missing)):
        counts[by_share[k % len(shares)]] += 1 if missing > 0 else -1
    return counts


def compensated_sum(values: Iterable[float]) -> float:
    """Return `sum(values)` as CPython 3.12 computes it: Neumaier's summation from the first float on.

    The sum of ten times 0.1 is 1.0 here and 0.9999999999999999 in Python 3.11, which can change a target count.
    Integers among floats are added without compensation (Python 3.14 compensates them); after a number that is neither
    a float nor a 64-bit integer, so is everything.
    """
    total: float = 0
    lost = 0.0
    plain = False
    for value in values:
        whole = isinstance(value, int) and -(1 << 63) <= value < 1 << 63
        if plain or type(total) is int:
            total += value
            plain = plain or not (-(1 << 63) <= total < 1 << 63 if whole else type(total) is float)
        elif type(value) is float:
            following = total + value
            lost += (total - following) + value if abs(total) >= abs(value) else (value - following) + total
            total = following
        elif whole:
            total += float(value)
        else:
            total, lost, plain = _with(total, lost) + value, 0.0, True
    return _with(total, lost)


def _with(total: float, lost: float) -> float:
    return total + lost if lost and math.isfinite(lost) else total
