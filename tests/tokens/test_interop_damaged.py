"""Damaged files of other systems: each damage is a FormatError, and `verify` finds it."""

from __future__ import annotations

import gzip
import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from token_formats import write_tokens

import fastpack
from fastpack import FormatError, open_tokens
from fastpack.tokens.formats import detect_format, formats_of
from fastpack.tokens.interop_formats import FOLDER_FORMATS, INTEROP_FORMATS
from fastpack.tokens.megatron import HEADER

Damage = Callable[[Path], None]


def _patch(name: str, offset: int, data: bytes) -> Damage:
    def damage(folder: Path) -> None:
        with (folder / name).open("r+b") as file:
            file.seek(offset)
            file.write(data)

    return damage


def _cut(name: str, n_bytes: int = 1) -> Damage:
    def damage(folder: Path) -> None:
        path = folder / name
        path.write_bytes(path.read_bytes()[:-n_bytes])

    return damage


def _edit(name: str, *keys: Any, value: Any) -> Damage:
    def damage(folder: Path) -> None:
        tree = json.loads((folder / name).read_text())
        at = tree
        for key in keys[:-1]:
            at = at[key]
        at[keys[-1]] = value
        (folder / name).write_text(json.dumps(tree))

    return damage


def _gz(text: str) -> Damage:
    return lambda folder: (folder / "a.csv.gz").write_bytes(gzip.compress(text.encode())) and None


def _replace(path: Path, old: bytes, new: bytes) -> None:
    content = path.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, new))


HUGE = struct.pack("<Q", 1 << 62)
DAMAGES: list[tuple[str, Damage]] = [
    ("megatron", _cut("a.bin")),
    ("megatron", _cut("a.idx")),
    ("megatron", _cut("a.idx", 40)),
    ("megatron", _cut("a.idx", 9999)),
    ("megatron", _patch("a.idx", 0, b"X")),
    ("megatron", _patch("a.idx", 9, b"\2")),
    ("megatron", _patch("a.idx", 17, b"\6")),
    ("megatron", _patch("a.idx", 17, b"\4")),
    ("megatron", _patch("a.idx", 18, HUGE)),
    ("megatron", _patch("a.idx", 26, HUGE)),
    ("megatron", _patch("a.idx", 26, bytes(8))),
    ("megatron", _patch("a.idx", HEADER.size, struct.pack("<i", -5))),
    ("megatron", _patch("a.idx", HEADER.size, struct.pack("<i", 3))),
    ("megatron", _patch("a.idx", HEADER.size + 12 + 8, HUGE)),
    ("megatron", _patch("a.idx", HEADER.size + 36, struct.pack("<q", 1))),
    ("megatron", _patch("a.idx", HEADER.size + 36 + 8, struct.pack("<q", 1 << 40))),
    ("megatron", _patch("a.idx", HEADER.size + 36 + 16, struct.pack("<q", -1))),
    ("datatrove", _cut("a.ds")),
    ("datatrove", _cut("a.ds", 2)),
    ("datatrove", _cut("a.ds.index")),
    ("datatrove", _cut("a.ds.index", 8)),
    ("datatrove", _patch("a.ds.index", 0, HUGE)),
    ("datatrove", _patch("a.ds.index", 8, struct.pack("<Q", 3))),  # documents that overlap
    ("datatrove", _patch("a.ds.index", 16, HUGE)),
    ("datatrove", _patch("a.ds.metadata", 18, b"9")),
    ("datatrove", lambda folder: (folder / "a.ds.metadata").write_bytes(b"x|2\n99\n") and None),
    ("datatrove", lambda folder: (folder / "a.ds.index").unlink()),
    ("olmo", _cut("a.npy")),
    ("olmo", _cut("a.csv.gz", 5)),
    ("olmo", _gz("0,3\n3,99\n")),
    ("olmo", _gz("0,3\n4,6\n")),
    ("olmo", _gz("0,3\n2,9\n")),
    ("olmo", _gz("0,4\n4,3\n3,9\n")),
    ("olmo", _gz("-1,9\n")),
    ("olmo", _gz("3,0\n")),
    ("olmo", _gz("0,x\n")),
    ("olmo", _gz("0\n")),
    ("olmo", _gz("0," + "9" * 40)),
    ("olmo", _gz('0,3,"' + "x" * 200_000)),
    ("olmo", lambda folder: (folder / "a.csv.gz").write_bytes(b"no gzip") and None),
    ("llmc", _cut("a.bin")),
    ("llmc", _cut("a.bin", 4)),
    ("llmc", lambda folder: (folder / "a.bin").write_bytes((folder / "a.bin").read_bytes()[:500]) and None),
    ("llmc", _patch("a.bin", 8, struct.pack("<i", -1))),
    ("llmc", _patch("a.bin", 8, struct.pack("<i", (1 << 31) - 1))),
    ("llmc", _patch("a.bin", 0, b"X")),
    ("llmc", _patch("a.bin", 4, b"\2")),
    ("llmc", _patch("a.bin", 0, struct.pack("<ii", 20240522, 1))),
    ("litdata", _cut("a/chunk-0-0.bin")),
    ("litdata", _patch("a/chunk-0-0.bin", 0, b"\7")),
    ("litdata", _patch("a/chunk-0-0.bin", 4, b"\0")),
    ("litdata", _patch("a/chunk-0-0.bin", 0, b"\xff\xff\xff\xff")),
    ("litdata", _patch("a/chunk-0-0.bin", 8, b"\xff\xff\xff\xff")),
    ("litdata", _patch("a/chunk-0-0.bin", 8, struct.pack("<II", 32, 28))),  # descending
    ("litdata", _cut("a/chunk-0-0.bin", 9999)),
    ("litdata", _cut("a/index.json", 3)),
    ("litdata", _edit("a/index.json", "chunks", 0, "dim", value=7)),
    ("litdata", _edit("a/index.json", "chunks", 0, "chunk_size", value=1 << 61)),
    ("litdata", _edit("a/index.json", "chunks", 0, "chunk_size", value="3")),
    ("litdata", _edit("a/index.json", "chunks", 0, "filename", value="../a/chunk-0-0.bin")),
    ("litdata", _edit("a/index.json", "chunks", 0, "filename", value="missing.bin")),
    ("litdata", _edit("a/index.json", "config", "compression", value="zstd")),
    ("litdata", _edit("a/index.json", "config", "data_format", value=["no_header_numpy:9"])),
    ("litdata", _edit("a/index.json", "config", value=None)),
    ("mds", _cut("a/shard.00000.mds")),
    ("mds", _patch("a/shard.00000.mds", 0, b"\7")),
    ("mds", _patch("a/shard.00000.mds", 4, b"\0\0")),
    ("mds", _patch("a/shard.00000.mds", 0, b"\xff\xff\xff\xff")),
    ("mds", _patch("a/shard.00000.mds", 8, b"\xff\xff\xff\xff")),
    ("mds", _patch("a/shard.00000.mds", 8, struct.pack("<I", 20))),  # descending
    ("mds", _cut("a/shard.00000.mds", 9999)),
    ("mds", _cut("a/index.json", 3)),
    ("npy", _cut("a.npy")),
    ("npy", _cut("a.npy", 9999)),
    ("npy", _patch("a.npy", 6, b"\x09")),
    ("npy", _patch("a.npy", 8, b"\xff\xff")),
    ("npy", lambda folder: _replace(folder / "a.npy", b"(9,)", b"(99999999999999,)")),
    ("npy", lambda folder: _replace(folder / "a.npy", b"<u2", b"|O ")),
    ("nanogpt", _cut("a.bin")),
    ("pbin", _cut("a.pbin")),
    ("pbin", _cut("a.pbin", 9999)),
    ("pbin", _patch("a.pbin", 0, HUGE)),
    ("pbin", _patch("a.pbin", 8, struct.pack("<I", 3))),
    ("mds", _edit("a/index.json", "shards", 0, "samples", value=1 << 61)),
    ("mds", _edit("a/index.json", "shards", 0, "samples", value=2)),
    ("mds", _edit("a/index.json", "shards", 0, "raw_data", value=None)),
    ("mds", _edit("a/index.json", "shards", 0, "raw_data", "basename", value="/etc/passwd")),
    ("mds", _edit("a/index.json", "shards", 0, "compression", value="zstd")),
    ("mds", _edit("a/index.json", "shards", 0, "column_encodings", value=["str"])),
    ("mds", _edit("a/index.json", "shards", 0, "column_sizes", value=[4])),
    ("mds", _edit("a/index.json", "shards", 0, "version", value=1)),
]


def _open_and_check(path: Path, name: str) -> None:
    with open_tokens(path, format=name, eos_token_id=0) as tokens:
        tokens.document_ends()
        tokens.is_contiguous()


@pytest.mark.parametrize(("name", "damage"), [pytest.param(*row, id=f"{row[0]}-{i}") for i, row in enumerate(DAMAGES)])
def test_damage_is_a_format_error_and_a_finding(tmp_path: Path, name: str, damage: Damage) -> None:
    path = write_tokens(tmp_path, name, [[1, 2, 3, 0], [5, 0], [7, 8, 0]], "uint16")
    _open_and_check(path, name)
    damage(tmp_path)
    with pytest.raises(FormatError):
        _open_and_check(path, name)
    if any(row.name == name for row in formats_of(path)):  # not if the first bytes are those of no or another format
        assert not fastpack.verify(path).is_sound


@pytest.mark.parametrize("name", FOLDER_FORMATS)
def test_a_folder_with_a_damaged_index_is_recognised(tmp_path: Path, name: str) -> None:
    path = write_tokens(tmp_path, name, [[1, 2, 3, 0], [5, 0]], "uint16")
    _cut("a/index.json", 3)(tmp_path)
    assert detect_format(path).name == name
    (finding,) = fastpack.verify(path).findings
    assert (Path(finding.file).name, finding.expected) == ("index.json", "JSON")


@pytest.mark.parametrize("at", range(12))
def test_damaged_samples_of_mds_are_format_errors(tmp_path: Path, at: int) -> None:
    path = write_tokens(tmp_path, "mds", [[1, 2, 3, 0], [5, 0], [7, 8, 0]], "uint16")
    shard = path / "shard.00000.mds"
    whole = shard.read_bytes()
    start = struct.unpack_from("<I", whole, 4)[0]
    for value in (0, 1, 255):
        shard.write_bytes(whole[: start + at] + bytes([value]) + whole[start + at + 1 :])
        try:
            _open_and_check(path, "mds")
        except FormatError:
            continue
        assert at >= 6 or whole[start + at] == value  # the bytes of tokens may be anything


@pytest.mark.parametrize("name", [row.name for row in INTEROP_FORMATS if row.stores_documents])
@given(data=st.data())
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_random_damage_never_raises_anything_else(tmp_path: Path, name: str, data: st.DataObject) -> None:
    folder = tmp_path / "x"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    path = write_tokens(folder, name, [[1, 2, 3, 0], [5, 0], [7, 8, 0]], "uint16")
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    file = data.draw(st.sampled_from(files))
    content = bytearray(file.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, 9999)) % len(content)] = data.draw(st.integers(0, 255))
    file.write_bytes(content[: data.draw(st.integers(0, 9999)) % len(content)] if data.draw(st.booleans()) else content)
    try:
        with open_tokens(path, format=name) as tokens:
            for i in range(min(tokens.n_documents or 0, 5)):
                tokens.document(i)
            tokens.document_spans()
    except FormatError:
        pass
