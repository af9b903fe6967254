"""Which shards belong to which part: by ratio, by regular expressions or by patterns of paths."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Literal, TypeAlias

from fastpack.formats import braces

Compat: TypeAlias = Literal["energon"] | None
Parts: TypeAlias = dict[str, list[str]]
Ratio: TypeAlias = Sequence[float | str]

PART_NAMES = ("train", "val", "test")
SHUFFLE_SEED = 42
_NAMED = 5  # shards that a warning names


def split_by_ratio(shards: Sequence[str], ratio: Ratio, *, shuffle: bool = False, compat: Compat = None) -> Parts:
    """The parts train, val and test, one behind the other, in numbers of shards as near to `ratio` as can be.

    ratio: three numbers that need not add up to 1 (`check_ratio`). shuffle: in the order that Python's generator gives
    with seed 42. Every shard is in a part, and train has one if its ratio is not 0. compat="energon" counts in floating
    point as Energon does, which leaves the last shard out for some ratios. Raises ValueError.
    """
    wanted = check_ratio(ratio)
    names = list(shards)
    if shuffle:
        random.Random(SHUFFLE_SEED).shuffle(names)
    ends = _energon_ends(len(names), ratio) if compat == "energon" else _ends(len(names), wanted)
    return {part: names[start:end] for part, (start, end) in zip(PART_NAMES, pairwise((0, *ends)), strict=True)}


def check_ratio(ratio: Ratio) -> list[Fraction]:
    """The ratio as exact numbers (0.1 is a tenth); ValueError unless three, none negative, one above 0."""
    try:
        wanted = [Fraction(str(number).strip()) for number in ratio]
    except (ValueError, ZeroDivisionError):
        wanted = []
    if len(wanted) != len(PART_NAMES) or min(wanted) < 0 or sum(wanted) == 0:
        raise ValueError(f"a split ratio is three numbers for train, val and test, such as 8,1,1; not {ratio!r}")
    return wanted


def _ends(n_shards: int, ratio: Sequence[Fraction]) -> list[int]:
    """Largest remainders: each part has its share rounded down, what is left over goes where most was cut off."""
    shares = [n_shards * number / sum(ratio) for number in ratio]
    counts = [int(share) for share in shares]
    by_loss = sorted(range(len(shares)), key=lambda part: counts[part] - shares[part])
    for part in by_loss[: n_shards - sum(counts)]:
        counts[part] += 1
    if n_shards and ratio[0] and not counts[0]:
        counts[counts.index(max(counts))] -= 1
        counts[0] = 1
    return [sum(counts[: part + 1]) for part in range(len(counts))]


def _energon_ends(n_shards: int, ratio: Ratio) -> list[int]:
    numbers = [float(number) for number in check_ratio(ratio)]
    total, share, ends = sum(numbers), 0.0, []
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
