"""Brace expressions in lists of shards, such as `a_{00..11}.tar` or `{train,val}/x.tar`, expanded as by braceexpand.

A backslash escapes the next character. Integer ranges keep the width of zero-padded ends; letter ranges run from A to
Z and then from a to z. Unlike braceexpand, the number of texts is known before any is made, so that a file of some
bytes (`{0..999999999999}`) cannot exhaust memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TypeAlias

MAX_NAMES = 10_000_000  # that one expression may expand to
MAX_DEPTH = 100  # of nested braces

_INT_RANGE = re.compile(r"(-?\d+)\.\.(-?\d+)(?:\.\.-?(\d+))?$")
_LETTER_RANGE = re.compile(r"([A-Za-z])\.\.([A-Za-z])(?:\.\.-?(\d+))?$")
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_ESCAPED = re.compile(r"\\(.)")
_SPECIAL = re.compile(r"([\\{}])")
_NUMBER = re.compile(r"([0-9]+)")


@dataclass(frozen=True, slots=True)
class _Numbers:
    """The texts of a range of integers, zero-padded to `width`."""

    values: range
    width: int

    def count(self) -> int:
        return len(self.values)

    def texts(self) -> Iterator[str]:
        return (f"{value:0{self.width}d}" for value in self.values)


@dataclass(frozen=True, slots=True)
class _Texts:
    """Literal texts."""

    values: Sequence[str]

    def count(self) -> int:
        return len(self.values)

    def texts(self) -> Iterator[str]:
        return iter(self.values)


@dataclass(frozen=True, slots=True)
class _Choice:
    """One of several expressions."""

    patterns: Sequence[_Pattern]

    def count(self) -> int:
        return sum(pattern.count() for pattern in self.patterns)

    def texts(self) -> Iterator[str]:
        for pattern in self.patterns:
            yield from pattern.texts()


@dataclass(frozen=True, slots=True)
class _Pattern:
    """Concatenated slots; each level removes one of two backslashes, as braceexpand does."""

    slots: Sequence[_Slot]
    escape: bool

    def count(self) -> int:
        total = 1
        for slot in self.slots:
            total *= slot.count()
        return total

    def texts(self) -> Iterator[str]:
        joined = map("".join, product(*(slot.texts() for slot in self.slots)))
        if not self.escape:
            return joined
        return (_ESCAPED.sub(r"\1", text) if "\\" in text else text for text in joined)


_Slot: TypeAlias = _Numbers | _Texts | _Choice


def expand(expression: str, *, escape: bool = True) -> Iterator[str]:
    """Return the expansions of a brace expression, in order; one without braces expands to itself.

    escape=False keeps backslashes, so that braces cannot be escaped. Raises ValueError for unbalanced braces, for more
    than 10 million texts, and for more than 100 nested braces.
    """
    if "{" not in expression and "}" not in expression and "\\" not in expression:
        return iter((expression,))
    pattern = _parse(expression, escape)
    try:
        too_many = pattern.count() > MAX_NAMES
    except OverflowError:  # of a range's length
        too_many = True
    if too_many:
        raise ValueError(f"{expression[:200]!r} stands for more than {MAX_NAMES} names")
    return pattern.texts()


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
        if end - first == 1 or list(expand(expression)) != list(names[first:end]):
            expressions.extend(map(_literal, names[first:end]))
        else:
            expressions.append(expression)
        first = end
    return expressions


def _parse(text: str, escape: bool) -> _Pattern:
    slots: list[_Slot] = []
    start = depth = 0
    for position, character in _unescaped(text, escape):
        if character == "{":
            if depth == 0 and position > start:
                slots.append(_Texts((text[start:position],)))
                start = position
            depth += 1
            if depth > MAX_DEPTH:
                raise ValueError(f"braces nested too deeply: {text[:200]!r}")
        elif character == "}":
            depth -= 1
            if depth == 0:
                slots.extend(_braced(text[start + 1 : position], escape))
                start = position + 1
    if depth:
        raise ValueError(f"braces that do not match: {text[:200]!r}")
    if start < len(text):
        slots.append(_Texts((text[start:],)))
    return _Pattern(slots, escape)


def _unescaped(text: str, escape: bool) -> Iterator[tuple[int, str]]:
    """Yield positions and characters of unescaped braces and commas."""
    position = 0
    while position < len(text):
        character = text[position]
        if escape and character == "\\":
            position += 1
        elif character in "{},":
            yield position, character
        position += 1


def _braced(inner: str, escape: bool) -> list[_Slot]:
    """Parse `{inner}`: a range, a choice, or literal braces around an expression."""
    if numbers := _INT_RANGE.match(inner):
        return [_numbers(*numbers.groups())]
    if letters := _LETTER_RANGE.match(inner):
        return [_letters(*letters.groups())]
    alternatives = _split_at_commas(inner, escape)
    if alternatives is None:
        return [_Texts(("{",)), _Choice((_parse(inner, escape),)), _Texts(("}",))]
    return [_Choice([_parse(alternative, escape) for alternative in alternatives])]


def _split_at_commas(inner: str, escape: bool) -> list[str] | None:
    alternatives: list[str] = []
    start = depth = 0
    for position, character in _unescaped(inner, escape):
        if character == "," and depth == 0:
            alternatives.append(inner[start:position])
            start = position + 1
        depth += {"{": 1, "}": -1, ",": 0}[character]
    if depth or not alternatives:
        return None
    return [*alternatives, inner[start:]]


def _numbers(first: str, last: str, step: str | None) -> _Numbers:
    padded = any(end.startswith(("0", "-0")) and end not in ("0", "-0") for end in (first, last))
    width = max(len(first), len(last)) if padded else 0
    start, end, by = int(first), int(last), int(step or 0) or 1
    return _Numbers(range(start, end + 1, by) if start < end else range(start, end - 1, -by), width)


def _letters(first: str, last: str, step: str | None) -> _Texts:
    start, end, by = _LETTERS.index(first), _LETTERS.index(last), int(step or 0) or 1
    return _Texts(_LETTERS[start : end + 1 : by] if start < end else _LETTERS[end : start + 1][::-1][::by])


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
            if list(expand(expression)) == [name]:
                return expression
        except ValueError:
            continue
    raise ValueError(f"no brace expression stands for the shard name {name!r}: rename it")
