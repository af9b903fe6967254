"""The writer of packed files: golden bytes, tokens that do not fit, invalid calls, and errors."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packed_files import packed_bytes

from fastpack.errors import JobError
from fastpack.io import AtomicFile, TargetExists
from fastpack.tokens.pbin.packed_file import PackedFile
from fastpack.tokens.pbin.packed_writer import PackedWriter
from fastpack.tokens.token_writer import TokenRangeError


@pytest.mark.parametrize("name", ["docs_bpe2000", "docs_char250", "docs_crlf_bpe2000", "one_bpe2000"])
def test_writes_the_golden_bytes(backend: str, golden: Path, tmp_path: Path, name: str) -> None:
    source = golden / "modalities" / "pbin" / f"{name}.pbin"
    packed, target = PackedFile(source), tmp_path / "y.pbin"
    size = packed.token_size_in_bytes
    lengths = packed.index[:, 1] // size
    for fill in (
        lambda writer: [writer.append(document) for document in packed],
        lambda writer: [writer.append(document.tolist()) for document in packed],
        lambda writer: writer.append_many(packed.data.astype(np.int64), lengths),
        lambda writer: writer.append_many(packed.data, lengths),
        lambda writer: writer.append_bytes(packed.data.tobytes(), lengths.tolist()),
    ):
        with PackedWriter(target, size, if_exists="overwrite") as writer:
            fill(writer)
            assert (writer.n_documents, writer.n_tokens) == (len(packed), len(packed.data))
        assert target.read_bytes() == source.read_bytes()


def test_an_empty_pack_has_17_bytes(backend: str, tmp_path: Path) -> None:
    with PackedWriter(tmp_path / "x.pbin", 2):
        pass
    assert (tmp_path / "x.pbin").read_bytes().hex() == "0000000000000000" + "02000000" + "80045d942e"


@settings(max_examples=60)
@given(
    st.sampled_from([1, 2, 4]),
    st.lists(st.lists(st.integers(0, 255), max_size=6), max_size=8),
    st.sampled_from(["u1", "i2", "<i4", ">i4", "i8", "u8", ">u2", "<u2", "u4"]),
    st.integers(0, 8),
)
def test_round_trip(
    tmp_path_factory: pytest.TempPathFactory, size: int, documents: list[list[int]], dtype: str, cut: int
) -> None:
    path = tmp_path_factory.mktemp("round") / "x.pbin"
    with PackedWriter(path, size) as writer:
        for document in documents[:cut]:
            writer.append(np.array(document, dtype))
        rest = [np.array(document, dtype) for document in documents[cut:]]
        writer.append_many(np.concatenate([np.empty(0, dtype), *rest]), [len(document) for document in rest])
    assert path.read_bytes() == packed_bytes(documents, 5, size)
    assert [document.tolist() for document in PackedFile(path)] == documents


@pytest.mark.parametrize("dtype", ["<u2", "<u4", "<i8"])
@pytest.mark.parametrize("size", [2, 4])
def test_blocks_larger_than_the_buffer(tmp_path: Path, dtype: str, size: int) -> None:
    rng = np.random.default_rng(7)
    path = tmp_path / "x.pbin"
    tokens = rng.integers(0, 2**16, 1_300_001).astype(dtype)
    lengths = rng.multinomial(len(tokens), np.full(1000, 1 / 1000))
    with PackedWriter(path, size) as writer:
        writer.append([1, 2, 3])
        writer.append_many(tokens, lengths)
        writer.append(tokens[:: -1 if size == 2 else 2])
        writer.append([4])
    packed = PackedFile(path)
    assert packed.index[:, 1].tolist()[1:-2] == (lengths * size).tolist()
    expected = np.concatenate([[1, 2, 3], tokens, tokens[:: -1 if size == 2 else 2], [4]])
    np.testing.assert_array_equal(packed.data, expected)


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("dtype", ["i1", "<i4", ">i4", "i8", "u8", ">u8"])
def test_a_token_that_does_not_fit_is_named_and_nothing_is_written(tmp_path: Path, size: int, dtype: str) -> None:
    path, limit = tmp_path / "x.pbin", 256**size - 1
    info = np.iinfo(dtype)
    wrong = [token for token in (limit + 1, -1, info.max, info.min) if info.min <= token <= info.max]
    wrong = [token for token in wrong if not 0 <= token <= limit]
    with PackedWriter(path, size) as writer:
        writer.append([1, 2])
        for token in wrong:
            tokens = np.ones(100_000, dtype)
            tokens[[70_000, 80_000]] = token, min(wrong)
            for add in (writer.append, lambda flat: writer.append_many(flat, [99_999, 1])):
                with pytest.raises(TokenRangeError, match=f"token {token} at position 70000 ") as caught:
                    add(tokens)
                assert (caught.value.token, caught.value.position) == (token, 70_000)
                assert repr(pickle.loads(pickle.dumps(caught.value))) == repr(caught.value)
        largest = min(limit, info.max)
        writer.append(np.array([largest, 0], dtype))
    assert [document.tolist() for document in PackedFile(path)] == [[1, 2], [largest, 0]]


def test_wrong_calls_write_nothing(tmp_path: Path) -> None:
    path = tmp_path / "x.pbin"
    with PackedWriter(path, 2) as writer:
        for lengths in ([3], [1, 2], [5, -1], [-(2**63), 2**63 - 1, 5], []):
            with pytest.raises(ValueError, match="length"):
                writer.append_many([1, 2, 3, 4], lengths)
        with pytest.raises(ValueError, match="2 dimensions"):
            writer.append([[1, 2]])
        with pytest.raises(ValueError, match="2 dimensions"):
            writer.append_many([1, 2], [[1, 1]])
        with pytest.raises(TypeError, match="float64"):
            writer.append([1.0])
        with pytest.raises(TypeError, match="lengths of dtype float64"):
            writer.append_many([1, 2], [2.0])
        with pytest.raises(TypeError, match="bool"):
            writer.append(np.array([True]))
        with pytest.raises(ValueError, match="no whole number of tokens"):
            writer.append_bytes(b"abc", [1])
        writer.append_many([], [])
        writer.append_many([], [0])
        writer.append([1])
    assert path.read_bytes() == packed_bytes([[], [1]], 5, 2)
    for method in (lambda: writer.append([1]), lambda: writer.append_many([1], [1])):
        with pytest.raises(ValueError, match="closed"):
            method()
    writer.close()
    with pytest.raises(ValueError, match="token size 3"):
        PackedWriter(tmp_path / "y.pbin", 3)
    assert [child.name for child in tmp_path.iterdir()] == ["x.pbin"]


def test_policies_for_an_existing_file(tmp_path: Path) -> None:
    path = tmp_path / "x.pbin"
    path.write_bytes(b"old")
    for policy in ("error", "skip"):
        with pytest.raises(TargetExists):
            PackedWriter(path, 2, if_exists=policy)  # type: ignore[arg-type]
    with PackedWriter(path, 2, if_exists="overwrite") as writer:
        writer.append([1])
        assert path.read_bytes() == b"old", "the target changes only when all is written"
        with pytest.raises(JobError, match="another process is writing"):
            PackedWriter(path, 2, if_exists="overwrite")
    assert path.read_bytes() == packed_bytes([[1]], 5, 2)


def test_an_error_keeps_the_existing_file(tmp_path: Path) -> None:
    path = tmp_path / "x.pbin"
    path.write_bytes(b"old")
    writer = PackedWriter(path, 2, if_exists="overwrite")
    writer.append([1])
    writer.__exit__(ZeroDivisionError, ZeroDivisionError(), None)
    assert path.read_bytes() == b"old"
    assert [child.name for child in tmp_path.iterdir()] == ["x.pbin"]


def test_a_full_disk_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: AtomicFile, data: Any) -> int:
        raise OSError(28, "No space left on device")

    path = tmp_path / "x.pbin"
    for n_tokens in (4_000_000, 10):  # found while appending, found while closing
        writer = PackedWriter(path, 2)
        with monkeypatch.context() as patched:
            patched.setattr(AtomicFile, "write", full)
            with pytest.raises(OSError, match="No space left"):
                write_and_close(writer, n_tokens)
        writer.close()
        assert list(tmp_path.iterdir()) == [], "a later close() must not turn half a file into a result"


def write_and_close(writer: PackedWriter, n_tokens: int) -> None:
    writer.append(np.ones(n_tokens, np.int32))
    writer.close()
