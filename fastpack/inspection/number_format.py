"""Formatting of numbers for people: short, with units, binary units for lengths."""

from __future__ import annotations

import math

UNKNOWN = "\u2013"  # a dash
_BINARY = ("", "k", "M", "G", "T", "P")  # of 1,024
_DECIMAL = ("", "\u00a0k", "\u00a0M", "\u00a0bn", "\u00a0tn")  # of 1,000


def whole(number: int | float | None) -> str:
    """Return all digits with thousands separators; a dash for None."""
    return UNKNOWN if number is None else f"{number:,}"


def short(number: float) -> str:
    """Return about three digits: 31.9 M."""
    if number < 10_000:
        return f"{number:,.0f}"
    power = min(int(math.log10(number) / 3 + 1e-9), len(_DECIMAL) - 1)
    value = number / 1000**power
    digits = f"{value:.{0 if value >= 100 else 1}f}"
    return f"{digits.removesuffix('.0')}{_DECIMAL[power]}"


def length(number: int) -> str:
    """Return a length in tokens for an axis: 2k is 2,048."""
    power = 0
    while number >= 1024 and number % 1024 == 0 and power < len(_BINARY) - 1:
        number //= 1024
        power += 1
    return f"{number:,}{_BINARY[power]}"


def n_bytes(number: float) -> str:
    """Return bytes in binary units: 60.9 MiB."""
    for unit in ("bytes", "KiB", "MiB", "GiB", "TiB"):
        if number < 1024:
            digits = f"{number:,.{0 if unit == 'bytes' or number >= 100 else 1}f}"
            return f"{digits.removesuffix('.0')}\u00a0{unit}"
        number /= 1024
    return f"{number:,.1f}\u00a0PiB"


def percent(share: float | None) -> str:
    """Return a share of 1 in percent; only exact zeros are 0, and only exact ones are 100."""
    if share is None:
        return UNKNOWN
    if 0 < share < 0.0001:
        return "<\u00a00.01\u00a0%"
    if 0.9999 < share < 1:
        return ">\u00a099.99\u00a0%"
    digits = 0 if share in (0, 1) else 1 if 0.1 <= share < 0.9995 else 2
    return f"{share * 100:.{digits}f}\u00a0%"


def nice_top(highest: float) -> tuple[float, int]:
    """Return the round end of an axis that includes `highest`, and its number of intervals."""
    if highest <= 0:
        return 1.0, 1
    scale = 10.0 ** math.floor(math.log10(highest))
    for top, parts in ((1, 4), (1.5, 3), (2, 4), (2.5, 5), (3, 3), (4, 4), (5, 5), (6, 3), (8, 4), (10, 5)):
        if highest <= top * scale * (1 + 1e-9):
            if scale == 1 and highest <= 3:  # small: whole numbers only
                return float(math.ceil(highest)), math.ceil(highest)
            return top * scale, parts
    return 10 * scale, 5
