"""The format of plans: what is written is read back, and damaged files are errors."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastpack.errors import FormatError
from fastpack.plans.pack_bins import PackedShard
from fastpack.plans.pieces import encode_pieces, piece_bytes, read_pieces
from fastpack.plans.plan_file import PlanFile
from fastpack.plans.plan_layout import PlanSections
from fastpack.plans.plan_result import PlanResult
from fastpack.plans.plan_settings import PlanSettings
from fastpack.plans.plan_sources import PlanSource
from fastpack.plans.plan_writer import describe, write_bins, write_stream

Rows = list[list[tuple[int, int, int]]]  # of each row: document, start, end of its segments
SEQ = 8


def fields(rows: Rows, n_documents: int, **given: Any) -> dict[str, Any]:
    used = sum(end - start for row in rows for _, start, end in row)
    counts = {"n_rows": len(rows), "n_segments": sum(map(len, rows)), "n_documents": n_documents, "n_tokens": used}
    others = ("n_padding", "n_truncated", "n_dropped", "n_cuts", "n_source_tokens")
    settings = PlanSettings(SEQ, **{name: value for name, value in given.items() if name in ("algorithm", "seed")})
    result = PlanResult(
        "", SEQ, settings.algorithm, settings.long, n_source_documents=n_documents, **counts, **dict.fromkeys(others, 0)
    )
    source = PlanSource("a", "pbin", "uint16", None, n_documents, 0, ())
    return {**describe(result, settings, [source]), **given}


def write_rows(path: Path, lengths: Sequence[int], **given: Any) -> Rows:
    """Write a plan with a row for each piece of SEQ tokens, and rows of two documents' ends each."""
    full, ends = np.divmod(np.array(lengths, np.int64), SEQ)
    ends = np.minimum(ends, SEQ // 2)
    numbers = np.flatnonzero(ends)
    rows: Rows = [[(d, k * SEQ, (k + 1) * SEQ)] for d, n in enumerate(full.tolist()) for k in range(n)]
    last = [(d, int(full[d]) * SEQ, int(full[d]) * SEQ + int(ends[d])) for d in numbers.tolist()]
    rows += [last[k : k + 2] for k in range(0, len(last), 2)]
    counts = [len(numbers[k : k + 2]) for k in range(0, len(numbers), 2)]
    with PlanSections(path, "overwrite") as sections:
        pieces = encode_pieces(numbers, ends[numbers], len(full), SEQ)
        shard = PackedShard(full.astype(np.uint32), pieces, np.array(counts, np.uint32), np.empty(0), len(counts), 0)
        assert write_bins(sections, [shard])[:2] == (len(counts), len(numbers))
        sections.finish(fields(rows, len(lengths), **given))
    return rows


def rows_of(plan: PlanFile, rows: Sequence[int]) -> Rows:
    found: Rows = [[] for _ in rows]
    for row, document, start, end in zip(*(column.tolist() for column in plan.segments(rows)), strict=True):
        found[row].append((document, start, end))
    return found


@given(
    lengths=st.lists(st.one_of(st.integers(0, 40), st.sampled_from([255 * SEQ, 3000])), max_size=200),
    seed=st.integers(0, 9),
)
def test_rows_are_read_in_any_order(
    backend: str, tmp_path_factory: pytest.TempPathFactory, lengths: list[int], seed: int
) -> None:
    path = tmp_path_factory.mktemp("plan") / "a.plan"
    rows = write_rows(path, lengths)
    plan = PlanFile(path)
    assert rows_of(plan, range(len(rows))) == rows
    some = np.random.default_rng(seed).integers(0, len(rows), 20) if rows else np.empty(0, np.int64)
    assert rows_of(plan, some.tolist()) == [rows[i] for i in some]


def test_the_order_of_a_seed_is_a_permutation(tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "a.plan", [5, 30, 17] * 40, seed=3)
    plan = PlanFile(tmp_path / "a.plan")
    found = rows_of(plan, range(len(rows)))
    assert sorted(found) == sorted(rows)
    assert found != rows
    assert rows_of(pickle.loads(pickle.dumps(plan)), [7, 2]) == [found[7], found[2]]


def test_a_row_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    n_rows = len(write_rows(tmp_path / "a.plan", [5, 30]))
    plan = PlanFile(tmp_path / "a.plan")
    for row in (-1, n_rows):
        with pytest.raises(IndexError, match=f"row {row} of {n_rows} rows"):
            plan.segments([row])


def test_rows_of_a_stream_divide_the_documents(tmp_path: Path) -> None:
    lengths = [3, 0, 20, 0, 0, 1, 7]
    rows: Rows = [
        [(0, 0, 3), (2, 0, 5)],
        [(2, 5, 13)],
        [(2, 13, 20), (5, 0, 1)],
        [(6, 0, 7)],
    ]
    with PlanSections(tmp_path / "a.plan", "error") as sections:
        write_stream(sections, [np.array(lengths, np.uint32)], PlanSettings(SEQ))
        sections.finish(fields(rows, len(lengths), algorithm="none"))
    assert rows_of(PlanFile(tmp_path / "a.plan"), [3, 0, 1, 2]) == [rows[3], rows[0], rows[1], rows[2]]


@given(n_documents=st.integers(1, 1 << 33), seq_length=st.integers(2, 1 << 20), seed=st.integers(0, 99))
def test_pieces_take_as_few_bytes_as_they_need(n_documents: int, seq_length: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    documents, lengths = rng.integers(0, n_documents, 50), rng.integers(1, seq_length, 50)
    data = encode_pieces(documents, lengths, n_documents, seq_length)
    found = read_pieces(data, np.arange(50), n_documents, seq_length)
    assert (found[0] == documents).all()
    assert (found[1] == lengths).all()
    assert len(data) == 50 * piece_bytes(n_documents, seq_length)
    assert piece_bytes(10**8, 8192) == 5


@pytest.mark.parametrize("algorithm", ["best_fit", "none"])
def test_every_damaged_byte_is_an_error_or_gives_rows_within_bounds(tmp_path: Path, algorithm: str) -> None:
    path, lengths = tmp_path / "a.plan", [5, 30, 17, 2500 if algorithm == "best_fit" else 70, 0, 3, 4] * 2
    if algorithm == "best_fit":
        n_rows = len(write_rows(path, lengths))
    else:
        with PlanSections(path, "error") as sections:
            settings = PlanSettings(SEQ, "none", max_documents=3)
            n_rows = write_stream(sections, [np.array(lengths, np.uint32)], settings).n_rows
            sections.finish(fields([], len(lengths), algorithm="none", n_rows=n_rows))
    data, n_errors = path.read_bytes(), 0
    for place in [*range(0, len(data) - 900, 2), *range(len(data) - 900, len(data), 40)]:
        for value in (255, data[place] ^ 1):
            path.write_bytes(data[:place] + bytes([value]) + data[place + 1 :])
            try:
                plan = PlanFile(path)
                found = plan.segments(range(n_rows))
            except FormatError:
                n_errors += 1
                continue
            assert found.row.max() < n_rows
            assert 0 <= found.document.min() <= found.document.max() < len(lengths)
            assert (found.start < found.end).all()
            assert (np.bincount(found.row, found.end - found.start) <= SEQ).all()
    assert n_errors > 20


@pytest.mark.parametrize("n_bytes", [0, 7, 31, 32, 100, -1])
def test_cut_files_are_errors(tmp_path: Path, n_bytes: int) -> None:
    write_rows(tmp_path / "a.plan", [5, 30, 17])
    data = (tmp_path / "a.plan").read_bytes()
    (tmp_path / "a.plan").write_bytes(data[:n_bytes])
    with pytest.raises(FormatError, match=r"a\.plan"):
        PlanFile(tmp_path / "a.plan")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("seq_length", 0),
        ("seq_length", "8"),
        ("n_rows", 1),
        ("n_rows", -1),
        ("n_source_documents", 2),
        ("algorithm", "worst_fit"),
        ("long", None),
        ("keys", [1, 2]),
        ("keys", ["a"] * 4),
        ("keys", [-1] * 4),
        ("passes", [1]),
        ("passes", [-1]),
        ("passes", 0),
        ("sources", {}),
        ("sources", [[]]),
        ("sections", None),
        ("seed", []),
        ("max_documents", "1"),
    ],
)
def test_a_description_that_is_not_valid_is_an_error(tmp_path: Path, name: str, value: object) -> None:
    path = tmp_path / "a.plan"
    with PlanSections(path, "error") as sections:
        full, none = np.array([1, 2, 0], np.uint32), np.empty(0, np.uint32)
        write_bins(sections, [PackedShard(full, np.empty(0, np.uint8), none, np.empty(0), 0, 0)])
        changed = {**fields([[(0, 0, 8)]], 3, n_rows=3), name: value}
        if name == "sections":
            sections._sections = {"documents": ("|u1", 1 << 40, 3)}
        sections.finish(changed)
    with pytest.raises(FormatError, match=r"a\.plan"):
        PlanFile(path)
