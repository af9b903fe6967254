"""Brace expressions in lists of shards, such as `a_{00..11}.tar` or `{train,val}/x.tar`, expanded as by braceexpand.

A backslash escapes the next character. Integer ranges keep the width of zero-padded ends; letter ranges run from A to
Z and then from a to z. The package braceexpand cannot replace this module: it is not a core dependency but every split
file needs expansion, it has no mode that keeps backslashes (regular expressions of splits), and it has no limit, so
that a file of some bytes (`{0..999999999999}`) would exhaust memory.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import product

MAX_NAMES = 10_000_000  # that one expression may expand to
MAX_DEPTH = 100  # of nested braces

_INT_RANGE = re.compile(r"(-?\d+)\.\.(-?\d+)(?:\.\.-?(\d+))?$")
_LETTER_RANGE = re.compile(r"([A-Za-z])\.\.([A-Za-z])(?:\.\.-?(\d+))?$")
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_ESCAPED = re.compile(r"\\(.)")
_SPECIAL = re.compile(r"([\\{}])")
_NUMBER = re.compile(r"([0-9]+)")


def expand(expression: str, *, escape: bool = True) -> list[str]:
    """Return the expansions of a brace expression, in order; one without braces expands to itself.

    escape=False keeps backslashes, so that braces cannot be escaped. Raises ValueError for unbalanced braces, for more
    than 10 million texts, and for more than 100 nested braces.
    """
    if "{" not in expression and "}" not in expression and "\\" not in expression:
        return [expression]
    return _Expansion(expression, escape).texts(expression)


def expand_all(expressions: Iterable[str]) -> list[str]:
    """Return the expansions of all expressions, concatenated. Raises ValueError as `expand`."""
    names: list[str] = []
    for expression in expressions:
        names.extend(expand(expression))
        if len(names) > MAX_NAMES:
            raise ValueError(f"more than {MAX_NAMES} names")
    return names


def collapse(names: Sequence[str]) -> list[str]:
    """Return expressions whose concatenated expansions are exactly `names`, in order.

    Runs of names that differ in one number of the same width, which increases by 1, become one expression. Special
    characters are escaped. Raises ValueError for a name that cannot be written as an expression.
    """
    expressions: list[str] = []
    first = 0
    while first < len(names):
        end, expression = _run(names, first)
        if end - first == 1 or expand(expression) != list(names[first:end]):
            expressions.extend(map(_literal, names[first:end]))
        else:
            expressions.append(expression)
        first = end
    return expressions


class _Expansion:
    """The expansion of one expression. Its limit holds for every list of texts before the list is made."""

    def __init__(self, expression: str, escape: bool) -> None:
        self._expression, self._escape = expression, escape

    def texts(self, text: str) -> list[str]:
        """Expand a piece of the expression; each level removes one of two backslashes, as braceexpand does."""
        slots: list[list[str]] = []
        start = depth = 0
        for position, character in self._unescaped(text):
            if character == "{":
                if depth == 0 and position > start:
                    slots.append([text[start:position]])
                    start = position
                depth += 1
                if depth > MAX_DEPTH:
                    raise ValueError(f"braces nested too deeply: {text[:200]!r}")
            elif character == "}":
                depth -= 1
                if depth == 0:
                    slots.append(self._braced(text[start + 1 : position]))
                    self._check_count(math.prod(map(len, slots)))
                    start = position + 1
        if depth:
            raise ValueError(f"braces that do not match: {text[:200]!r}")
        slots.append([text[start:]])
        joined = map("".join, product(*slots))
        if not self._escape:
            return list(joined)
        return [_ESCAPED.sub(r"\1", text) if "\\" in text else text for text in joined]

    def _braced(self, inner: str) -> list[str]:
        """Expand `{inner}`: a range, a choice, or literal braces around an expression."""
        if numbers := _INT_RANGE.match(inner):
            return self._numbers(*numbers.groups())
        if letters := _LETTER_RANGE.match(inner):
            return _letters(*letters.groups())
        alternatives = self._split_at_commas(inner)
        if len(alternatives) == 1:
            return [f"{{{text}}}" for text in self.texts(inner)]
        texts: list[str] = []
        for alternative in alternatives:
            texts += self.texts(alternative)
            self._check_count(len(texts))
        return texts

    def _numbers(self, first: str, last: str, step: str | None) -> list[str]:
        padded = any(end.startswith(("0", "-0")) and end not in ("0", "-0") for end in (first, last))
        width = max(len(first), len(last)) if padded else 0
        start, end, by = int(first), int(last), int(step or 0) or 1
        self._check_count(abs(end - start) // by + 1)
        values = range(start, end + 1, by) if start < end else range(start, end - 1, -by)
        return [f"{value:0{width}d}" for value in values]

    def _split_at_commas(self, inner: str) -> list[str]:
        """Split at the commas outside nested braces."""
        alternatives: list[str] = []
        start = depth = 0
        for position, character in self._unescaped(inner):
            if character == "," and depth == 0:
                alternatives.append(inner[start:position])
                start = position + 1
            depth += {"{": 1, "}": -1, ",": 0}[character]
        return [*alternatives, inner[start:]]

    def _unescaped(self, text: str) -> Iterator[tuple[int, str]]:
        """Yield positions and characters of unescaped braces and commas."""
        position = 0
        while position < len(text):
            character = text[position]
            if self._escape and character == "\\":
                position += 1
            elif character in "{},":
                yield position, character
            position += 1

    def _check_count(self, count: int) -> None:
        if count > MAX_NAMES:
            raise ValueError(f"{self._expression[:200]!r} stands for more than {MAX_NAMES} names")


def _letters(first: str, last: str, step: str | None) -> list[str]:
    start, end, by = _LETTERS.index(first), _LETTERS.index(last), int(step or 0) or 1
    return list(_LETTERS[start : end + 1 : by] if start < end else _LETTERS[end : start + 1][::-1][::by])


def _run(names: Sequence[str], first: int) -> tuple[int, str]:
    """Return the end (exclusive) of the run that starts at `first`, and its expression."""
    pieces = _NUMBER.split(names[first])  # numbers at odd positions
    before, slot, end = pieces, 0, first + 1
    while end < len(names):
        after = _NUMBER.split(names[end])
        changed = [i for i, (old, new) in enumerate(zip(before, after, strict=False)) if old != new]
        if len(after) != len(before) or len(changed) != 1 or (slot and changed != [slot]) or not changed[0] % 2:
            break
        old, new = before[changed[0]], after[changed[0]]
        if len(old) != len(new) or int(new) != int(old) + 1:
            break
        slot, before, end = changed[0], after, end + 1
    texts = [_SPECIAL.sub(r"\\\1", piece) for piece in pieces]
    if slot:
        texts[slot] = f"{{{pieces[slot]}..{before[slot]}}}"
    return end, "".join(texts)


def _literal(name: str) -> str:
    """Return an expression that expands to `name` only."""
    for expression in (name, _SPECIAL.sub(r"\\\1", name)):
        try:
            if expand(expression) == [name]:
                return expression
        except ValueError:
            continue
    raise ValueError(f"no brace expression stands for the shard name {name!r}: rename it")
