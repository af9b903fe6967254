"""A histogram for a terminal: one row per bin, with bars in eighths of a character, or `#` in ASCII."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fastpack.analysis.document_lengths import Bin

_EIGHTHS = " ▏▎▍▌▋▊▉"


def draw_histogram(bins: Sequence[Bin], width: int, *, plain: bool) -> Iterator[str]:
    """Yield a line per bin, about `width` characters: lengths, number and share of documents, and a bar.

    plain: in ASCII characters.
    """
    if not bins:
        return
    whole, highest = sum(one.documents for one in bins), max(one.documents for one in bins)
    ranges = [_lengths(one) for one in bins]
    numbers = [f"{one.documents:,}" for one in bins]
    first, second = max(map(len, ranges)), max(map(len, numbers))
    room = max(8, width - first - second - 12)
    for one, lengths, number in zip(bins, ranges, numbers, strict=True):
        share = f"{one.documents / whole:.1%}"
        bar = _bar(one.documents * room / highest, plain)
        yield f"{lengths:>{first}}  {number:>{second}}  {share:>6}  {bar}".rstrip()


def _lengths(one: Bin) -> str:
    return f"{one.start:,}" if one.end == one.start + 1 else f"{one.start:,} to {one.end - 1:,}"


def _bar(length: float, plain: bool) -> str:
    """Return a bar of `length` characters; any positive length is visible."""
    if length <= 0:
        return ""
    if plain:
        return "#" * max(1, round(length))
    eighths = max(1, round(length * 8))
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()
