"""The first documents of packed files, shards and JSON lines, compared with their contents."""

from __future__ import annotations

import gzip
import itertools
import json
import os
import re
import time
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastpack.documents.raw_index import write_raw_index
from fastpack.escape import escape_token
from fastpack.inspection import preview_lines as lines_module
from fastpack.inspection import preview_shards as shards_module
from fastpack.inspection.preview import kind_of, preview_packed
from fastpack.inspection.preview_lines import preview_lines
from fastpack.inspection.preview_shards import find, preview_shards
from fastpack.inspection.preview_text import document_lines, line_lines
from fastpack.inspection.preview_tokens import Reader
from fastpack.io import pickled_index
from fastpack.tokenizers.bytes_tokenizer import BytesTokenizer
from fastpack.tokenizers.decode import TokenDecoder
from fastpack.tokenizers.tokenizer_spec import TokenizerSpec
from fastpack.tokens.pbin.packed_file import PackedFile
from fastpack.tokens.pbin.packed_writer import PackedWriter

EOS = 256
BYTES = Reader(TokenDecoder(BytesTokenizer()), EOS)
HOSTILE = "\x1b[2J\x9b1A\r\b\0\x7f\u202e|\\|\u2028\U000e0001"
GIB = 1 << 30


def pack(path: Path, documents: list[list[int]], size: int = 2) -> Path:
    with PackedWriter(path, size, if_exists="overwrite") as writer:
        for ids in documents:
            writer.append(np.array(ids, np.int64))
    return path


def is_safe(line: str) -> bool:
    line = re.sub(r"[\u200c\u200d]", "", line)
    return not any(unicodedata.category(character) in {"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"} for character in line)


@settings(max_examples=40)
@given(st.lists(st.lists(st.integers(0, 255), max_size=20), max_size=12), st.integers(0, 8), st.integers(1, 12))
def test_packed_documents_equal_those_of_the_file(
    tmp_path_factory: pytest.TempPathFactory, documents: list[list[int]], start: int, max_tokens: int
) -> None:
    path = pack(tmp_path_factory.mktemp("p") / "a.pbin", [[*ids, EOS] for ids in documents])
    reader = Reader(BYTES.decoder, EOS, max_tokens)
    starts = [0, *itertools.accumulate(len(ids) + 1 for ids in documents)]
    expected = [
        {
            "document": number,
            "start": starts[number],
            "tokens": len(ids) + 1,
            "ids": [*ids, EOS][:max_tokens],
            "pieces": [escape_token(bytes([i]) if i < 256 else b"<|endoftext|>") for i in [*ids, EOS][:max_tokens]],
            "text": (bytes(ids) + b"<|endoftext|>" if len(ids) < max_tokens else bytes(ids[:max_tokens])).decode(
                errors="replace"
            ),
            "ends_with_eos": True,
        }
        for number, ids in enumerate(documents)
    ][start:]
    if start and start >= len(documents):
        with pytest.raises(ValueError, match=f"there is no document {start}: the file has {len(documents)}"):
            list(preview_packed(path, reader, start))
    else:
        assert list(preview_packed(path, reader, start)) == expected


def cut(tokens: list[int], eos: int) -> list[list[int]]:
    documents: list[list[int]] = [[]]
    for token in tokens:
        documents[-1].append(token)
        if token == eos:
            documents.append([])
    return [ids for ids in documents if ids]


@settings(max_examples=40)
@given(
    st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=30), min_size=1, max_size=4),
    st.integers(0, 40),
    st.sampled_from(["uint16", "uint32", "int64"]),
)
def test_shards_are_split_at_eos(
    tmp_path_factory: pytest.TempPathFactory, files: list[list[int]], start: int, dtype: str
) -> None:
    folder = tmp_path_factory.mktemp("s")
    for number, tokens in enumerate(files):
        np.save(folder / f"{number}.npy", np.array(tokens, dtype))
    expected = []
    skip = start
    for number, tokens in enumerate(files):
        if skip >= len(tokens) and skip:
            skip -= len(tokens)
            continue
        first = skip
        for place, ids in enumerate(cut(tokens[skip:], 0)):
            expected.append((f"{number}.npy", None if skip else place, first, ids, ids[-1] == 0))
            first += len(ids)
        skip = 0
    shards = find(folder)
    if start and not expected:
        with pytest.raises(ValueError, match=f"no token {start}: the shards hold {sum(map(len, files))}"):
            list(preview_shards(shards, Reader(None, 0), start))
        return
    found = list(preview_shards(shards, Reader(None, 0), start))
    assert [
        (os.path.basename(one["file"]), one["document"], one["start"], one["ids"], one["ends_with_eos"])
        for one in found
    ] == expected


def test_shards_without_eos_are_shown_in_chunks(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(10, dtype=np.uint16))
    found = list(preview_shards(find(tmp_path), Reader(max_tokens=4)))
    assert [one["ids"] for one in found] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert {(one["document"], one["ends_with_eos"], one["pieces"]) for one in found} == {(None, None, None)}


@given(st.lists(st.text(max_size=8).map(str.encode) | st.binary(max_size=4), max_size=8), st.integers(-1, 8))
def test_bars_separate_tokens_and_nothing_moves_the_cursor(pieces: list[bytes], eos_at: int) -> None:
    found = {
        "document": 0,
        "start": 0,
        "tokens": len(pieces),
        "ids": list(range(len(pieces))),
        "pieces": [escape_token(piece) for piece in pieces],
        "text": None,
        "ends_with_eos": None,
    }
    lines = list(document_lines(found, eos_at))
    assert all(map(is_safe, lines))
    joined = "".join(line[12:] for line in lines[2:])
    shaded = "\n".join(document_lines(found, eos_at, shades=True))
    assert is_safe(re.sub(r"\x1b\[[0-9;]*m|\n", "", shaded))
    bars = len(re.sub(r"\\\|", "", joined)) - len(re.sub(r"\\\||\|", "", joined))
    assert bars == max(0, len(pieces) - 1)


def test_the_layout_of_tokens() -> None:
    found = {"document": 2, "start": 9, "tokens": 7, "ids": [1, 2, 3, 4, 0], "text": "a|b\nc", "ends_with_eos": False}
    found["pieces"] = ["a", "|b", "\n", "\\xe6", "</s>"]
    assert list(document_lines(found, 0)) == [
        "document 2, from token 9: 7 tokens, the first 5 shown, no EOS at its end",
        "  ids       1 2 3 4 0 ...",
        "  tokens    a|\\|b|\\n",
        "            |\\xe6|[EOS 0]|...",
        "  text      a|b",
        "            c",
    ]
    blue, sand, green, end = "\x1b[38;5;16;48;5;153m", "\x1b[38;5;16;48;5;223m", "\x1b[1;38;5;16;48;5;150m", "\x1b[0m"
    assert list(document_lines(found, 0, shades=True))[2:4] == [
        f"  tokens    {blue}a{end}{sand}|b{end}{blue}\\n{end}",
        f"            {sand}\\xe6{end}{green}</s>{end}...",
    ]


def test_control_characters_are_escaped(tmp_path: Path) -> None:
    path = pack(tmp_path / "a.pbin", [[*HOSTILE.encode(), 0xE6, 0x97, EOS]])
    (found,) = preview_packed(path, BYTES)
    assert all(map(is_safe, document_lines(found, EOS)))
    assert found["pieces"][0] == "\\u001b"
    assert found["pieces"][-3:-1] == ["\\xe6", "\\x97"]
    jsonl = tmp_path / "a.jsonl"
    jsonl.write_bytes(
        json.dumps({"text": HOSTILE}).encode() + b"\n" + HOSTILE.encode() + b'\xff\n{"text": "\\udc00 x"}\n{"text": ""}'
    )
    lines = list(preview_lines(jsonl))
    assert all(is_safe(line) for one in lines for line in line_lines(one, None))
    assert lines[0]["text"] == escape_token(HOSTILE.encode())
    assert lines[1]["error"].startswith("not UTF-8: byte 0xff")
    assert lines[3]["error"] == "empty text"


def test_golden_packed_files_decode_to_their_texts(golden: Path) -> None:
    folder = golden / "modalities"
    tokenizer = folder / "tokenizers" / "tok_bpe2000"
    reader = Reader(TokenDecoder(TokenizerSpec.from_name(str(tokenizer)).build()), 0, 10**6)
    documents = list(preview_packed(folder / "pbin" / "docs_bpe2000.pbin", reader))
    texts = [one["text"].removesuffix("<|endoftext|>") for one in documents]
    lines = list(preview_lines(folder / "jsonl" / "docs.jsonl", reader=reader, max_characters=10**6))
    kept = [line for line in lines if line["error"] is None]
    assert len(texts) == len(kept) > 5
    assert [one["ids"] for one in documents] == [line["ids"] for line in kept]
    raw = [json.loads(line)["text"] for line in (folder / "jsonl" / "docs.jsonl").read_bytes().splitlines() if line]
    assert texts == [text for text in raw if text]
    assert all(one["ends_with_eos"] for one in documents)


@pytest.mark.parametrize("name", ["npy_u16", "bin_u32"])
def test_golden_shards(golden: Path, name: str) -> None:
    folder = golden / "kempnerforge" / "shards" / name
    paths = sorted(folder.iterdir())
    whole = [np.load(path) if path.suffix == ".npy" else np.fromfile(path, np.uint32) for path in paths]
    found = list(preview_shards(find(folder), Reader(None, 2, 10**6)))
    for path, tokens in zip(paths, whole, strict=True):
        assert [one["ids"] for one in found if one["file"] == str(path)] == cut(tokens.tolist(), 2)


METADATA = """
name: x
dataset_path: /nowhere
description: x
date_downloaded: x
download_source: x
data_content: text
tokenized_info: {tokenizer: t5-base, file_prefix: /elsewhere/tokenized, dtype: uint16, file_extension: tok}
"""


def test_tatm_metadata_selects_the_files_and_their_dtype(tmp_path: Path) -> None:
    (tmp_path / "metadata.yaml").write_text(METADATA)
    np.array([5, 6, 1, 7], np.uint16).tofile(tmp_path / "tokenized_0.tok")
    np.array([9, 9], np.uint32).tofile(tmp_path / "other_0.tok")
    np.array([9, 9], np.uint32).tofile(tmp_path / "other.bin")
    shards = find(tmp_path)
    assert [Path(shards.scan(number).path).name for number in range(len(shards.files))] == ["tokenized_0.tok"]
    assert [one["ids"] for one in preview_shards(shards, Reader(None, 1))] == [[5, 6, 1], [7]]
    assert find(tmp_path / "other.bin").info is None
    assert find(tmp_path / "tokenized_0.tok").dtype == np.uint16
    wide = next(iter(preview_shards(find(tmp_path, "uint32"), Reader())))
    assert wide["ids"] == [5 + (6 << 16), 1 + (7 << 16)]


@pytest.mark.parametrize("indexed", [False, True])
@settings(max_examples=30)
@given(texts=st.lists(st.text(max_size=30), min_size=1, max_size=10), start=st.integers(0, 5))
def test_json_lines(tmp_path_factory: pytest.TempPathFactory, indexed: bool, texts: list[str], start: int) -> None:
    path = tmp_path_factory.mktemp("l") / "a.jsonl"
    rows = [json.dumps({"a": {"b": text}}).encode() for text in texts]
    path.write_bytes(b"\n".join(rows))
    starts = [0, *itertools.accumulate(len(row) + 1 for row in rows)]
    if indexed:
        write_raw_index(path.with_suffix(".idx"), [(at, len(row)) for at, row in zip(starts, rows, strict=False)])
    if start and start >= len(texts):
        with pytest.raises(ValueError, match=f"there is no line {start}"):
            list(preview_lines(path, ".a.b", start=start))
        return
    found = list(preview_lines(path, ".a.b", BYTES, start))
    assert [(one["line"], one["start"], one["bytes"]) for one in found] == [
        (number, starts[number], len(rows[number])) for number in range(start, len(texts))
    ]
    plain = [text.encode("utf-8", "surrogatepass") for text in texts[start:]]
    assert [one["ids"] for one in found if one["error"] is None] == [[*text, EOS] for text in plain if text]


def test_indexes_and_compressed_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines_module, "_ROWS_BY_ONE", 100)
    rows = [json.dumps({"text": f"line {number}"}).encode() for number in range(1000)]
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\n".join(rows) + b"\n")
    starts = [0, *itertools.accumulate(len(row) + 1 for row in rows)]
    write_raw_index(tmp_path / "b.idx", list(zip(starts, map(len, rows), strict=False)))
    expected = [f"line {number}" for number in range(1000)]
    assert [one["text"] for one in preview_lines(path, index_path=tmp_path / "b.idx")] == expected
    assert [one["text"] for one in preview_lines(path)] == expected
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(path.read_bytes()))
    found = list(preview_lines(tmp_path / "a.jsonl.gz", start=990))
    assert [(one["line"], one["start"], one["text"]) for one in found] == [
        (number, None, f"line {number}") for number in range(990, 1000)
    ]


def test_lines_longer_than_the_buffer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines_module, "MAX_LINE_BYTES", 100)
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text": "a"}\n' + b"x" * 200_000 + b'\n{"text": "b"}\n')
    first, long = preview_lines(path, max_characters=5)
    assert first["text"] == "a"
    assert (long["bytes"], long["text"], long["error"]) == (None, "xxxxx...", "more than 100 bytes: not read here")
    write_raw_index(tmp_path / "a.idx", [(0, 13), (14, 200_000), (200_015, 13)])
    assert [one["bytes"] for one in preview_lines(path)] == [13, 200_000, 13]


def sparse(path: Path, head: bytes, n_bytes: int, tail: bytes = b"") -> Path:
    with open(path, "wb") as file:
        file.write(head)
        file.seek(n_bytes)
        file.write(tail)
        file.truncate(n_bytes + len(tail))
    return path


def huge_pbin(folder: Path) -> Any:
    n_tokens = 50 * GIB
    rows = [(4 * number, 4) for number in range(200_000)] + [(800_000, 2 * n_tokens - 800_000)]
    head = (2 * n_tokens).to_bytes(8, "little") + (2).to_bytes(4, "little") + np.array([7, 1] * 50, "<u2").tobytes()
    return preview_packed(
        sparse(folder / "a.pbin", head, 12 + 2 * n_tokens, pickled_index.encode(np.array(rows))), Reader(None, 1)
    )


def huge_bin(folder: Path) -> Any:
    path = sparse(folder / "a.bin", np.array([7, 1] * 50, "<u4").tobytes(), 100 * GIB)
    return preview_shards(find(path), Reader(None, 1))


def huge_jsonl(folder: Path) -> Any:
    return preview_lines(sparse(folder / "a.jsonl", b'{"text": "x"}\n' * 50, 100 * GIB), reader=BYTES)


@pytest.mark.parametrize("make", [huge_pbin, huge_bin, huge_jsonl])
def test_previews_of_100_gib_are_fast(tmp_path: Path, make: Callable[[Path], Any]) -> None:
    try:
        found = make(tmp_path)
        started = time.process_time()
        first = list(itertools.islice(found, 3))
    except OSError as error:
        pytest.skip(f"no file of 100 GiB here: {error}")
    assert [one["ids"] for one in first] == [[120, EOS] if make is huge_jsonl else [7, 1]] * 3
    assert time.process_time() - started < 2  # reading the whole file takes half a minute, its index 0.1 s


def test_the_search_for_the_end_of_a_document_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards_module, "MAX_SEARCHED", 40_000)
    np.save(tmp_path / "a.npy", np.array([1, 0] + [5] * 50_000 + [0], np.uint16))
    first, second = preview_shards(find(tmp_path), Reader(None, 0, 3))
    assert (first["tokens"], second["tokens"], second["ids"]) == (2, None, [5, 5, 5])
    lines = list(document_lines(second, 0))
    assert lines[0] == "a.npy, document 1, from token 2: 3 tokens shown, no end of a document for a long way"
    assert lines[1] == "  ids       5 5 5 ..."


def test_kinds(tmp_path: Path, golden: Path) -> None:
    for name, kind in [("a.jsonl", "jsonl"), ("a.jsonl.gz", "jsonl"), ("a.pbin", "pbin"), ("a.npy", "shards")]:
        (tmp_path / name).touch()
        assert kind_of(tmp_path / name) == kind
    assert kind_of(tmp_path) == "shards"
    assert kind_of(golden / "energon" / "split") == "webdataset"
    assert kind_of(golden / "energon" / "jsonl" / "plain.jsonl") == "webdataset"


def _documents(path: Path) -> list[Any]:
    kind = kind_of(path)
    if kind == "jsonl":
        return list(preview_lines(path))
    return list(preview_packed(path, BYTES) if kind == "pbin" else preview_shards(find(path), BYTES))


def _write(folder: Path, name: str, data: bytes | np.ndarray[Any, Any]) -> Path:
    path = folder / name
    if isinstance(data, bytes):
        path.write_bytes(data)
    else:
        np.save(path, data)
    return path


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.md", b"x", "a.md: cannot be previewed: neither one of .jsonl"),
        ("a.pbin", b"", "a.pbin: at byte 0: found the end of a file of 0 bytes"),
        ("a.bin", b"", "cannot mmap an empty file"),
        ("a.npy", np.array([300], np.uint16), "a.npy: token 300 at position 0 is none of the 257 of the tokenizer"),
        ("a.npy", np.array([-1], np.int64), "token -1 at position 0 is none"),
        ("a.npy", np.array([1.5]), "a.npy: found float64, expected token ids"),
        ("a.npy", np.zeros((2, 2), np.int64), "an array of 2 dimensions, expected one"),
    ],
)
def test_inputs_without_a_preview(tmp_path: Path, name: str, data: Any, message: str) -> None:
    with pytest.raises((ValueError, RuntimeError), match=re.escape(message)):
        _documents(_write(tmp_path, name, data))


@pytest.mark.parametrize(
    ("metadata", "dtype", "message"),
    [
        ("tokenized_info: {}", None, "metadata.yaml: not what tatm writes"),
        ("[", None, "not a YAML file"),
        (METADATA, "uint17", "dtype 'uint17' is unknown: uint16 or uint32"),
        (METADATA, "float32", "is not an integer dtype"),
    ],
)
def test_invalid_metadata_and_dtypes(tmp_path: Path, metadata: str, dtype: str | None, message: str) -> None:
    (tmp_path / "metadata.yaml").write_text(metadata)
    (tmp_path / "tokenized_0.tok").write_bytes(b"abcd")
    with pytest.raises(ValueError, match=message):
        find(tmp_path, dtype)
    with pytest.raises(RuntimeError, match=r"no \.bin or \.npy files"):
        find(_empty(tmp_path))
    with pytest.raises(FileNotFoundError):
        kind_of(tmp_path / "absent.pbin")


def _empty(folder: Path) -> Path:
    (folder / "empty").mkdir()
    return folder / "empty"


def test_packed_files_without_an_eos_token(tmp_path: Path) -> None:
    path = pack(tmp_path / "a.pbin", [[1, 2], [3]], 1)
    assert [one["ends_with_eos"] for one in preview_packed(path, Reader())] == [None, None]
    assert [one["ends_with_eos"] for one in preview_packed(path, Reader(None, 2, 1))] == [True, False]
    with PackedFile(path) as file:
        assert len(file) == 2
