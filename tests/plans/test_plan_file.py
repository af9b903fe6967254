"""The format of plans: what is written is read back, and damaged files are errors."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastpack.errors import FormatError
from fastpack.plans.pieces import encode_pieces, piece_bytes, read_pieces
from fastpack.plans.plan_file import PlanFile
from fastpack.plans.plan_layout import PlanSections
from fastpack.plans.plan_writer import Bins, describe, write_bins, write_stream

Rows = list[list[tuple[int, int, int]]]  # of each row: document, start, end of its segments
SEQ = 8


def fields(rows: Rows, n_documents: int, **given: Any) -> dict[str, Any]:
    used = sum(end - start for row in rows for _, start, end in row)
    counts = {
        "seq_length": SEQ,
        "n_rows": len(rows),
        "n_segments": sum(map(len, rows)),
        "n_documents": len({document for row in rows for document, _, _ in row}),
        "n_tokens": used,
        "n_padding": len(rows) * SEQ - used,
        "n_truncated": 0,
        "n_dropped": 0,
        "n_source_documents": n_documents,
        "algorithm": "best_fit",
        "long": "split",
        "seed": None,
        "max_documents": None,
    }
    description = describe({**counts, **given}, [])
    source = {"path": "a", "format": "pbin", "dtype": "uint16", "eos_token_id": None, "n_tokens": 0, "fingerprint": []}
    return {**description, "sources": [{**source, "n_documents": n_documents}], "passes": [0]}


def write_rows(path: Path, lengths: Sequence[int], **given: Any) -> Rows:
    """Write a plan with a row for each piece of SEQ tokens, and rows of two documents' ends each."""
    full = np.array(lengths) // SEQ
    ends = [(document, length % SEQ) for document, length in enumerate(lengths) if length % SEQ]
    ends = [(document, min(length, SEQ // 2)) for document, length in ends]
    rows: Rows = [[(d, k * SEQ, (k + 1) * SEQ)] for d, n in enumerate(full.tolist()) for k in range(n)]
    for pair in (ends[k : k + 2] for k in range(0, len(ends), 2)):
        rows.append([(d, int(full[d]) * SEQ, int(full[d]) * SEQ + length) for d, length in pair])
    counts = [len(ends[k : k + 2]) for k in range(0, len(ends), 2)]
    numbers = np.array([document for document, _ in ends], np.uint32)
    bins = Bins(numbers, np.array([length for _, length in ends], np.uint32), np.array(counts, np.uint32))
    with PlanSections(path, "overwrite") as sections:
        write_bins(sections, [bins], full, len(lengths), SEQ)
        sections.finish(fields(rows, len(lengths), **given))
    return rows


def rows_of(plan: PlanFile, rows: Sequence[int]) -> Rows:
    found: Rows = [[] for _ in rows]
    for row, document, start, end in zip(*(column.tolist() for column in plan.segments(rows)), strict=True):
        found[row].append((document, start, end))
    return found


@given(lengths=st.lists(st.integers(0, 40), max_size=200), seed=st.integers(0, 9))
def test_rows_are_read_in_any_order(tmp_path_factory: pytest.TempPathFactory, lengths: list[int], seed: int) -> None:
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
        write_stream(sections, np.array(lengths), None)
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


def damaged(change: Callable[[bytearray], None]) -> Callable[[Path], None]:
    def apply(path: Path) -> None:
        data = bytearray(path.read_bytes())
        change(data)
        path.write_bytes(data)

    return apply


def test_every_damaged_byte_is_an_error_or_gives_rows_within_bounds(tmp_path: Path) -> None:
    path = tmp_path / "a.plan"
    rows = write_rows(path, [5, 30, 17, 2500, 0, 3, 4] * 6)
    data, n_rows, n_errors = path.read_bytes(), len(rows), 0
    for place in range(len(data)):
        for value in (0, 255, data[place] ^ 1):
            path.write_bytes(data[:place] + bytes([value]) + data[place + 1 :])
            try:
                plan = PlanFile(path)
                found = plan.segments(range(n_rows))
            except FormatError:
                n_errors += 1
                continue
            assert found.row.max() < n_rows
            assert 0 <= found.document.min() <= found.document.max() < 42
            assert (found.start < found.end).all()
            assert (np.bincount(found.row, found.end - found.start) <= SEQ).all()
    assert n_errors > 500


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
        write_bins(sections, [], np.array([1, 2, 0]), 3, SEQ)
        changed = {**fields([[(0, 0, 8)]], 3, n_rows=3), name: value}
        if name == "sections":
            sections._sections = {"documents": ("|u1", 1 << 40, 3)}
        sections.finish(changed)
    with pytest.raises(FormatError, match=r"a\.plan"):
        PlanFile(path)
