"""Shares of the Unicode scripts in texts. The script of a letter is the first word of its name, as LATIN or HANGUL."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache

import numpy as np

_KINDS = {
    "N": "Digits",
    "P": "Punctuation and symbols",
    "S": "Punctuation and symbols",
    "Z": "White space",
    "C": "Control and unassigned",
}
_PREFIXES = ("FULLWIDTH ", "HALFWIDTH ", "MODIFIER LETTER ", "SMALL ")
_NAMES = {  # first words of names that are no scripts
    "CJK": "Han (Chinese, Japanese, Korean)",
    "IDEOGRAPHIC": "Han (Chinese, Japanese, Korean)",
    "FEMININE": "Latin",
    "MASCULINE": "Latin",
    "MICRO": "Greek",
    "COMBINING": "Marks",
    "VARIATION": "Marks",
    "KATAKANA-HIRAGANA": "Katakana",
    "MATHEMATICAL": "Mathematical letters",
}
BROKEN = "Replacement character (broken encoding)"


def script_shares(texts: Iterable[str]) -> dict[str, float]:
    """Return the share of all characters by script, and of digits, white space and others; the largest first."""
    counts: Counter[str] = Counter()
    for text in texts:
        codes, numbers = np.unique(np.frombuffer(text.encode("utf-32-le", "replace"), np.uint32), return_counts=True)
        for code, number in zip(codes.tolist(), numbers.tolist(), strict=True):
            counts[script_of(code)] += number
    total = counts.total()
    return {name: number / total for name, number in counts.most_common()}


@lru_cache(maxsize=1 << 16)
def script_of(code: int) -> str:
    """Return the script of a character, or what else it is."""
    letter = chr(code)
    if letter == "\ufffd":
        return BROKEN
    if letter in "\t\n\r":
        return "White space"
    kind = _KINDS.get(unicodedata.category(letter)[0])
    if kind is not None:
        return kind
    name = unicodedata.name(letter, "OTHER")
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    first = name.split(" ")[0].split("-")[0]
    return _NAMES.get(first, first.capitalize())
