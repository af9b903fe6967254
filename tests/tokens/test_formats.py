"""Token files of every format through one interface."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

import fastpack
from fastpack import open_tokens
from fastpack.tokens.formats import FORMATS, format_named
from fastpack.tokens.token_file import TokenFormat

DOCUMENTS = [[5, 6, 7, 0], [8, 0], [9, 9, 9, 0]]
FLAT = [token for document in DOCUMENTS for token in document]
WRITABLE = [row for row in FORMATS if row.create is not None]


@pytest.mark.parametrize(
    ("row", "dtype"), [pytest.param(row, dtype, id=f"{row.name}-{dtype}") for row in WRITABLE for dtype in row.dtypes]
)
def test_every_format_returns_the_documents_that_were_written(tmp_path: Path, row: TokenFormat, dtype: str) -> None:
    assert row.create is not None
    path = tmp_path / f"a{''.join(row.suffixes[:1])}"
    with row.create(path, np.dtype(dtype), "error") as writer:
        writer.append_many(FLAT, [len(document) for document in DOCUMENTS])
    with open_tokens(path, format=row.name, eos_token_id=0, dtype=dtype) as tokens:
        assert (tokens.format, tokens.dtype, tokens.n_tokens, tokens.n_documents) == (row.name, dtype, 10, 3)
        assert [tokens.document(i).tolist() for i in range(3)] == DOCUMENTS
        assert tokens.document_ends().tolist() == [4, 6, 10]
        assert tokens.is_contiguous() == (row.name != "mds")
        assert np.concatenate([segment.open() for segment in tokens.segments()]).tolist() == FLAT
        (spans,) = tokens.document_spans(1)
        assert [int(length) // tokens.dtype.itemsize for length in spans.rows[:, 1]] == [2, 4]
        with pytest.raises(IndexError, match="document 3 of 3"):
            tokens.document(3)


@pytest.mark.parametrize("row", WRITABLE, ids=lambda row: row.name)
def test_an_aborted_writer_leaves_no_file(tmp_path: Path, row: TokenFormat) -> None:
    assert row.create is not None
    with pytest.raises(RuntimeError), row.create(tmp_path / "a", np.dtype("u2"), "error") as writer:
        writer.append_many(FLAT, [len(FLAT)])
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    np.save(tmp_path / "0.npy", np.array([1, 0, 2], np.uint16))
    np.save(tmp_path / "1.npy", np.array([3, 0], np.uint16))
    return tmp_path


def test_a_folder_of_shards_is_one_token_file(shards: Path) -> None:
    tokens = open_tokens(shards, eos_token_id=0)
    assert (tokens.format, tokens.n_tokens, tokens.n_documents) == ("npy", 5, 3)
    assert [tokens.document(i).tolist() for i in range(3)] == [[1, 0], [2], [3, 0]]
    assert [spans.rows.tolist() for spans in tokens.document_spans()] == [[[0, 4], [4, 2]], [[0, 4]]]
    assert [spans.rows.tolist() for spans in tokens.document_spans(1, 2)] == [[[4, 2]], []]


def test_a_manifest_is_a_token_file(shards: Path) -> None:
    fastpack.write_manifest(shards)
    tokens = open_tokens(shards / "manifest.fpm", eos_token_id=0)
    assert (tokens.format, tokens.document_ends().tolist()) == ("manifest", [2, 3, 5])


def test_without_eos_token_the_documents_are_unknown(shards: Path) -> None:
    tokens = open_tokens(shards)
    assert tokens.n_documents is None
    with pytest.raises(ValueError, match="pass eos_token_id"):
        tokens.document_ends()


def test_several_possible_formats_are_named(shards: Path) -> None:
    (shards / "a.bin").write_bytes(bytes(8))
    with pytest.raises(fastpack.FormatError, match="formats npy and bin"):
        open_tokens(shards)
    assert open_tokens(shards, format="bin").n_tokens == 2
    assert open_tokens(shards, format="bin", dtype="uint16").n_tokens == 4


def test_unknown_files_and_formats(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("text")
    with pytest.raises(fastpack.FormatError, match="one of npy, bin, manifest, pbin, megatron, datatrove, olmo, llmc"):
        open_tokens(tmp_path / "a.txt")
    with pytest.raises(ValueError, match="unknown token format 'parquet'"):
        open_tokens(tmp_path / "a.txt", format="parquet")
    with pytest.raises(FileNotFoundError):
        open_tokens(tmp_path / "absent.npy")


@pytest.mark.parametrize("name", ["npy", "pbin"])
def test_a_dtype_that_contradicts_the_header_is_a_format_error(tmp_path: Path, name: str) -> None:
    path = tmp_path / f"a.{name}"
    create = format_named(name).create
    assert create is not None
    with create(path, np.dtype("u2"), "error") as writer:
        writer.append_many([1, 2], [2])
    with pytest.raises(fastpack.FormatError, match="uint16, expected uint32, as given"):
        open_tokens(path, dtype="uint32")


def test_an_index_in_another_order_has_documents_but_no_ends(tmp_path: Path) -> None:
    with fastpack.PackedWriter(tmp_path / "a.pbin", 2) as writer:
        writer.append_many([1, 0, 2, 0], [2, 2])
    data = (tmp_path / "a.pbin").read_bytes()
    with (tmp_path / "b.pbin").open("wb") as file:
        file.write(data[:20])
        file.write(pickle.dumps([(4, 4), (0, 4)], protocol=4))
    tokens = open_tokens(tmp_path / "b.pbin")
    assert [tokens.document(i).tolist() for i in range(2)] == [[2, 0], [1, 0]]
    with pytest.raises(fastpack.FormatError, match="not contiguous"):
        tokens.document_ends()
