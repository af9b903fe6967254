"""Filters by a function, by rules and by number, in small groups, on every backend."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastpack
from fastpack import KeepRules
from fastpack.io import TargetExists
from fastpack.tokens.edit import filter as filtering

WritePacked = Callable[..., Path]
Bytes = Callable[..., bytes]
documents = st.lists(st.lists(st.integers(0, 7), max_size=9), max_size=30)
tokens = st.lists(st.sampled_from([0, 1, 2, 7, 8, 300, 70_000, 2**40, -1]), max_size=2).map(tuple)
rules = st.builds(
    KeepRules,
    min_length=st.none() | st.integers(-1, 9),
    max_length=st.none() | st.integers(-1, 9),
    contains=tokens,
    lacks=tokens,
)


def meets(asked: KeepRules, document: list[int]) -> bool:
    """The rules in plain Python."""
    return (
        (asked.min_length is None or len(document) >= asked.min_length)
        and (asked.max_length is None or len(document) <= asked.max_length)
        and all(token in document for token in asked.contains)
        and not any(token in document for token in asked.lacks)
    )


@pytest.fixture
def tiny_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filtering, "_GROUP_BYTES", 24)


@given(documents=documents, asked=rules, generation=st.integers(1, 5), size=st.sampled_from([1, 2, 4]))
def test_rules_and_functions_agree(
    backend: str,
    tiny_groups: None,
    documents: list[list[int]],
    asked: KeepRules,
    generation: int,
    size: int,
    write_packed: WritePacked,
    expected_bytes: Bytes,
) -> None:
    if not any(documents) and generation < 5:
        documents = [[1], *documents]
    source = write_packed("a.pbin", documents, size, generation)
    target, seen = source.with_name("out"), []

    def keep(i: int, found: np.ndarray) -> bool:
        seen.append((i, found.tolist()))
        return asked(i, found)

    kept = [document for document in documents if meets(asked, document)]
    size = 4 if generation < 3 else size
    for rule in (asked, keep):
        result = fastpack.filter_packed_data(source, target, rule, if_exists="overwrite")
        assert target.read_bytes() == expected_bytes(kept, size)
        assert (result.documents, result.left_out) == (len(kept), len(documents) - len(kept))
        planned = fastpack.filter_packed_data(source, target, rule, if_exists="overwrite", dry_run=True)
        assert (planned.bytes, planned.documents, planned.left_out) == (
            result.bytes,
            result.documents,
            result.left_out,
        )
    assert seen == list(enumerate(documents)) * 2


def test_documents_out_of_file_order(backend: str, tiny_groups: None, write_packed: WritePacked) -> None:
    source = write_packed("a.pbin", [[n, n + 1] for n in range(20)])
    shuffled = source.with_name("shuffled.pbin")
    with fastpack.PackedFile(source) as file:
        data, index = file.file[:92].tobytes(), file.index[::-1]
    from fastpack.io import pickled_index

    shuffled.write_bytes(data + pickled_index.encode(index))
    fastpack.filter_packed_data(shuffled, source.with_name("out"), KeepRules(contains=(7,)))
    with fastpack.PackedFile(source.with_name("out")) as file:
        assert [file[i].tolist() for i in range(len(file))] == [[7, 8], [6, 7]]


@pytest.mark.parametrize(("size", "dtype"), [(1, np.uint8), (2, np.int32), (4, np.int64)])
def test_the_function_gets_copies(size: int, dtype: type, tmp_path: Path, write_packed: WritePacked) -> None:
    """They have the dtype of documents; changing or storing them has no effect."""
    source = write_packed("a.pbin", [[1, 2], [3]], size)
    kept: list[np.ndarray] = []

    def keep(i: int, found: np.ndarray) -> np.bool_:
        assert found.dtype == dtype
        kept.append(found)
        found += 1
        return np.True_

    fastpack.filter_packed_data(source, tmp_path / "out", keep)
    assert (tmp_path / "out").read_bytes() == source.read_bytes()
    assert [document.tolist() for document in kept] == [[2, 3], [4]]


def test_no_document_kept(tmp_path: Path, write_packed: WritePacked) -> None:
    source = write_packed("a.pbin", [[1], [2]])
    fastpack.filter_packed_data(source, tmp_path / "out", lambda _i, _tokens: False)
    assert (tmp_path / "out").stat().st_size == 17
    with fastpack.PackedFile(tmp_path / "out") as file:
        assert len(file) == 0
    (tmp_path / "out").write_bytes(b"old")
    with pytest.raises(ValueError, match="did not create any data"):
        fastpack.create_filtered_tokenized_dataset(source, lambda _i: False, tmp_path / "out", "override")
    assert (tmp_path / "out").read_bytes() == b"old"


def test_filter_by_number(tmp_path: Path, write_packed: WritePacked, expected_bytes: Bytes) -> None:
    source = write_packed("a.pbin", [[n] for n in range(9)])
    result = fastpack.create_filtered_tokenized_dataset(source, lambda i: i % 4 == 0, tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == expected_bytes([[0], [4], [8]], 2)
    assert (result.documents, result.left_out) == (3, 6)


def test_an_error_in_the_function_leaves_no_file(tmp_path: Path, write_packed: WritePacked) -> None:
    source = write_packed("a.pbin", [[1], [2]])
    with pytest.raises(ZeroDivisionError):
        fastpack.filter_packed_data(source, tmp_path / "out", lambda i, _tokens: 1 // (1 - i) > 0)
    assert [path.name for path in tmp_path.iterdir()] == ["a.pbin"]


def test_policies_and_progress(tmp_path: Path, write_packed: WritePacked) -> None:
    source, target = write_packed("a.pbin", [[1], [2, 3]]), tmp_path / "out"
    with pytest.raises(ValueError, match="must be different"):
        fastpack.filter_packed_data(source, source, KeepRules(), if_exists="overwrite")
    with pytest.raises(FileNotFoundError):
        fastpack.filter_packed_data(tmp_path / "none", target, KeepRules())
    seen: list[tuple[int, int]] = []
    fastpack.filter_packed_data(source, target, KeepRules(), progress=lambda *done: seen.append(done))
    assert seen == [(6, 6)]
    with pytest.raises(TargetExists):
        fastpack.filter_packed_data(source, target, KeepRules())
    assert fastpack.filter_packed_data(source, target, KeepRules(), if_exists="skip").kept_existing
