"""Fuzz targets for the formats of Modalities: pickled indices, packed files of every generation, JSON lines."""

from __future__ import annotations

import json
import struct
import warnings
import zlib
from pathlib import Path
from typing import Any

import fuzz_pickled_index
import numpy as np
from fuzz_harness import GOLDEN, Target, refused, written

from fastpack.documents.lines_reader import LargeFileLinesReader
from fastpack.documents.raw_index import read_raw_index
from fastpack.errors import FormatError
from fastpack.io import pickled_index
from fastpack.kernels import lines_cy, lines_np
from fastpack.kernels.codecs import json_cy, json_np, pickled_index_decoder_np
from fastpack.kernels.codecs.pickled_index_errors import STRICTER_THAN_PICKLE, Fault
from fastpack.tokens.pbin.packed_file import PackedFile

Rows = list[tuple[int, int]]

HEADERS = {1: ">I", 2: ">Q", 3: ">QI", 4: "<QI", 5: "<QI"}
BASES = {1: (4, 1), 2: (8,), 3: (12,), 4: (12,), 5: (0,)}
LINES = (b'{"text": "a"}', b'{"text": "\xc3\xa9\\u00e9", "n": [1, -0.5e+3, null]}', b"", b"NaN", b"\xff", b'"\\ud800"')


def pickled_rows(data: bytes) -> tuple[Rows, int] | None:
    """Return the rows and their size in bytes by the standard library; None for documented rejections."""
    found = fuzz_pickled_index.expected(data)
    ours = fuzz_pickled_index.outcome(pickled_index_decoder_np.decode_index, data)
    if found is None or (isinstance(ours[0], Fault) and ours[0] in STRICTER_THAN_PICKLE):
        return None
    if any(start < 0 or length < 0 or start + length >= 2**63 for start, length in found[0]):
        return None
    return found


def check_index(data: bytes, folder: Path) -> bool:
    fuzz_pickled_index.differential(data)
    path, theirs = written(folder / "x.idx", data), pickled_rows(data)
    try:
        rows = read_raw_index(path)
    except FormatError as error:
        assert theirs is None
        return refused(error, path, len(data))
    assert theirs is not None
    assert [tuple(row) for row in rows.tolist()] == theirs[0]
    _check_lines_of(folder, path, rows)
    return True


def _check_lines_of(folder: Path, path: Path, rows: Any) -> None:
    """An index is used with a raw file: its entries are the line starts, or it is rejected."""
    raw = b"\n".join(LINES[:3])
    raw_path = written(folder / "x.jsonl", raw)
    ends = [end for end in range(len(raw) + 1) if raw[end : end + 1] in (b"\n", b"")]
    starts = [0, *(end + 1 for end in ends[:-1])]
    right = {(start, end - start) for start, end in zip(starts, ends, strict=True)}
    try:
        with warnings.catch_warnings(action="ignore"):  # of lengths in characters
            reader = LargeFileLinesReader(raw_path, path, encoding=None)
    except FormatError as error:
        assert set(map(tuple, rows.tolist())) != right
        refused(error, path, path.stat().st_size)
        return
    assert all(start in starts and start + length <= len(raw) for start, length in rows.tolist())
    assert list(reader) == [raw[a : a + n] for a, n in rows.tolist()]


def _header(data: bytes, generation: int) -> tuple[int, int, int] | None:
    """Return header size, data length and token size if the file can be of that generation."""
    size = struct.calcsize(HEADERS[generation])
    if len(data) < size:
        return None
    length, token_size = (*struct.unpack(HEADERS[generation], data[:size]), 4)[:2]
    if token_size not in (1, 2, 4) or length % token_size or size + length >= len(data):
        return None
    if length == 0:
        index = pickled_rows(data[size:])
        if index is None or index[1] != len(data) - size:
            return None
    return size, length, token_size


def _base(rows: Rows, length: int, bases: tuple[int, ...]) -> int | None:
    return next((b for b in bases if rows and rows[0][0] == b and sum(rows[-1]) == b + length), None)


def _found_generation(data: bytes) -> int | None:
    if len(data) >= 12 and int.from_bytes(data[8:12], "little") in (1, 2, 4):
        return 5
    for generation in (2, 1):
        header = _header(data, generation)
        index = pickled_rows(data[header[0] + header[1] :]) if header else None
        if header and index and (not index[0] or _base(index[0], header[1], BASES[generation]) is not None):
            return generation
    return 3 if len(data) >= 12 and int.from_bytes(data[8:12], "big") in (1, 2, 4) else None


def documents(data: bytes, requested: int | None) -> tuple[int, list[list[int]]] | None:
    """Return the generation and every document's tokens, by the table in `pbin_layout` and the standard library."""
    generation = _found_generation(data) if requested is None else requested
    header = _header(data, generation) if generation is not None else None
    if header is None or generation is None:
        return None
    size, length, token_size = header
    index = pickled_rows(data[size + length :])
    if index is None:
        return None
    rows = index[0]
    if requested is None and generation == 5 and _base(rows, length, (12,)) is not None:
        generation = 4
    base = _base(rows, length, BASES[generation])
    base = BASES[generation][0] if base is None else base
    order = "little" if generation >= 4 else "big"
    tokens = []
    for offset, n_bytes in rows:
        start = offset - base
        if start < 0 or start + n_bytes > length or start % token_size or n_bytes % token_size:
            return None
        text = data[size + start : size + start + n_bytes]
        tokens.append([int.from_bytes(text[i : i + token_size], order) for i in range(0, n_bytes, token_size)])  # type: ignore[arg-type]
    return generation, tokens


def check_packed(data: bytes, folder: Path) -> bool:
    """Check the file with the detected generation, and with each given one."""
    path = written(folder / "x.pbin", data)
    forced = zlib.crc32(data) % 6
    if forced:
        _check_generation(path, data, forced)
    else:
        _check_without_index(path, data)
    return _check_generation(path, data, None)


def _check_generation(path: Path, data: bytes, generation: int | None) -> bool:
    theirs = documents(data, generation)
    try:
        with PackedFile(path, generation=generation) as file:
            found = [document.astype(np.int64) % 2**32 for document in file]
            ours = file.generation, [document.tolist() for document in found]
    except FormatError as error:
        assert theirs is None, (generation, theirs)
        return refused(error, path, len(data))
    if theirs is not None and generation in (4, 5):
        theirs = generation, theirs[1]
    assert ours == theirs, (generation, ours, theirs)
    return True


def _check_without_index(path: Path, data: bytes) -> None:
    try:
        with PackedFile(path, generation=0) as file:
            tokens = file.data.tolist()
    except FormatError as error:
        assert len(data) % 4
        refused(error, path, len(data))
        return
    assert tokens == list(struct.unpack(f">{len(data) // 4}I", data))


def packed(generation: int, token_size: int, lengths: tuple[int, ...]) -> bytes:
    """Return a packed file as written by that generation."""
    order = ">" if generation < 4 else "<"
    n_tokens = sum(lengths)
    tokens = np.arange(n_tokens).astype(f"{order}u{token_size}").tobytes()
    header = struct.pack(HEADERS[generation], *(len(tokens), token_size)[: len(HEADERS[generation]) - 1])
    ends = np.cumsum([0, *lengths]) * token_size + BASES[generation][0]
    return header + tokens + pickled_index.encode(np.stack([ends[:-1], np.diff(ends)], axis=1))


def packed_seeds() -> list[bytes]:
    files = [packed(g, 4, lengths) for g in (1, 2) for lengths in ((3, 2), ())]
    files += [packed(g, size, lengths) for g in (3, 4, 5) for size in (1, 2, 4) for lengths in ((3, 0, 2), ())]
    return [*files, np.arange(6, dtype=">u4").tobytes(), (GOLDEN / "modalities/editing/tiny.pbin").read_bytes()[:4096]]


def index_seeds() -> list[bytes]:
    folder = GOLDEN / "modalities/idx"
    return fuzz_pickled_index.seeds() + [(folder / f"{name}.idx").read_bytes() for name in ("one", "edge_u2028")]


def check_lines(data: bytes, folder: Path) -> bool:
    """Line offsets and the JSON check: the implementations compared with each other, `split` and `json.loads`."""
    array = np.frombuffer(data, np.uint8)
    lines = data.split(b"\n")[:-1]
    expected = [(sum(map(len, lines[:i])) + i, len(line)) for i, line in enumerate(lines)]
    for implementation in (lines_cy, lines_np):
        out = np.empty((len(lines) + 1, 2), np.int64)
        n_rows = int(implementation.index_lines(array, 0, 0, out)[0])
        assert [tuple(row) for row in out[:n_rows].tolist()] == expected
    rows = np.array(expected, np.int64).reshape(-1, 2)
    verdicts = np.empty((2, len(rows)), np.uint8)
    json_np.validate_json_rows(array, rows, verdicts[0])
    json_cy.validate_json_rows(array, rows, verdicts[1])
    assert (verdicts[1] <= verdicts[0]).all(), "a line accepted by the kernel that json.loads rejects"
    for line, sure in zip(lines, verdicts[1].tolist(), strict=True):
        assert sure or not _is_plain_json(line), line
    return bool(verdicts[1].any())


def _is_plain_json(line: bytes) -> bool:
    """Return whether the compiled check must accept the line: RFC 8259 in ASCII, with moderate depth and numbers."""
    if not line.isascii() or len(line) > 200 or b"\\u" in line:
        return False

    def refuse(name: str) -> None:
        raise ValueError(name)

    try:
        json.loads(line.decode(), parse_constant=refuse)
    except (ValueError, RecursionError):
        return False
    return True


def line_seeds() -> list[bytes]:
    folder = GOLDEN / "modalities/jsonl"
    names = ("edge_scalars", "edge_faulty", "edge_invalid_utf8", "edge_bigint", "edge_nul", "edge_padded")
    return [b"\n".join([*LINES, b""]), *((folder / f"{name}.jsonl").read_bytes()[:1000] + b"\n" for name in names)]


JSON_TOKENS = tuple(b'" \\u \\ud83d\\ude00 { } [ ] : , - 1e5 0. true NaN'.split())
JSON_TOKENS += (b"\n", b"\r\n", b"\0", b"\xef\xbb\xbf", b"\xe2\x80\xa8", b"\xed\xa0\x80", b"\xc0\x80")
JSON_TOKENS += (b"[" * 60, b"9" * 99)
MACHINE = tuple((pickled_index_decoder_np.Machine, name) for name in ("step", "put", "get", "take_decimal"))

TARGETS = (
    Target("idx", index_seeds, check_index, trace=MACHINE, max_bytes=1024),
    Target("pbin", packed_seeds, check_packed, trace=MACHINE, max_bytes=1024),
    Target("lines", line_seeds, check_lines, JSON_TOKENS, max_bytes=2048),
)
