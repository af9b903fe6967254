"""How weights become samples: KempnerForge's arithmetic, bit for bit, on every Python version."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence


def check_weights(weights: Sequence[float], where: str) -> None:
    """Raise ValueError for an empty list, a negative weight, or a sum that is not above 0; `where` names the list."""
    if not len(weights):
        raise ValueError(f"{where}: weights must not be empty, got {weights}")
    if any(weight < 0 for weight in weights):
        raise ValueError(f"{where}: weights must be non-negative, got {weights}")
    if compensated_sum(weights) <= 0:
        raise ValueError(f"{where}: weights must sum to > 0 (at least one dataset must have weight > 0), got {weights}")


def probabilities(weights: Sequence[float], temperature: float) -> list[float]:
    """Weights as shares of 1; a temperature other than 1 is a softmax of log(weight) / temperature.

    There a weight of 0 counts as 1e-12, so that it does not vanish: the higher the temperature, the more comes back.
    """
    if temperature != 1.0:
        logs = [math.log(max(weight, 1e-12)) / temperature for weight in weights]
        highest = max(logs)
        weights = [math.exp(log - highest) for log in logs]
    total = compensated_sum(weights)
    return [weight / total for weight in weights]


def available(size: int, num_replicas: int, drop_last: bool) -> int:
    """A rank's samples in a dataset of `size`."""
    return size // num_replicas if drop_last else -(-size // num_replicas)


def targets(shares: Sequence[float], total: int) -> list[int]:
    """`total` samples split by shares: rounded half to even, what is then missing or over shared out one by one.

    The largest share is first to gain or lose one, equal shares in their order.
    """
    counts = [round(share * total) for share in shares]
    missing = total - sum(counts)
    by_share = sorted(range(len(shares)), key=lambda i: -shares[i])
    for k in range(abs(missing)):
        counts[by_share[k % len(shares)]] += 1 if missing > 0 else -1
    return counts


def compensated_sum(values: Iterable[float]) -> float:
    """`sum(values)` as CPython 3.12 computes it: Neumaier's summation once a float came by.

    Ten times 0.1 is 1.0 here and 0.9999999999999999 in Python 3.11, and a target count can hang on that. Python 3.14
    compensates integers among floats too, 3.12 does not.
    """
    total: float = 0
    lost = 0.0
    for value in values:
        if type(total) is not float or (not isinstance(value, int) and type(value) is not float):
            total, lost = total + lost + value if lost else total + value, 0.0
        elif isinstance(value, int):
            total += float(value)
        else:
            following = total + value
            lost += (total - following) + value if abs(total) >= abs(value) else (value - following) + total
            total = following
    return total + lost if lost and math.isfinite(lost) else total
