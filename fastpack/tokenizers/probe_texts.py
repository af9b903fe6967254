"""Probe texts: a faster engine has to give the same ids on them, in addition to the user's documents."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from itertools import product

LONG = 100_000  # bytes of a very long line
CHARACTERS_PER_TEXT = 16  # short texts: a difference is reported with its text, and an odd character affects few others

_WORDS = (
    "I'm you're he'll we've they'd it's don't I'M YOU'RE HE'LL WE'VE THEY'D IT'S DON'T o'clock ''s 's' 'S 't'T\u2019s",
    "'\u017f1 '\u212a1 x'\u017f x'S1 'LL1 'Ve1 'rE1 'M1 'D1 'T1",
    "1 12 123 1234 12345 123456 1234567 3.14 1,000,000 0x1F 1e-9 x1y2 \u0661\u0662\u0663\u0664 \u00bd \u2167 \u3007",
    "snake_case CamelCase kebab-case path/to/file.txt user@example.org https://example.org/?q=1&r=%20#x",
    "!!! ??? ... --- === ### *** \u2026 \u2014 \u00ab\u00bb \u201c\u201d \u3001\u3002 \uff01\uff1f $\u20ac\u00a3",
    "na\u00efve caf\u00e9 \u00c5ngstr\u00f6m stra\u00dfe \u0130stanbul \u01c5 \ufb01 \u0149 \u2126 \u212b \u0958",
    "nai\u0308ve cafe\u0301 A\u030angstro\u0308m \u1112\u1161\u11ab \ud55c q\u0323\u0307 q\u0307\u0323 \u1e9b\u0323",
    "\u4f60\u597d\uff0c\u4e16\u754c\u3002\u3053\u3093\u306b\u3061\u306f \uc548\ub155 \u0e2a\u0e27\u0e31\u0e2a\u0e14",
    "\u0928\u092e\u0938\u094d\u0924\u0947 \u0bb5\u0ba3\u0b95\u0bcd\u0b95\u0bae\u0bcd \u1019\u103c\u1014\u103a",
    "\u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627 \u202bRTL\u202c \u200fmark\u200e \u2066x\u2069",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f44d\U0001f3fd\U0001f1e9\U0001f1ea \u2764\ufe0f 1\ufe0f\u20e3",
    "\U0001f3f4\U000e0067\U000e0062\U000e007f \U0001d7d8\U0001d400 \U00020000\U0002a6d6 \U0001f600\U0001f600x",
    "a\u0300\u0301\u0302\u0303\u0304 Z\u0351\u036b\u0343 \u0301alone \u200b\u200c\u200d\u2060\ufeff soft\u00adhyphen",
    "\x00 a\x00b \x01\x02\x1b[0m \x7f \x80\x85\x9f \ufffd \ufffe \uffff \ue000 \U0010ffff \U000f0000 \u0378",
    "for i in range(10):\n    if x:\n\treturn {'a': [1, 2]}\n\n\n# end\n",
)
_SPACES = (" ", "  ", "   ", "\t", "\t ", " \t", "\n", "\n\n", " \n", "\n ", "\r\n", "\r", "\n\r", "\r\n\r\n", " \r\n ")
_ODD_SPACES = ("\v", "\f", "\x1c", "\x1f", "\x85", "\xa0", " \xa0 ", "\u1680", "\u180e", "\u2003", "\u2028", "\u2029")
_BLANKS = (*_SPACES, *_ODD_SPACES, "\u202f", "\u3000")
_LONG = ("a", "\n", "0123456789", "\u4e2d\uff0c", "word_")


def probe_texts(literals: Sequence[str] = ()) -> list[str]:
    """Return about 1,500 texts, half a megabyte: characters of all planes, all kinds of white space, very long lines.

    literals: the added tokens of the tokenizer, including its end-of-document token.
    """
    texts = ["", *_WORDS, *_BLANKS]
    texts += [a + b + c for a, b, c in product(("x", "1", "!", ""), _BLANKS, ("x", "1", "!", "'s", ""))]
    texts += ["x".join(a + b for b in _BLANKS) for a in _BLANKS]
    texts += ["".join(a + c + b for c in group) for group in _landmarks() for a, b in (("", "'s1"), ("!", "ab"))]
    texts += [piece * (LONG // len(piece.encode())) for piece in _LONG]
    texts += [" " * LONG + "x"]
    return texts + [text for literal in literals for text in _around(literal)]


def _landmarks() -> Iterator[list[str]]:
    """Yield the first and last character of each run of one general category, about 5,800, in small groups.

    Unassigned characters have their own groups: a text with one of them may be passed to the slow engine.
    """
    characters = [chr(code) for code in (*range(0xD800), *range(0xE000, 0x34000), *range(0xDFFF0, 0xE0200))]
    categories = list(map(unicodedata.category, characters))
    edges: tuple[list[str], list[str]] = [], []
    for i in range(len(characters) - 1):
        if categories[i] != categories[i + 1]:
            for j in (i, i + 1):
                edges[categories[j] == "Cn"].append(characters[j])
    for group in edges:
        unique = list(dict.fromkeys(group))
        for i in range(0, len(unique), CHARACTERS_PER_TEXT):
            yield unique[i : i + CHARACTERS_PER_TEXT]


def _around(literal: str) -> list[str]:
    """Return texts with a literal alone, inside text, between white space, repeated, shortened, and in another case."""
    sides = ("", " ", "x", "1", "!", " \n", "\t", "\u3000", "e\u0301", "<")
    texts = [a + literal + b for a, b in product(sides, sides)]
    texts += [literal * 2, literal * 3 + "x", f"{literal} {literal}", literal[:-1], literal[1:], literal[:-1] + literal]
    return [*texts, literal.lower(), literal.upper(), f"a {literal.lower()} b {literal.upper()} c"]
