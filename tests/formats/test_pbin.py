"""Packed files: golden files, every generation, damaged files, and the writer."""

from __future__ import annotations

import pickle
import struct
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastpack import kernels
from fastpack.errors import FormatError, JobError
from fastpack.files import AtomicFile, TargetExists
from fastpack.formats.pbin import PackedFile, PackedWriter, TokenRangeError
from fastpack.formats.pbin_layout import find_layout

DOCUMENTS = [[5, 6, 7, 0], [0], [200, 1, 0], [9, 0]]


def build(
    documents: Iterable[Iterable[int]], generation: int = 5, token_size: int = 4, first: int | None = None
) -> bytes:
    """A packed file as that generation's writer laid it out; first: what the index of generation 1 counts from."""
    order = "<" if generation >= 4 else ">"
    arrays = [np.array(list(tokens), f"{order}u{token_size}") for tokens in documents]
    data = b"".join(array.tobytes() for array in arrays)
    if generation == 0:
        return data
    formats = {1: ">I", 2: ">Q", 3: ">QI", 4: "<QI", 5: "<QI"}
    header = struct.pack(formats[generation], len(data), *([token_size] if generation >= 3 else []))
    start = {1: 4, 2: 8, 3: 12, 4: 12, 5: 0}[generation] if first is None else first
    index = []
    for array in arrays:
        index.append((start, array.nbytes))
        start += array.nbytes
    return header + data + pickle.dumps(index, protocol=4)


def write(tmp_path: Path, content: bytes) -> Path:
    path = tmp_path / "x.pbin"
    path.write_bytes(content)
    return path


def refuse(path: Path, offset: int, match: str, use: Callable[[PackedFile], object] = len, **options: Any) -> None:
    with pytest.raises(FormatError, match=match) as caught:
        use(PackedFile(path, **options))
    assert caught.value.offset == offset
    assert caught.value.path == str(path)


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
        with PackedWriter(target, size, file_existence_policy="override") as writer:
            fill(writer)
            assert (writer.n_documents, writer.n_tokens) == (len(packed), len(packed.data))
        assert target.read_bytes() == source.read_bytes()


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
    path = write(tmp_path, build(documents, generation, token_size, first))
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
    """Generations 1 and 2 have tokens where generation 3 has its token size (1 is where many texts begin)."""
    path = write(tmp_path, build([[token, token, 9], [token]], generation))
    with PackedFile(path) as packed:
        assert packed.generation == generation
        assert packed[0].tolist() == [token, token, 9]


@pytest.mark.parametrize("generation", [1, 2, 3, 5])
def test_empty_files(backend: str, tmp_path: Path, generation: int) -> None:
    path = write(tmp_path, build([], generation))
    packed = PackedFile(path)
    assert (packed.generation, len(packed), packed.data.size, packed.index.shape) == (generation, 0, 0, (0, 2))


def test_generation_0_has_tokens_only(tmp_path: Path) -> None:
    path = write(tmp_path, build(DOCUMENTS, 0))
    packed = PackedFile(path, generation=0)
    assert packed.generation == 0
    assert packed.data.tolist() == [token for document in DOCUMENTS for token in document]
    with pytest.raises(ValueError, match="generation 0 have no index"):
        len(packed)
    with pytest.raises(FormatError):
        PackedFile(path)
    refuse(write(tmp_path, b"\0" * 10), 0, "multiple of the token size", generation=0)


def test_opening_decodes_no_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, build(DOCUMENTS))
    kernels.backend()
    monkeypatch.setattr(kernels, "decode_index", lambda _: pytest.fail("the index was decoded"))
    assert PackedFile(path).data.tolist()[:3] == [5, 6, 7]


def test_sequence_of_documents(tmp_path: Path) -> None:
    packed = PackedFile(write(tmp_path, build(DOCUMENTS)))
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
    path = write(tmp_path, build(DOCUMENTS, 1))
    data = pickle.dumps(PackedFile(path, generation=1, check=False))
    assert len(data) < 300
    again = pickle.loads(data)
    assert (again.path, again.generation) == (str(path), 1)
    assert [document.tolist() for document in again] == DOCUMENTS


def test_closed(tmp_path: Path) -> None:
    with PackedFile(write(tmp_path, build(DOCUMENTS))) as packed:
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
        PackedFile(write(tmp_path, build(DOCUMENTS)), generation=6)


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


# Faults


@pytest.mark.parametrize("behind", [b"", b"\x05\0\0\0\x07\0\0\0", b"\x80\x04]\x94", b"\x80\x04]\x94.more", bytes(5000)])
@pytest.mark.parametrize("header", ["<QI", ">QI"])
def test_unfinished_pack(backend: str, tmp_path: Path, behind: bytes, header: str) -> None:
    refuse(write(tmp_path, struct.pack(header, 0, 4) + behind), 0, "unfinished pack", use=repr)


def test_truncated_anywhere(backend: str, tmp_path: Path) -> None:
    content = build(DOCUMENTS)
    for n_bytes in range(len(content)):
        with pytest.raises(FormatError):
            len(PackedFile(write(tmp_path, content[:n_bytes])))


def test_header_faults(tmp_path: Path) -> None:
    good = build(DOCUMENTS)
    length = int.from_bytes(good[:8], "little")
    refuse(write(tmp_path, b""), 0, "header of 12 bytes", use=repr)
    refuse(write(tmp_path, good[:11]), 11, "header of 12 bytes", use=repr)
    for wrong in (length + 10_000, 2**31, 2**63, 2**64 - 1):
        refuse(write(tmp_path, struct.pack("<Q", wrong) + good[8:]), 0, f"data length {wrong} in a file of", use=repr)
    for wrong in (length - 1, length + 1, length - 2):
        refuse(write(tmp_path, struct.pack("<Q", wrong) + good[8:]), 0, "multiple of the token size 4", use=repr)
    for wrong in (0, 3, 8, 2**31):
        content = good[:8] + struct.pack("<I", wrong) + good[12:]
        refuse(write(tmp_path, content), 8, f"token size {wrong}", use=repr)
    refuse(write(tmp_path, good[: 12 + length]), 12 + length, "pickled index", use=repr)
    for wrong in (length - 4, length + 4):  # the index is then looked for in the wrong place
        with pytest.raises(FormatError) as caught:
            len(PackedFile(write(tmp_path, struct.pack("<Q", wrong) + good[8:])))
        assert caught.value.offset >= 12 + wrong


def packed_with(index: list[tuple[int, int]], token_size: int = 2) -> bytes:
    return struct.pack("<QI", 24, token_size) + bytes(range(24)) + pickle.dumps(index, 4)


@pytest.mark.parametrize("entry", [(20, 6), (26, 0), (0, 26), (1, 2), (0, 3), (2**62, 2**62 - 2), (24, 2)])
@pytest.mark.parametrize("n_before", [0, 1, 70_000])
def test_entries_beyond_the_data_or_between_tokens(tmp_path: Path, entry: tuple[int, int], n_before: int) -> None:
    path = write(tmp_path, packed_with([(0, 4)] * n_before + [entry, (4, 4)]))
    start, length = entry
    refuse(path, 36, rf"index entry {n_before} = \({start}, {length}\), expected offset and length in multiples of 2")
    unchecked = PackedFile(path, check=False)
    assert len(unchecked) == n_before + 2
    assert unchecked[-1].tolist() == [0x0504, 0x0706]
    with pytest.raises(FormatError, match=r"index entry \d+ = "):
        unchecked[n_before]


@pytest.mark.parametrize("entry", [(-2, 4), (2, -2), (2**63 - 1, 1)])
def test_entries_that_mean_nothing(backend: str, tmp_path: Path, entry: tuple[int, int]) -> None:
    path = write(tmp_path, packed_with([(0, 4), entry]))
    refuse(path, 36, "index entry 1", check=True)
    refuse(path, 36, "index entry 1", check=False)


def test_a_generation_that_was_asked_for_wrongly(tmp_path: Path) -> None:
    path = write(tmp_path, build(DOCUMENTS, 5))
    refuse(path, 12 + 40, "index entry 0", generation=4)
    for generation in (1, 2, 3):
        with pytest.raises(FormatError):
            len(PackedFile(path, generation=generation))


def observe(content: bytes, path: Path) -> tuple[Any, ...]:
    path.write_bytes(content)
    try:
        with warnings.catch_warnings(record=True):
            warnings.simplefilter("always")
            packed = PackedFile(path)
            documents = [document.tolist() for document in packed]
    except FormatError as error:
        return error.offset, error.found, error.expected
    size = packed.token_size_in_bytes
    assert packed.data_offset + packed.data_length <= len(content)
    for document, (start, length) in zip(documents, packed.index.tolist(), strict=True):
        at = packed.data_offset + start
        assert content[at : at + length] == np.array(document, packed.data.dtype).tobytes()
        assert start + length <= packed.data_length
        assert length == size * len(document)
    return packed.generation, packed.index.tolist(), documents


def mutants(content: bytes) -> Iterable[bytes]:
    for at in range(len(content)):
        value = content[at]
        for byte in {0, 255, (value + 1) & 255, (value - 1) & 255} - {value}:
            yield content[:at] + bytes([byte]) + content[at + 1 :]
        yield content[:at] + content[at + 1 :]
        yield content[: at + 1] + content[at:]


@pytest.mark.parametrize("generation", [1, 2, 3, 4, 5])
def test_every_byte_damaged(tmp_path: Path, generation: int) -> None:
    """A damaged file is refused by a FormatError, or read as the Python twin reads it; the layout is not mistaken."""
    content = build([[5, 6, 0], [0], [1, 0]], generation, 2 if generation >= 3 else 4)
    before, chosen, seen = kernels.backend(), kernels._chosen, {}
    try:
        for name in ("cython", "numpy"):
            kernels.use(name)
            seen[name] = [observe(mutant, tmp_path / "x.pbin") for mutant in mutants(content)]
    finally:
        kernels.use(before)
        kernels._chosen = chosen
    assert seen["cython"] == seen["numpy"]
    generations = {result[0] for result in seen["cython"] if isinstance(result[1], list)}
    assert generations <= ({4, 5} if generation >= 4 else {generation})
    assert generations, "some damage, as in a token, cannot be noticed"
    assert sum(not isinstance(result[1], list) for result in seen["cython"]) > len(content)


def test_a_damaged_length_that_points_into_gigabytes_takes_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "x.pbin"
    with open(path, "wb") as file:
        file.write(struct.pack("<QI", 4, 4) + bytes(4))
        file.truncate(1 << 40)
    refuse(path, 16, "byte 00")


# The writer


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
    assert path.read_bytes() == build(documents, 5, size)
    assert [document.tolist() for document in PackedFile(path)] == documents


@pytest.mark.parametrize("dtype", ["<u2", "<u4", "<i8"])
@pytest.mark.parametrize("size", [2, 4])
def test_pieces_larger_than_the_buffer(tmp_path: Path, dtype: str, size: int) -> None:
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
def test_a_token_that_does_not_fit_is_named_and_nothing_written(tmp_path: Path, size: int, dtype: str) -> None:
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
    assert path.read_bytes() == build([[], [1]], 5, 2)
    for method in (lambda: writer.append([1]), lambda: writer.append_many([1], [1])):
        with pytest.raises(ValueError, match="closed"):
            method()
    writer.close()
    with pytest.raises(ValueError, match="token size 3"):
        PackedWriter(tmp_path / "y.pbin", 3)
    assert [child.name for child in tmp_path.iterdir()] == ["x.pbin"]


def test_file_existence_policy(tmp_path: Path) -> None:
    path = write(tmp_path, b"old")
    for policy in ("error", "skip"):
        with pytest.raises(TargetExists):
            PackedWriter(path, 2, file_existence_policy=policy)  # type: ignore[arg-type]
    with PackedWriter(path, 2, file_existence_policy="override") as writer:
        writer.append([1])
        assert path.read_bytes() == b"old", "the target changes only when all is written"
        with pytest.raises(JobError, match="another process is writing"):
            PackedWriter(path, 2, file_existence_policy="override")
    assert path.read_bytes() == build([[1]], 5, 2)


def test_an_error_leaves_what_was_there(tmp_path: Path) -> None:
    path = write(tmp_path, b"old")
    writer = PackedWriter(path, 2, file_existence_policy="override")
    writer.append([1])
    writer.__exit__(ZeroDivisionError, ZeroDivisionError(), None)
    assert path.read_bytes() == b"old"
    assert [child.name for child in tmp_path.iterdir()] == ["x.pbin"]


def test_a_full_disk_makes_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_find_layout_of_a_bare_array(tmp_path: Path) -> None:
    layout = find_layout(np.frombuffer(build(DOCUMENTS, 2), np.uint8), "x.pbin")
    assert layout == (2, 8, 40, 4)
    assert layout.index_offset == 48
