"""Editing operations on a format that only has a reader, a writer and a row of FORMATS."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastpack
from fastpack.io import AnyPath, AtomicFile
from fastpack.tokens import formats
from fastpack.tokens.edit import edit_result
from fastpack.tokens.formats import FORMATS, format_named
from fastpack.tokens.token_file import DocumentEnds, Rows, SegmentedTokens, TokenFile
from fastpack.tokens.token_segment import TokenSegment
from fastpack.tokens.token_writer import BufferedTokenWriter

DOCUMENTS = [[1, 2, 0], [3, 0], [4, 4, 4, 0]]


class DocsWriter(BufferedTokenWriter):
    """Tokens, then the lengths of the documents, then their number, int64."""

    header_bytes = 0

    def _finish(self, output: AtomicFile) -> None:
        output.write(np.array([*self._lengths, len(self._lengths)], np.int64))


class DocsTokens(SegmentedTokens):
    format = "docs"

    def __init__(self, path: AnyPath) -> None:
        self.path = str(path)
        data = path.read_bytes()
        end = len(data) - 8
        n_documents = int.from_bytes(data[end:], "little")
        self._lengths = np.frombuffer(data[:end], np.int64, n_documents, end - 8 * n_documents)
        self._segments = [TokenSegment(self.path, np.dtype("<u2"), int(self._lengths.sum()), 0)]

    def _read_document_ends(self) -> DocumentEnds:
        return np.cumsum(self._lengths)


def size(n_tokens: int, token_size: int, documents: Iterable[Rows]) -> int:
    return n_tokens * token_size + 8 * sum(map(len, documents)) + 8


def open_docs(path: AnyPath, _dtype: np.dtype[Any] | None, _eos: int | None) -> TokenFile:
    return DocsTokens(path)


@pytest.fixture(autouse=True)
def another_format(monkeypatch: pytest.MonkeyPatch) -> None:
    row = replace(
        format_named("pbin"),
        name="docs",
        suffixes=(".docs",),
        detect=lambda path, names: path.suffix == ".docs" and names is None,
        open=open_docs,
        create=lambda path, dtype, policy: DocsWriter(path, dtype.itemsize, file_existence_policy=policy),
        predict_size=size,
    )
    for module in (formats, edit_result):
        monkeypatch.setattr(module, "FORMATS", (*FORMATS, row))


def documents_of(path: Path) -> list[list[int]]:
    with fastpack.open_tokens(path) as tokens:
        return [tokens.document(i).tolist() for i in range(tokens.n_documents or 0)]


@pytest.fixture(params=[".docs", ".pbin"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    create: Callable[..., Any] = DocsWriter if request.param == ".docs" else fastpack.PackedWriter
    with create(tmp_path / f"a{request.param}", 2) as writer:
        writer.append_many([token for document in DOCUMENTS for token in document], list(map(len, DOCUMENTS)))
    return tmp_path / f"a{request.param}"


OPERATIONS: dict[str, Callable[..., fastpack.EditResult]] = {
    "merge": lambda source, target, **options: fastpack.merge_packed_data([source], target, **options),
    "filter": lambda *paths, **options: fastpack.filter_packed_data(
        *paths, fastpack.KeepRules(min_length=1), **options
    ),
    "shuffle": lambda *paths, **options: fastpack.shuffle_tokenized_data(*paths, seed=1, **options),
    "chunk": lambda source, target, **options: fastpack.create_shuffled_dataset_chunk(
        [source], target, 0, 1, global_seed=1, **options
    ),
}


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("suffix", [".docs", ".pbin"])
def test_every_operation_reads_and_writes_every_format(
    tmp_path: Path, source: Path, suffix: str, operation: str
) -> None:
    target = tmp_path / f"b{suffix}"
    planned = OPERATIONS[operation](source, target, dry_run=True)
    result = OPERATIONS[operation](source, target)
    written = documents_of(target)
    assert fastpack.open_tokens(target).format == suffix[1:]
    assert (written if operation in ("merge", "filter") else sorted(written)) == DOCUMENTS
    assert (result.documents, result.tokens, result.bytes) == (3, 9, target.stat().st_size)
    assert replace(planned, written=True) == result


def test_documents_with_gaps_are_refused(tmp_path: Path) -> None:
    with DocsWriter(tmp_path / "a.docs", 2) as writer:
        writer.append_tokens([1, 2, 3])
        with pytest.raises(ValueError, match="overlap or leave gaps"):
            writer.append_documents([np.array([[0, 1], [2, 1]])])


def test_a_document_is_previewed(source: Path) -> None:
    from fastpack.inspection.preview import preview_packed
    from fastpack.inspection.preview_tokens import Reader

    assert [found["ids"] for found in preview_packed(source, Reader(), 1)] == DOCUMENTS[1:]
