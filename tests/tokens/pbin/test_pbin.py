"""Reading packed files: golden files, every generation, the sequence of documents."""

from __future__ import annotations

import pickle
import struct
from pathlib import Path

import numpy as np
import pytest
from packed_files import packed_bytes

from fastpack import kernels
from fastpack.errors import FormatError
from fastpack.tokens.pbin.layout import find_layout
from fastpack.tokens.pbin.packed_file import PackedFile

DOCUMENTS = [[5, 6, 7, 0], [0], [200, 1, 0], [9, 0]]


def write(tmp_path: Path, content: bytes) -> Path:
    path = tmp_path / "x.pbin"
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("name", ["docs_bpe2000", "docs_char250"])
def test_golden_documents(backend: str, golden: Path, name: str) -> None:
    expected = np.load(golden / "modalities" / "expected" / f"{name}.base.npz")
    with PackedFile(golden / "modalities" / "pbin" / f"{name}.pbin") as packed:
        assert packed.generation == 5
        np.testing.assert_array_equal(packed.index, expected["index"])
        assert [len(document) for document in packed] == expected["lengths"].tolist()
        assert all(document.dtype == expected["tokens"].dtype for document in packed)
        np.testing.assert_array_equal(np.concatenate(list(packed)), expected["tokens"])
        assert packed.data.dtype == f"<u{packed.token_size_in_bytes}"
        assert len(packed.data) * packed.token_size_in_bytes == packed.data_length


def test_golden_generation_4(backend: str, golden: Path) -> None:
    path = golden / "modalities" / "legacy" / "v0.2.0" / "docs_escaped_bpe2000.v0.2.0.pbin"
    packed = PackedFile(path)
    raw = path.read_bytes()
    entries = pickle.loads(raw[packed.data_offset + packed.data_length :])
    assert entries[0][0] == 12
    assert packed.generation == 4
    assert packed.index.tolist() == [[start - 12, length] for start, length in entries]
    for document, (start, length) in zip(packed, entries, strict=True):
        assert document.tolist() == np.frombuffer(raw[start : start + length], "<u2").tolist()
        assert document[-1] == 0, "the end-of-document token stands last: offsets are right"


@pytest.mark.parametrize(
    ("generation", "token_size", "first"),
    [(1, 4, 4), (1, 4, 1), (2, 4, None), *((g, s, None) for g in (3, 4, 5) for s in (1, 2, 4))],
)
@pytest.mark.parametrize("documents", [DOCUMENTS, DOCUMENTS[:1], [[0]]])
def test_every_generation(
    backend: str, tmp_path: Path, generation: int, token_size: int, first: int | None, documents: list[list[int]]
) -> None:
    path = write(tmp_path, packed_bytes(documents, generation, token_size, first))
    returned = {1: np.uint8, 2: np.int32, 4: np.int64}[token_size]
    for asked in (None, generation):
        packed = PackedFile(path, generation=asked)
        assert packed.generation == generation
        assert (packed.token_size_in_bytes, packed.path) == (token_size, str(path))
        assert [document.tolist() for document in packed] == documents
        assert {document.dtype for document in packed} == {np.dtype(returned)}
        assert packed.data.tolist() == [token for document in documents for token in document]
        assert packed.data.dtype == f"{'<' if generation >= 4 else '>'}u{token_size}"
        assert packed.index[:, 0].tolist() == (np.cumsum([0, *map(len, documents)])[:-1] * token_size).tolist()


@pytest.mark.parametrize("token", [1, 2, 4])
@pytest.mark.parametrize("generation", [1, 2, 3])
def test_a_token_that_looks_like_a_token_size(backend: str, tmp_path: Path, generation: int, token: int) -> None:
    """Generations 1 and 2 have tokens at the position of the token size of generation 3."""
    path = write(tmp_path, packed_bytes([[token, token, 9], [token]], generation))
    with PackedFile(path) as packed:
        assert packed.generation == generation
        assert packed[0].tolist() == [token, token, 9]


@pytest.mark.parametrize("generation", [1, 2, 3, 5])
def test_empty_files(backend: str, tmp_path: Path, generation: int) -> None:
    path = write(tmp_path, packed_bytes([], generation))
    packed = PackedFile(path)
    assert (packed.generation, len(packed), packed.data.size, packed.index.shape) == (generation, 0, 0, (0, 2))


def test_generation_0_has_tokens_only(tmp_path: Path) -> None:
    path = write(tmp_path, packed_bytes(DOCUMENTS, 0))
    packed = PackedFile(path, generation=0)
    assert packed.generation == 0
    assert packed.data.tolist() == [token for document in DOCUMENTS for token in document]
    with pytest.raises(ValueError, match="generation 0 have no index"):
        len(packed)
    with pytest.raises(FormatError):
        PackedFile(path)
    with pytest.raises(FormatError, match="multiple of the token size") as caught:
        len(PackedFile(write(tmp_path, b"\0" * 10), generation=0))
    assert caught.value.offset == 0


def test_opening_decodes_no_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, packed_bytes(DOCUMENTS))
    kernels.backend()
    monkeypatch.setattr(kernels, "decode_index", lambda _: pytest.fail("the index was decoded"))
    assert PackedFile(path).data.tolist()[:3] == [5, 6, 7]


def test_sequence_of_documents(tmp_path: Path) -> None:
    packed = PackedFile(write(tmp_path, packed_bytes(DOCUMENTS)))
    assert len(packed) == 4
    assert packed[-1].tolist() == packed[np.int64(3)].tolist() == [9, 0]
    assert packed[0].flags.writeable
    for i in (4, -5):
        with pytest.raises(IndexError, match=f"document {i} of 4"):
            packed[i]
    with pytest.raises(TypeError):
        packed["0"]  # type: ignore[index]
    assert not packed.index.flags.writeable
    assert not packed.data.flags.writeable


def test_pickles_as_its_path(tmp_path: Path) -> None:
    path = write(tmp_path, packed_bytes(DOCUMENTS, 1))
    data = pickle.dumps(PackedFile(path, generation=1, check=False))
    assert len(data) < 300
    again = pickle.loads(data)
    assert (again.path, again.generation) == (str(path), 1)
    assert [document.tolist() for document in again] == DOCUMENTS


def test_closed(tmp_path: Path) -> None:
    with PackedFile(write(tmp_path, packed_bytes(DOCUMENTS))) as packed:
        tokens = packed.data
        assert len(packed) == 4
    assert tokens.tolist()[:2] == [5, 6], "a view outlives the file object"
    for use in (len, lambda p: p.data, lambda p: p[0], lambda p: p.index):
        with pytest.raises(ValueError, match="closed"):
            use(packed)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        PackedFile(tmp_path / "none.pbin")
    with pytest.raises(ValueError, match="generation 6"):
        PackedFile(write(tmp_path, packed_bytes(DOCUMENTS)), generation=6)


def test_shuffled_and_overlapping_entries_are_legal(backend: str, tmp_path: Path) -> None:
    index = [(16, 8), (0, 12), (12, 12), (0, 0)]
    content = struct.pack("<QI", 24, 4) + np.arange(6, dtype="<u4").tobytes() + pickle.dumps(index, 4)
    packed = PackedFile(write(tmp_path, content))
    assert packed.generation == 5
    assert [document.tolist() for document in packed] == [[4, 5], [0, 1, 2], [3, 4, 5], []]


def test_a_first_entry_of_12_alone_is_not_generation_4(tmp_path: Path) -> None:
    index = [(12, 12), (0, 12)]
    content = struct.pack("<QI", 24, 4) + np.arange(6, dtype="<u4").tobytes() + pickle.dumps(index, 4)
    packed = PackedFile(write(tmp_path, content))
    assert packed.generation == 5
    assert packed[0].tolist() == [3, 4, 5]


def test_find_layout_of_a_bare_array(tmp_path: Path) -> None:
    layout = find_layout(np.frombuffer(packed_bytes(DOCUMENTS, 2), np.uint8), "x.pbin")
    assert layout == (2, 8, 40, 4)
    assert layout.index_offset == 48
