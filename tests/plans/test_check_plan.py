"""Damaged plans are reported, never a traceback, and never read as other rows without a finding."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastpack
from fastpack.errors import FormatError
from fastpack.plans import plan_layout
from fastpack.plans.plan_file import PlanFile

Corpus = Callable[..., Path]
LENGTHS = [5, 30, 17, 8, 1, 0, 64, 100, 33, 2] * 8

SETTINGS: list[dict[str, Any]] = [
    {"algorithm": algorithm, **options}
    for algorithm in ("best_fit", "none")
    for options in ({}, {"long": "truncate"}, {"long": "drop"}, {"max_documents": 2}, {"seed": 1})
]
SETTINGS += [
    {"algorithm": "first_fit", "pad_to_multiple": 4},
    {"repeats": [2.5], "seed": 2},
    {"balance": "attention", "data_parallel": 2},
]


def contents(path: Path) -> list[list[int]]:
    plan = PlanFile(path)
    return [column.tolist() for column in plan.segments(range(plan.n_rows))]


@pytest.mark.parametrize("options", SETTINGS, ids=str)
def test_sound_plans(tmp_path: Path, corpus: Corpus, options: dict[str, Any]) -> None:
    fastpack.plan(corpus(LENGTHS), tmp_path / "a.plan", seq_length=32, **options)
    report = fastpack.verify(tmp_path / "a.plan")
    assert (report.kind, report.findings) == ("plan", [])
    assert report.checked["rows"] == PlanFile(tmp_path / "a.plan").n_rows


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Path, bytes]]:
    """Plans of several settings, and their bytes."""
    folder = tmp_path_factory.mktemp("plans")
    with fastpack.PackedWriter(folder / "a.pbin", 2) as writer:
        writer.append_many(np.zeros(sum(LENGTHS), np.uint16), LENGTHS)
    found = []
    for number, options in enumerate(SETTINGS):
        path = folder / f"{number}.plan"
        fastpack.plan(writer.path, path, seq_length=32, **options)
        found.append((path, path.read_bytes()))
    return found


@given(data=st.data())
def test_flipped_bits(plans: list[tuple[Path, bytes]], data: Any) -> None:
    path, sound = data.draw(st.sampled_from(plans))
    path.write_bytes(sound)
    expected = contents(path)
    damaged = bytearray(sound)
    for _ in range(data.draw(st.integers(1, 2))):
        damaged[data.draw(st.integers(0, len(sound) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(damaged)
    report = fastpack.verify(path)
    if report.is_sound:  # such as a byte between two sections
        assert contents(path) == expected
    assert {finding.file for finding in report.findings} <= {str(path)}


@given(data=st.data())
def test_truncated_plans(plans: list[tuple[Path, bytes]], data: Any) -> None:
    path, sound = data.draw(st.sampled_from(plans))
    path.write_bytes(sound[: data.draw(st.integers(0, len(sound) - 1))])
    assert not fastpack.verify(path).is_sound
    with pytest.raises(FormatError):
        fastpack.inspect(path)


def rewrite(path: Path, **changes: Any) -> None:
    """Change the description of a plan, with a right checksum."""
    description, sections = plan_layout.read_sections(str(path))
    arrays = {name: np.array(values) for name, values in sections.items()}
    with plan_layout.PlanSections(path, "overwrite") as writer:
        writer.write_columns({name: changes.get(name, values) for name, values in arrays.items()})
        writer.finish(description | {name: value for name, value in changes.items() if name not in arrays})


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"n_tokens": 12}, "13 tokens in the rows"),
        ({"n_segments": 9}, "3 segments in the rows"),
        ({"n_padding": 0}, "3 tokens of padding in the rows"),
        ({"n_source_tokens": 12}, "13 tokens of sources in the rows"),
        ({"n_documents": 2}, "3 documents in the rows"),
        ({"max_documents": 1}, "row 0 of too many documents"),
        ({"pad_to_multiple": 4}, "row 0 of too many tokens"),
        ({"n_rows": 3}, "2 rows of 4 documents"),
        ({"long": "keep"}, "a description that is not valid"),
        ({"pad_to_multiple": 3}, "a description that is not valid"),
    ],
)
def test_descriptions_that_contradict_the_rows(
    tmp_path: Path, corpus: Corpus, changes: dict[str, Any], found: str
) -> None:
    path = tmp_path / "a.plan"
    fastpack.plan(corpus([3, 5, 0, 5]), path, seq_length=8)
    rewrite(path)
    assert fastpack.verify(path).is_sound
    rewrite(path, **changes)
    assert any(finding.found.startswith(found) for finding in fastpack.verify(path).findings)


def test_pieces_that_contradict_the_sources(tmp_path: Path, corpus: Corpus) -> None:
    path = tmp_path / "a.plan"
    fastpack.plan(corpus([3, 5, 0, 5]), path, seq_length=8)
    pieces = np.array(plan_layout.read_sections(str(path))[1]["pieces"])
    for change in (1, 8, 64):  # of the length, and of the number of a document
        rewrite(path, pieces=np.array([pieces[0] ^ change, *pieces[1:]], np.uint8))
        assert not fastpack.verify(path).is_sound


def test_changed_and_missing_sources(tmp_path: Path, corpus: Corpus) -> None:
    path, source = tmp_path / "a.plan", corpus([3, 5, 0, 5])
    fastpack.plan(source, path, seq_length=8)
    source.unlink()
    corpus([3, 5, 1, 4])
    (finding,) = fastpack.verify(path).findings
    assert "corpus.pbin has changed since the plan was made" in finding.found
    assert fastpack.inspect(path).warnings == [finding.found]
    source.unlink()
    (finding,) = fastpack.verify(path).findings
    assert "corpus.pbin is missing" in finding.found


def test_facts(tmp_path: Path, corpus: Corpus) -> None:
    path = tmp_path / "a.plan"
    result = fastpack.plan([corpus([3, 5], "one"), corpus([9], "two")], path, seq_length=8, seed=4, repeats=[2, 1])
    found = fastpack.inspect(path)
    json.dumps(found)
    assert (found.kind, found.bytes, found.warnings) == ("plan", path.stat().st_size, [])
    assert (found.rows, found.documents, found.tokens, found.padding) == (4, 5, 25, 7)
    assert found.padding_share == pytest.approx(result.padding_share, abs=1e-6)
    assert (found.cuts, found.left_out, found.seed, found.seq_length) == (1, 0, 4, 8)
    assert [Path(source).name for source in found.sources] == ["one.pbin", "two.pbin"]
