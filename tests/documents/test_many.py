"""Indexes of many files: the same as one by one, for every number of threads."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from fastpack.documents import create_indices as many
from fastpack.documents.create_index import FaultyLine, create_raw_index
from fastpack.documents.create_indices import create_raw_indices
from fastpack.io import TargetExists


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    rng = random.Random(3)
    for number in range(12):
        lines = [json.dumps({"text": "é" * rng.randrange(50)}) for _ in range(rng.randrange(1, 200))]
        path = tmp_path / "in" / f"{number % 3}" / f"{number}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(lines))
    return tmp_path / "in"


@pytest.mark.parametrize("num_threads", [1, 2, 5])
@pytest.mark.parametrize("large", [1, 2000, 1 << 30])
def test_each_index_equals_that_of_create_raw_index(
    num_threads: int, large: int, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(many, "LARGE", large)
    seen: list[tuple[int, int]] = []
    results = create_raw_indices(corpus, num_threads=num_threads, progress=lambda *args: seen.append(args))
    assert [result.path.name for result in results] == [
        path.with_suffix(".idx").name for path in sorted(corpus.rglob("*.jsonl"), key=str)
    ]
    for result in results:
        alone = create_raw_index(result.path.with_suffix(".jsonl"), tmp_path / "alone.idx", if_exists="overwrite")
        assert result.path.read_bytes() == alone.path.read_bytes()
        assert (result.entries, result.bytes) == (alone.entries, alone.bytes)
    total = sum(path.stat().st_size for path in corpus.rglob("*.jsonl"))
    assert seen[-1] == (total, total)
    assert seen == sorted(seen)


@pytest.mark.parametrize("num_threads", [1, 3])
def test_a_faulty_line_names_its_file_and_leaves_no_index_of_it(num_threads: int, corpus: Path) -> None:
    bad = corpus / "1" / "4.jsonl"
    bad.write_text('{"text": 1}\nnot json\n')
    with pytest.raises(FaultyLine) as caught:
        create_raw_indices([corpus], num_threads=num_threads)
    assert (caught.value.path, caught.value.line, caught.value.offset) == (str(bad), 2, 12)
    assert not bad.with_suffix(".idx").exists()
    assert not list(corpus.rglob(".*"))


def test_the_policy_applies_to_each_file(corpus: Path) -> None:
    (corpus / "0" / "3.idx").write_bytes(b"mine")
    with pytest.raises(TargetExists):
        create_raw_indices(corpus)
    results = create_raw_indices(corpus, if_exists="skip")
    assert [result.path.name for result in results if not result.written][-1] == "3.idx"
    assert (corpus / "0" / "3.idx").read_bytes() == b"mine"


def test_two_sources_with_the_same_index_are_an_error_before_writing(corpus: Path) -> None:
    (corpus / "0" / "3.ndjson").write_text("{}\n")
    with pytest.raises(ValueError, match=r"would both have the index .*3\.idx"):
        create_raw_indices(corpus)
    assert not list(corpus.rglob("*.idx"))


def test_compressed_files_are_skipped_in_directories_and_rejected_by_name(corpus: Path) -> None:
    (corpus / "z.jsonl.gz").write_bytes(b"")
    assert len(create_raw_indices(corpus)) == 12
    with pytest.raises(ValueError, match="is compressed, so its lines cannot be read by position"):
        create_raw_indices([corpus / "z.jsonl.gz"])
