"""Which shards belong to which part: by ratio, by regular expressions or by patterns of paths."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Literal, TypeAlias

from fastpack.webdataset import braces

Compat: TypeAlias = Literal["energon"] | None
Parts: TypeAlias = dict[str, list[str]]
Ratio: TypeAlias = Sequence[float | str]

PART_NAMES = ("train", "val", "test")
SHUFFLE_SEED = 42
_NAMED = 5  # shards that a warning names


def split_by_ratio(shards: Sequence[str], ratio: Ratio, *, shuffle: bool = False, compat: Compat = None) -> Parts:
    """Split the shards into consecutive runs for train, val and test, as Energon does.

    The boundaries are Energon's floating-point ones: shards * (sum of the shares so far), rounded down. For some ratios
    (7,2,1) those shares add up to less than 1 and Energon leaves the last shard out. Here it goes to the last split
    whose ratio is not 0; compat="energon" leaves it out too.

    ratio: three numbers that need not add up to 1 (`check_ratio`). shuffle: shuffle the shards first, with Python's
    generator and seed 42. Raises ValueError.
    """
    check_ratio(ratio)
    names = _ordered(shards, shuffle)
    ends = _energon_ends(len(names), ratio)
    if compat != "energon" and ends[-1] < len(names):
        last = max(part for part, number in enumerate(check_ratio(ratio)) if number)
        ends[last:] = [len(names)] * (len(ends) - last)
    return {part: names[start:end] for part, (start, end) in zip(PART_NAMES, pairwise((0, *ends)), strict=True)}


def lost_by_energon(shards: Sequence[str], ratio: Ratio, *, shuffle: bool = False) -> list[str]:
    """Shards that Energon's floating-point arithmetic leaves out of every split. Raises ValueError."""
    return _ordered(shards, shuffle)[_energon_ends(len(shards), ratio)[-1] :]


def _ordered(shards: Sequence[str], shuffle: bool) -> list[str]:
    names = list(shards)
    if shuffle:
        random.Random(SHUFFLE_SEED).shuffle(names)
    return names


def check_ratio(ratio: Ratio) -> list[Fraction]:
    """The ratio as exact numbers (0.1 is a tenth); ValueError unless three, none negative, one above 0."""
    try:
        wanted = [Fraction(str(number).strip()) for number in ratio]
    except (ValueError, ZeroDivisionError):
        wanted = []
    if len(wanted) != len(PART_NAMES) or min(wanted) < 0 or sum(wanted) == 0:
        raise ValueError(f"a split ratio is three numbers for train, val and test, such as 8,1,1; not {ratio!r}")
    return wanted


def _energon_ends(n_shards: int, ratio: Ratio) -> list[int]:
    """Where each split ends, in exactly Energon's order of floating-point operations."""
    numbers = [float(number) for number in check_ratio(ratio)]
    total, share, ends = sum(numbers), 0.0, list[int]()
    for number in numbers:
        share += number / total
        ends.append(int(n_shards * share))
    return ends


def split_by_patterns(shards: Sequence[str], patterns: Sequence[tuple[str, str]], *, compat: Compat = None) -> Parts:
    """Parts by name: the shards whose path begins with what the part's regular expression matches.

    Braces are expanded first, so that `train/{00..07}` works; an expression is also taken as it stands, so that the
    quantifier of `\\d{1,3}` works. compat="energon" does only the first, and backslashes are lost in it. Several
    patterns of one name add up (Energon: the last counts). Raises ValueError for a bad expression.
    """
    parts: Parts = {}
    for part, pattern in patterns:
        expressions = _compiled(pattern, compat)
        found = {shard for shard in shards if any(expression.match(shard) for expression in expressions)}
        if compat is None:
            found.update(parts.get(part, ()))
        parts[part] = [shard for shard in shards if shard in found]
    return parts


def _compiled(pattern: str, compat: Compat) -> list[re.Pattern[str]]:
    texts = list(braces.expand(pattern)) if compat == "energon" else [pattern, *_expanded(pattern)]
    try:
        return [re.compile(text) for text in dict.fromkeys(texts)]
    except re.error as error:
        raise ValueError(f"{pattern!r} is no regular expression: {error}") from None


def _expanded(pattern: str) -> list[str]:
    try:
        return list(braces.expand(pattern, escape=False))
    except ValueError:  # braces of a regular expression only
        return []


def split_by_globs(shards: Sequence[str], globs: Sequence[tuple[str, str]]) -> Parts:
    """Parts by name: the shards whose whole path a pattern matches. `*` and `?` stop at a slash, `**` does not.

    Braces are expanded; several patterns of one name add up. Raises ValueError for braces that do not match.
    """
    parts: Parts = {}
    for part, glob in globs:
        expressions = [re.compile(_translated(text)) for text in braces.expand(glob)]
        found = {shard for shard in shards if any(expression.fullmatch(shard) for expression in expressions)}
        found.update(parts.get(part, ()))
        parts[part] = [shard for shard in shards if shard in found]
    return parts


def _translated(glob: str) -> str:
    pieces = re.split(r"(\*\*/|\*\*|\*|\?|\[!?[^\]]+\])", glob)
    plain = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return "(?s:" + "".join(_translated_piece(piece, plain) for piece in pieces) + ")"


def _translated_piece(piece: str, plain: Mapping[str, str]) -> str:
    if piece in plain:
        return plain[piece]
    if len(piece) > 2 and piece[0] == "[" and piece[-1] == "]":
        negated = piece[1] == "!"
        body = piece[2 if negated else 1 : -1].replace("\\", "\\\\").replace("^", "\\^").replace("[", "\\[")
        return f"[{'^' if negated else ''}{body}]"
    return re.escape(piece)


def describe_problems(shards: Sequence[str], parts: Mapping[str, Sequence[str]], wanted: Sequence[str]) -> list[str]:
    """A sentence for each part of `wanted` that is empty, and for shards that are in no part or in several."""
    problems = [f"no shard is in the part {part}: a loader of it will fail" for part in wanted if not parts.get(part)]
    homes: dict[str, list[str]] = {shard: [] for shard in shards}
    for part, names in parts.items():
        for name in names:
            homes[name].append(part)
    if homeless := [shard for shard, its_parts in homes.items() if not its_parts]:
        problems.append(f"{_shards(homeless)} in no part: {named(homeless)}")
    if shared := [shard for shard, its_parts in homes.items() if len(its_parts) > 1]:
        problems.append(f"{_shards(shared)} in several parts: {named(shared)}")
    return problems


def _shards(names: Sequence[str]) -> str:
    return "1 shard is" if len(names) == 1 else f"{len(names)} shards are"


def named(names: Sequence[str]) -> str:
    """The first five of these names, and how many more there are."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
