"""Assign shards to splits: by ratio, by regular expressions, or by globs."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from itertools import accumulate, pairwise
from typing import Literal, TypeAlias

from fastpack.webdataset import braces

Compat: TypeAlias = Literal["energon"] | None
Splits: TypeAlias = dict[str, list[str]]
Ratio: TypeAlias = Sequence[float | str]

SPLIT_NAMES = ("train", "val", "test")
SHUFFLE_SEED = 42
_MAX_LISTED = 5  # shards that a warning names
_WILDCARDS = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}  # of a glob, as regular expressions


def split_by_ratio(shards: Sequence[str], ratio: Ratio, *, shuffle: bool = False, compat: Compat = None) -> Splits:
    """Split the shards into consecutive runs for train, val and test, as Energon does.

    The boundaries are Energon's floating-point ones: shards * (sum of the shares so far), rounded down. For some ratios
    (7,2,1) the shares add up to less than 1 and Energon loses the last shard. Here it goes to the last split whose
    share is not 0; with compat="energon" it is lost as well.

    ratio: three numbers that need not add up to 1. shuffle: shuffle the shards first, with Python's generator and
    seed 42. Raises ValueError for an invalid ratio.
    """
    shares = check_ratio(ratio)
    names = _ordered(shards, shuffle)
    ends = _energon_ends(len(names), shares)
    if compat != "energon" and ends[-1] < len(names):
        last = max(split for split, share in enumerate(shares) if share)
        ends[last:] = [len(names)] * (len(ends) - last)
    return {split: names[start:end] for split, (start, end) in zip(SPLIT_NAMES, pairwise((0, *ends)), strict=True)}


def lost_by_energon(shards: Sequence[str], ratio: Ratio, *, shuffle: bool = False) -> list[str]:
    """Return the shards that Energon's floating-point arithmetic leaves out of every split. Raises ValueError."""
    return _ordered(shards, shuffle)[_energon_ends(len(shards), check_ratio(ratio))[-1] :]


def _ordered(shards: Sequence[str], shuffle: bool) -> list[str]:
    names = list(shards)
    if shuffle:
        random.Random(SHUFFLE_SEED).shuffle(names)
    return names


def check_ratio(ratio: Ratio) -> list[Fraction]:
    """Return the ratio as exact fractions (0.1 is a tenth); ValueError unless three, none negative, one above 0."""
    try:
        shares = [Fraction(str(number).strip()) for number in ratio]
    except (ValueError, ZeroDivisionError):
        shares = []
    if len(shares) != len(SPLIT_NAMES) or min(shares) < 0 or sum(shares) == 0:
        raise ValueError(f"a split ratio is three numbers for train, val and test, such as 8,1,1; not {ratio!r}")
    return shares


def _energon_ends(n_shards: int, shares: Sequence[Fraction]) -> list[int]:
    """Return the end of each split, in exactly Energon's order of floating-point operations."""
    numbers = list(map(float, shares))
    total = sum(numbers)
    return [int(n_shards * share) for share in accumulate(number / total for number in numbers)]


def split_by_patterns(shards: Sequence[str], patterns: Sequence[tuple[str, str]], *, compat: Compat = None) -> Splits:
    r"""Select the shards of each split by regular expressions that match the start of the path.

    Braces are expanded first, so that `train/{00..07}` works. The unexpanded expression is tried as well, so that the
    quantifier of `\d{1,3}` works. With compat="energon" only the expanded expressions are used, and expansion removes
    their backslashes. Several patterns of one split are united (Energon: the last one counts). Raises ValueError.
    """
    compiled = [(split, _compiled(pattern, compat)) for split, pattern in patterns]
    return _select(shards, compiled, re.Pattern.match, unite=compat is None)


def _compiled(pattern: str, compat: Compat) -> list[re.Pattern[str]]:
    texts = braces.expand(pattern) if compat == "energon" else [pattern, *_expanded(pattern)]
    try:
        return [re.compile(text) for text in dict.fromkeys(texts)]
    except re.error as error:
        raise ValueError(f"{pattern!r} is not a regular expression: {error}") from None


def _expanded(pattern: str) -> list[str]:
    try:
        return braces.expand(pattern, escape=False)
    except ValueError:  # all braces belong to the regular expression
        return []


def split_by_globs(shards: Sequence[str], globs: Sequence[tuple[str, str]]) -> Splits:
    """Select the shards of each split by globs of the whole path. `*` and `?` stop at a slash, `**` does not.

    Braces are expanded; several globs of one split are united. Raises ValueError for unbalanced braces.
    """
    compiled = [(split, [re.compile(_translated(text)) for text in braces.expand(glob)]) for split, glob in globs]
    return _select(shards, compiled, re.Pattern.fullmatch, unite=True)


def _select(
    shards: Sequence[str],
    patterns: Sequence[tuple[str, list[re.Pattern[str]]]],
    matches: Callable[[re.Pattern[str], str], object],
    *,
    unite: bool,
) -> Splits:
    assigned: Splits = {}
    for split, expressions in patterns:
        found = {shard for shard in shards if any(matches(expression, shard) for expression in expressions)}
        if unite:
            found.update(assigned.get(split, ()))
        assigned[split] = [shard for shard in shards if shard in found]
    return assigned


def _translated(glob: str) -> str:
    pieces = re.split(r"(\*\*/|\*\*|\*|\?|\[!?[^\]]+\])", glob)
    return "(?s:" + "".join(map(_translated_piece, pieces)) + ")"


def _translated_piece(piece: str) -> str:
    if piece in _WILDCARDS:
        return _WILDCARDS[piece]
    if len(piece) > 2 and piece[0] == "[" and piece[-1] == "]":
        negated = piece[1] == "!"
        body = piece[2 if negated else 1 : -1].replace("\\", "\\\\").replace("^", "\\^").replace("[", "\\[")
        return f"[{'^' if negated else ''}{body}]"
    return re.escape(piece)


def describe_problems(
    shards: Sequence[str], assigned: Mapping[str, Sequence[str]], expected: Sequence[str]
) -> list[str]:
    """Return a sentence for each empty split of `expected`, and for shards in no split or in several."""
    problems = [
        f"the split {split} has no shards: loading it will fail" for split in expected if not assigned.get(split)
    ]
    splits_of: dict[str, list[str]] = {shard: [] for shard in shards}
    for split, names in assigned.items():
        for name in names:
            splits_of[name].append(split)
    if unassigned := [shard for shard, its_splits in splits_of.items() if not its_splits]:
        problems.append(f"{_shards(unassigned)} in no split: {listed(unassigned)}")
    if shared := [shard for shard, its_splits in splits_of.items() if len(its_splits) > 1]:
        problems.append(f"{_shards(shared)} in several splits: {listed(shared)}")
    return problems


def _shards(names: Sequence[str]) -> str:
    return "1 shard is" if len(names) == 1 else f"{len(names)} shards are"


def listed(names: Sequence[str]) -> str:
    """Return the first five names, and the number of the others."""
    more = f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
    return ", ".join(names[:_MAX_LISTED]) + more
