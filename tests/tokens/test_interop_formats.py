"""Token files of other systems: against files that their writers made, and against their limits."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from token_formats import path_of, read_tokens, write_tokens

import fastpack
from fastpack import FormatError, open_tokens
from fastpack.tokens.formats import detect_format, format_named
from fastpack.tokens.interop_formats import INTEROP_FORMATS
from fastpack.tokens.litdata import LitdataWriter
from fastpack.tokens.mds_writer import MdsWriter
from fastpack.tokens.megatron import MAX_LENGTH

GOLDEN = Path(__file__).parent.parent / "golden" / "interop"
DOCUMENTS: dict[str, list[list[int]]] = json.loads((GOLDEN / "documents.json").read_text())
NAMES = [row.name for row in INTEROP_FORMATS]
GOLDENS = [
    ("megatron", "{}_text_document", {}),
    ("megatron", "{}_text_document.bin", {}),
    ("megatron", "{}_text_document.idx", {}),
    ("datatrove", "{}.ds", {}),
    ("datatrove", "{}.ds.index", {}),
    ("olmo", "{}_olmo.npy", {}),
    ("llmc", "{}_llmc.bin", {"eos_token_id": 0}),
    ("litdata", "{}_litdata", {}),
    ("mds", "{}_mds_ndarray", {}),
]


# ---- files of the real writers


@pytest.mark.parametrize("which", ["narrow", "wide"])
@pytest.mark.parametrize(("name", "file", "options"), GOLDENS)
def test_files_of_the_real_writers_are_detected_and_read(
    name: str, file: str, options: dict[str, Any], which: str
) -> None:
    path = GOLDEN / file.format(which)
    assert detect_format(path).name == name
    assert read_tokens(path, **options) == DOCUMENTS[which]


@pytest.mark.parametrize(("file", "dtype"), [("narrow_mds_bytes", "uint16"), ("wide_mds_bytes", "int32")])
def test_bytes_in_mds_are_tokens_of_the_given_dtype(file: str, dtype: str) -> None:
    assert read_tokens(GOLDEN / file, dtype=dtype) == DOCUMENTS[file.partition("_")[0]]
    with pytest.raises(FormatError, match="dtype is unknown"):
        open_tokens(GOLDEN / file)


@pytest.mark.parametrize("file", ["sentences", "modes"])
def test_megatron_sequences_and_modes(file: str) -> None:
    assert read_tokens(GOLDEN / file) == DOCUMENTS["narrow"]


def test_mds_tokens_are_found_among_other_columns() -> None:
    assert read_tokens(GOLDEN / "fixed_mds") == [[number + i for i in range(4)] for number in range(5)]


def test_nanogpt_must_be_named() -> None:
    path = GOLDEN / "nanogpt_train.bin"
    assert detect_format(path).name == "bin"
    assert read_tokens(path, format="nanogpt", eos_token_id=0) == DOCUMENTS["narrow"]


@pytest.mark.parametrize("which", ["narrow", "wide"])
def test_written_bytes_equal_those_of_the_real_writers(tmp_path: Path, which: str) -> None:
    documents = DOCUMENTS[which]
    kinds = {"megatron": "uint16" if which == "narrow" else "int32"}
    for name in ("megatron", "datatrove", "olmo", "llmc"):
        write_tokens(tmp_path, name, documents, kinds.get(name, "uint16" if which == "narrow" else "uint32"))
        for ours, theirs in {
            "megatron": {"a.bin": "_text_document.bin", "a.idx": "_text_document.idx"},
            "datatrove": {"a.ds": ".ds", "a.ds.index": ".ds.index", "a.ds.metadata": ".ds.metadata"},
            "olmo": {"a.npy": "_olmo.npy"},
            "llmc": {"a.bin": "_llmc.bin"},
        }[name].items():
            expected = (GOLDEN / f"{which}{theirs}").read_bytes()
            if ours == "a.ds.metadata":  # they state the token size twice, and their merger fails at that
                expected = expected.replace(b"|2|2", b"|2").replace(b"|4|4", b"|4")
            assert (tmp_path / ours).read_bytes() == expected, ours
            (tmp_path / ours).unlink()
    lines = gzip.decompress((GOLDEN / f"{which}_olmo.csv.gz").read_bytes()).decode().split()
    rows = [line.split(",")[:2] for line in lines]
    assert gzip.decompress((tmp_path / "a.csv.gz").read_bytes()).decode() == "".join(f"{a},{b}\n" for a, b in rows)


@pytest.mark.parametrize("which", ["narrow", "wide"])
def test_written_chunks_equal_those_of_the_real_writers(tmp_path: Path, which: str) -> None:
    dtype = np.dtype("uint16" if which == "narrow" else "int32")
    flat = [token for document in DOCUMENTS[which] for token in document]
    lengths = [len(document) for document in DOCUMENTS[which]]
    for writer_type, golden, chunk_bytes in (
        (LitdataWriter, GOLDEN / f"{which}_litdata", 200),
        (MdsWriter, GOLDEN / f"{which}_mds_ndarray_{dtype}", 700),
    ):
        out = tmp_path / golden.name
        with writer_type(out, dtype, chunk_bytes=chunk_bytes) as writer:
            writer.append_many(flat, lengths)
        assert sorted(path.name for path in out.iterdir()) == sorted(path.name for path in golden.iterdir())
        for path in out.iterdir():
            if path.name != "index.json":
                assert path.read_bytes() == (golden / path.name).read_bytes()
        ours, theirs = (json.loads((folder / "index.json").read_text()) for folder in (out, golden))
        key = "chunks" if "chunks" in theirs else "shards"
        assert ours[key] == theirs[key]


# ---- what is written returns


def _documents(largest: int) -> st.SearchStrategy[list[list[int]]]:
    ids = st.sampled_from([0, 1, largest - 1, largest]) | st.integers(0, largest)
    return st.lists(st.lists(ids, max_size=20), max_size=12)


@pytest.mark.parametrize("name", [row.name for row in INTEROP_FORMATS if row.stores_documents])
@given(data=st.data())
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_documents_return_unchanged(tmp_path: Path, name: str, data: st.DataObject) -> None:
    row = format_named(name)
    dtype = data.draw(st.sampled_from(row.dtypes))
    documents = data.draw(_documents(int(np.iinfo(dtype).max)))
    if not row.stores_empty:
        documents = [document for document in documents if document]
    path = write_tokens(tmp_path, name, documents, dtype)
    with open_tokens(path, format=name, dtype=dtype) as tokens:
        assert [tokens.document(i).tolist() for i in range(len(documents))] == documents
        assert tokens.n_tokens == sum(map(len, documents))
        assert tokens.document_ends().tolist() == np.cumsum([len(document) for document in documents]).tolist()
        spans = tokens.document_spans()
        lengths = [int(n) // tokens.dtype.itemsize for span in spans for n in span.rows[:, 1]]
        assert lengths == [len(document) for document in documents]


@pytest.mark.parametrize("size", [10, 200, 3000])
@pytest.mark.parametrize("writer_type", [LitdataWriter, MdsWriter])
def test_documents_longer_than_a_chunk_get_their_own(tmp_path: Path, writer_type: Any, size: int) -> None:
    lengths = np.array([3, size, 1, size, size, 2], np.int64)
    flat = np.arange(lengths.sum()) % 60_000
    with writer_type(tmp_path / "a", np.dtype("uint16"), chunk_bytes=500) as writer:
        writer.append_blocks(iter(np.array_split(flat, 7)), lengths)
    tokens = open_tokens(tmp_path / "a")
    assert np.concatenate([segment.open() for segment in tokens.segments()]).tolist() == flat.tolist()
    assert tokens.document_ends().tolist() == np.cumsum(lengths).tolist()


def test_wrong_lengths_leave_nothing_behind(tmp_path: Path) -> None:
    for name in ("megatron", "litdata", "mds"):
        create = format_named(name).create
        assert create is not None
        for wrong in (4, 6):
            writer = create(path_of(tmp_path, name), np.dtype("uint16"), "error")
            with pytest.raises(ValueError, match="tokens"):
                writer.append_blocks(iter([np.arange(5)]), np.array([wrong]))
            assert list(tmp_path.iterdir()) == []


# ---- limits


def test_documents_that_a_format_cannot_hold_are_refused_before_writing(tmp_path: Path) -> None:
    create = format_named("megatron").create
    assert create is not None
    writer = create(tmp_path / "a", np.dtype("uint16"), "error")
    with pytest.raises(ValueError, match=f"holds at most {MAX_LENGTH}"):
        writer.append_blocks(iter(()), np.array([MAX_LENGTH + 1]))
    for name, match in (("llmc", "counts at most"), ("litdata", "smaller than 4 GiB"), ("mds", "smaller than 4 GiB")):
        create = format_named(name).create
        assert create is not None
        writer = create(path_of(tmp_path, name), np.dtype("uint16"), "error")
        with pytest.raises(ValueError, match=match):
            writer.append_blocks(iter(()), np.array([1 << 31]))
    assert list(tmp_path.iterdir()) == []


def test_the_index_of_a_jsonl_file_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "a.idx").write_bytes(b"\x80\x04]\x94.")
    with pytest.raises(FileExistsError, match="not Megatron's"):
        write_tokens(tmp_path, "megatron", [[1, 0]])
    assert [path.name for path in tmp_path.iterdir()] == ["a.idx"]


def test_folders_of_other_files_are_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "notes.txt").write_text("keep")
    with pytest.raises(fastpack.JobError, match=r"no index\.json"):
        write_tokens(tmp_path, "mds", [[1, 0]])
    assert (tmp_path / "a" / "notes.txt").read_text() == "keep"


def test_a_folder_that_fits_two_formats_names_both(tmp_path: Path) -> None:
    (tmp_path / "index.json").write_text('{"chunks": [], "shards": []}')
    with pytest.raises(FormatError, match="litdata and mds"):
        open_tokens(tmp_path)


def test_raw_and_true_npy_files_are_told_apart(tmp_path: Path) -> None:
    np.save(tmp_path / "true.npy", np.arange(10, dtype=np.uint16))
    np.arange(10, dtype=np.uint16).tofile(tmp_path / "raw.npy")
    assert detect_format(tmp_path / "true.npy").name == "npy"
    assert detect_format(tmp_path / "raw.npy").name == "olmo"
    with pytest.raises(FormatError, match="unknown dtype"):
        open_tokens(tmp_path / "raw.npy")
    tokens = open_tokens(tmp_path / "raw.npy", dtype="uint16", eos_token_id=4)
    assert (tokens.n_documents, tokens.document(0).tolist()) == (2, [0, 1, 2, 3, 4])
    with pytest.raises(FormatError, match="of the format npy"):
        open_tokens(tmp_path / "true.npy", format="olmo")


def test_llmc_documents_that_begin_with_the_eos_token(tmp_path: Path) -> None:
    path = write_tokens(tmp_path, "llmc", [[0, 5, 6], [0, 7], [0, 8, 9]], "uint16")
    assert read_tokens(path, eos_token_id=0) == [[0, 5, 6], [0, 7], [0, 8, 9]]


def test_facts_of_every_format(tmp_path: Path) -> None:
    for name in NAMES:
        if name != "nanogpt":
            (tmp_path / name).mkdir()
            path = write_tokens(tmp_path / name, name, [[1, 2, 3, 0], [5, 0], [7, 8, 0]], "uint16")
            facts = fastpack.inspect(path, eos_token_id=0)
            assert (facts.kind, facts.tokens, facts.documents, facts.largest_id) == (name, 9, 3, 8)


# ---- verify, on files that can be read

DETECTED = [name for name in NAMES if name != "nanogpt"]  # its bytes are those of `bin`
ENDED = [[1, 2, 3, 0], [5, 0], [7, 8, 0]]


def findings(path: Path, **options: Any) -> list[str]:
    report = fastpack.verify(path, **options)
    return [str(finding.found) for finding in report.findings]


@pytest.mark.parametrize("name", DETECTED)
def test_verify_of_a_sound_file_finds_nothing(name: str, tmp_path: Path) -> None:
    path = write_tokens(tmp_path, name, ENDED, "uint16")
    report = fastpack.verify(path, vocab_size=9)
    assert report.is_sound
    assert [str(finding) for finding in report.findings] == []


@pytest.mark.parametrize("name", DETECTED)
def test_verify_names_a_token_outside_the_vocabulary(name: str, tmp_path: Path) -> None:
    path = write_tokens(tmp_path, name, ENDED, "uint16")
    assert findings(path, vocab_size=8) == ["token 8"]
    assert not fastpack.verify(path, vocab_size=8).is_sound


@pytest.mark.parametrize("name", [name for name in DETECTED if name != "llmc"])  # llm.c stores no boundaries
def test_verify_counts_documents_that_do_not_end_in_eos(name: str, tmp_path: Path) -> None:
    path = write_tokens(tmp_path, name, [*ENDED, [4], [6, 0], [2, 3]], "uint16")
    (found,) = findings(path, eos_token_id=0)
    assert found == "2 of 6 documents that do not end in token 0, the first is document 3"
