"""Unicode drift: characters that libraries with Unicode tables of different versions handle differently.

Measured over every code point: gigatoken 0.10 knows the letters of Unicode 17, tokenizers 0.23 splits by Unicode 16 and
normalizes with tables that lack all combining marks since about Unicode 11.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

# Letters and numbers of Unicode 17, for a Python that knows them; in an older Python they are unassigned.
_UNICODE_17 = (
    (0x88F, 0x88F), (0xC5C, 0xC5C), (0xCDC, 0xCDC), (0x1ACF, 0x1AEB), (0xA7CE, 0xA7CF), (0xA7D2, 0xA7D2),
    (0xA7D4, 0xA7D4), (0xA7F1, 0xA7F1), (0x10940, 0x10959), (0x10EC5, 0x10EFB), (0x11DB0, 0x11DDB), (0x11DE0, 0x11DE9),
    (0x16EA0, 0x16EB8), (0x16EBB, 0x16ED3), (0x16FF2, 0x16FF6), (0x187F8, 0x187FF), (0x18D09, 0x18D1E),
    (0x18D80, 0x18DF2), (0x1E6C0, 0x1E6FF), (0x2B73A, 0x2B73F), (0x2CEA2, 0x2CEAD), (0x323B0, 0x33479),
)  # fmt: skip
# Blocks to which scripts are still added; elsewhere no letter, number or mark has been added for many years.
_GROWING = (range(0x7C0, 0x2000), range(0xA000, 0xAC00), range(0x10000, 0x34000))
_UNKNOWN = 2
_RANGES = (*_GROWING, *(range(first, last + 1) for first, last in _UNICODE_17))
_LEADS = {chr(code).encode()[:1] for codes in _RANGES for code in codes[::64]}  # 64 characters share a first byte


class UnicodeDrift:
    """Finds texts with such characters; normalizes: the tokenizer normalizes, so that combining marks count, too."""

    def __init__(self, normalizes: bool) -> None:
        self._normalizes = normalizes

    @cached_property
    def _table(self) -> npt.NDArray[np.uint8]:
        return _new_table()

    def find(self, texts: Sequence[str]) -> list[int]:
        """Return the positions of texts with such characters. ASCII costs nothing, other text 1 ns per character."""
        if "".join(texts).isascii():  # takes a twentieth of the time of checking each text
            return []
        return [i for i, text in enumerate(texts) if not text.isascii() and self._contains_one(text)]

    def is_possible(self, data: npt.NDArray[np.uint8]) -> bool:
        """Return whether UTF-8 bytes contain the first byte of such a character; False for ASCII."""
        text = data.tobytes()
        return not text.isascii() and any(lead in text for lead in _LEADS)

    def _contains_one(self, text: str) -> bool:
        # The engine refuses lone surrogates itself.
        data = text.encode("utf-8", "surrogatepass")
        if not any(lead in data for lead in _LEADS):
            return False
        codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
        if not self._table.take(codes).any():  # twice as fast as indexing
            return False
        for code in np.unique(codes[self._table[codes] == _UNKNOWN]).tolist():
            self._table[code] = _drifts(chr(code), self._normalizes)
        return bool(self._table.take(codes).any())


def _new_table() -> npt.NDArray[np.uint8]:
    """Return uint8[0x110000] by code point: 0, it does not drift; 1, it drifts; _UNKNOWN, `_drifts` tells."""
    table = np.zeros(0x110000, np.uint8)
    for codes in _GROWING:
        table[codes.start : codes.stop] = _UNKNOWN  # filled as texts need it: all of them take 30 ms
    for first, last in _UNICODE_17:
        table[first : last + 1] = 1
    return table


def _drifts(character: str, normalizes: bool) -> bool:
    """Return whether a character is unassigned; if `normalizes`, also whether it is a recent mark or composition."""
    if unicodedata.category(character) == "Cn":
        return True
    if not normalizes or not (unicodedata.combining(character) or unicodedata.decomposition(character)):
        return False
    return unicodedata.ucd_3_2_0.category(character) == "Cn"  # the only older version in Python
