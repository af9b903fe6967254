"""Splits by ratio (as Energon, but without lost shards), by regular expression and by glob."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fastpack.webdataset.preparation.splits import (
    check_ratio,
    describe_problems,
    lost_by_energon,
    split_by_globs,
    split_by_patterns,
    split_by_ratio,
)

SHARDS = [f"train/part_{i:02d}.tar" for i in range(12)] + ["val/a.tar", "val/b.tar"]


def names(n: int) -> list[str]:
    return [f"{i:06d}.tar" for i in range(n)]


def counts(n: int, ratio: Sequence[float], **options: object) -> list[int]:
    return [len(split) for split in split_by_ratio(names(n), ratio, **options).values()]  # type: ignore[arg-type]


def energon_counts(n: int, ratio: Sequence[float]) -> list[int]:
    """Energon's arithmetic: normalise, accumulate, multiply by the number of shards, round down."""
    total = sum(ratio)
    shares = [number / total for number in ratio]
    ends, reached = [], 0.0
    for share in shares:
        reached += share
        ends.append(int(n * reached))
    return [ends[0], ends[1] - ends[0], ends[2] - ends[1]]


RATIOS = [
    *(ratio for ratio in product(range(11), repeat=3) if any(ratio)),
    *((98, 1, 1), (99, 0.5, 0.5), (90, 5, 5), (95, 4, 1), (1, 99, 99), (1000, 1, 1), (997, 2, 1)),
    *product((0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.33), repeat=2),
]


def test_shards_that_energon_loses_go_to_the_last_split() -> None:
    losing = set()
    for ratio in RATIOS:
        ratio = ratio if len(ratio) == 3 else (1 - sum(ratio), *ratio)
        for n in (*range(130), 255, 256, 257, 1000, 1023, 4099):
            expected = energon_counts(n, ratio)
            assert counts(n, ratio, compat="energon") == expected, (n, ratio)
            if sum(expected) < n:
                losing.add(ratio)
                last = max(split for split in range(3) if ratio[split])
                expected[last] += n - sum(expected)
            assert counts(n, ratio) == expected, (n, ratio)
    assert losing > {(7, 2, 1), (6, 3, 1)}
    assert (8, 1, 1) not in losing


@given(
    n=st.integers(0, 300),
    ratio=st.lists(st.one_of(st.integers(0, 20), st.floats(0, 1, width=16)), min_size=3, max_size=3),
)
def test_every_shard_is_assigned_and_each_split_is_near_its_share(n: int, ratio: list[float]) -> None:
    assume(sum(ratio) > 0)
    splits = split_by_ratio(names(n), ratio)
    assert [name for split in splits.values() for name in split] == names(n)
    assert list(splits) == ["train", "val", "test"]
    for split, number in zip(splits.values(), ratio, strict=True):
        assert abs(len(split) - n * number / sum(ratio)) < 2
        assert number or not split


@pytest.mark.parametrize(
    ("n", "ratio", "expected", "lost"),
    [
        (10, [8, 1, 1], [8, 1, 1], []),
        (12, [8, 1, 1], [9, 1, 2], []),
        (10, [98, 1, 1], [9, 0, 1], []),
        (1, [8, 1, 1], [0, 0, 1], []),
        (10, [7, 2, 1], [7, 2, 1], ["000009.tar"]),  # 0.7 + 0.2 + 0.1 is less than 1 in floating point
        (20, [6, 3, 1], [12, 6, 2], ["000019.tar"]),
        (5, [0.5, 0.2, 0.3], [2, 1, 2], []),
        (0, [7, 2, 1], [0, 0, 0], []),
    ],
)
def test_counts(n: int, ratio: list[float], expected: list[int], lost: list[str]) -> None:
    assert counts(n, ratio) == expected
    assert lost_by_energon(names(n), ratio) == lost
    assert sum(counts(n, ratio, compat="energon")) == n - len(lost)


def test_the_shuffle_matches_energon() -> None:
    splits = split_by_ratio(["a", "b", "c", "d", "e", "f"], [1, 1, 1], shuffle=True)
    assert splits == {"train": ["d", "b"], "val": ["c", "e"], "test": ["a", "f"]}


@pytest.mark.parametrize(
    "ratio", [[1, 1], [1, 2, 3, 4], [0, 0, 0], [1, -1, 1], ["a", "b", "c"], ["nan", 1, 1], ["inf", 1, 1], []]
)
def test_invalid_ratios_are_rejected(ratio: list[float | str]) -> None:
    with pytest.raises(ValueError, match="three numbers"):
        check_ratio(ratio)


@pytest.mark.parametrize(
    ("pattern", "expected", "energon"),
    [
        ("train", SHARDS[:12], SHARDS[:12]),
        ("train/part_{00..03}.tar", SHARDS[:4], SHARDS[:4]),
        (r"train/part_0\d\.tar", SHARDS[:10], []),  # braceexpand removes the backslashes
        (r"train/part_\d{1,2}.tar", SHARDS[:12], []),
        (r".*/part_(00|11)", [SHARDS[0], SHARDS[11]], [SHARDS[0], SHARDS[11]]),
        (r".*part_0{3}", [], []),
        ("{val,train/part_00}", [SHARDS[0], *SHARDS[12:]], [SHARDS[0], *SHARDS[12:]]),
    ],
)
def test_patterns(pattern: str, expected: list[str], energon: list[str]) -> None:
    assert split_by_patterns(SHARDS, [("x", pattern)]) == {"x": expected}
    assert split_by_patterns(SHARDS, [("x", pattern)], compat="energon") == {"x": energon}


def test_patterns_of_one_split_are_united() -> None:
    patterns = [("x", "val/b"), ("y", "train"), ("x", "val/a")]
    assert split_by_patterns(SHARDS, patterns) == {"x": SHARDS[12:], "y": SHARDS[:12]}
    assert split_by_patterns(SHARDS, patterns, compat="energon") == {"x": ["val/a.tar"], "y": SHARDS[:12]}


@pytest.mark.parametrize("compat", [None, "energon"])
def test_invalid_patterns_are_rejected(compat: None) -> None:
    with pytest.raises(ValueError, match="not a regular expression"):
        split_by_patterns(SHARDS, [("x", "(")], compat=compat)


@pytest.mark.parametrize(
    ("glob", "expected"),
    [
        ("train/*.tar", SHARDS[:12]),
        ("*.tar", []),
        ("**/*.tar", SHARDS),
        ("**", SHARDS),
        ("*/part_0?.tar", SHARDS[:10]),
        ("train/part_0[0-2].tar", SHARDS[:3]),
        ("train/part_0[!0-7].tar", SHARDS[8:10]),
        ("val/[^a].tar", ["val/a.tar"]),
        ("{train/part_{00..01},val/a}.tar", [*SHARDS[:2], "val/a.tar"]),
        ("val/a.ta", []),
        ("val/a+tar", []),
    ],
)
def test_globs(glob: str, expected: list[str]) -> None:
    assert split_by_globs(SHARDS, [("x", glob)]) == {"x": expected}


def test_unassigned_and_repeated_shards_are_reported() -> None:
    splits = {"train": SHARDS[:3], "val": [SHARDS[0]], "test": []}
    assert describe_problems(SHARDS[:10], splits, ["train", "test"]) == [
        "the split test has no shards: loading it will fail",
        "7 shards are in no split: train/part_03.tar, train/part_04.tar, train/part_05.tar, train/part_06.tar, "
        "train/part_07.tar and 2 more",
        "1 shard is in several splits: train/part_00.tar",
    ]
    assert describe_problems(SHARDS[:1], {"train": SHARDS[:1], "val": []}, ["train"]) == []
