"""Manifests of shards: round trip, and rejection of damaged and hostile files."""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastpack.errors import FormatError, JobError
from fastpack.tokens.manifest import manifest_file as manifest
from fastpack.tokens.manifest.manifest_file import DTYPES, HEADER, PLAIN, RAW, SECTIONS, Entry, Manifest

U16 = np.dtype(np.uint16)
PARTS = st.text("ab.é\x01-", min_size=1, max_size=4).map(lambda part: "a" if part in (".", "..") else part)
NAMES = st.lists(PARTS, min_size=1, max_size=3).map("/".join)


def entry(name: str, length: int = 10, **others: Any) -> Entry:
    facts = {"size": 128 + 2 * length, "mtime_ns": 5, "offset": 128, "length": length, "tokens": length}
    return Entry(name, **{**facts, "dtype": U16, "kind": PLAIN, **others})


def is_inside(name: str) -> bool:
    return not {"", ".", ".."} & set(name.split("/"))


@st.composite
def entries(draw: st.DrawFn) -> list[Entry]:
    found = []
    for name in sorted(draw(st.sets(NAMES, min_size=1, max_size=6))):
        dtype = draw(st.sampled_from(DTYPES))
        length, offset, more = (draw(st.integers(0, 1 << 40)) for _ in range(3))
        found.append(
            Entry(
                name,
                offset + length * dtype.itemsize + more,
                draw(st.integers(-(1 << 62), 1 << 62)),
                offset,
                length,
                length,
                dtype,
                draw(st.sampled_from([PLAIN, PLAIN | RAW])),
                draw(st.integers(-1, 1 << 50)),
                draw(st.binary(min_size=16, max_size=16)),
            )
        )
    return found


@given(entries(), st.sets(st.sampled_from(["has_checksums", "dtype_is_given", "dtype_is_doubtful", "has_zero_tail"])))
def test_round_trip(tmp_path_factory: Any, given_entries: list[Entry], flags: set[str]) -> None:
    path = tmp_path_factory.mktemp("manifest") / "manifest.fpm"
    n_bytes = manifest.write(path, given_entries[::-1], flags=flags)
    found = Manifest(path)
    assert n_bytes == path.stat().st_size == found.n_bytes
    assert found.times_count
    expected = sorted(given_entries, key=lambda one: one.name.split("/"))
    assert found.names() == [one.name for one in expected] == [found.name(k) for k in range(found.n_shards)]
    for name, column in (
        ("sizes", "size"),
        ("mtimes_ns", "mtime_ns"),
        ("offsets", "offset"),
        ("lengths", "length"),
        ("tokens", "tokens"),
        ("documents", "documents"),
        ("kinds", "kind"),
    ):
        assert getattr(found, name).tolist() == [getattr(one, column) for one in expected]
    assert [DTYPES[code] for code in found.dtypes] == [one.dtype for one in expected]
    assert [row.tobytes() for row in found.checksums] == [one.checksum for one in expected]
    assert found.cumulative.tolist() == [sum(one.tokens for one in expected[:k]) for k in range(len(expected) + 1)]
    for flag in ("has_checksums", "dtype_is_given", "dtype_is_doubtful", "has_zero_tail"):
        assert getattr(found, flag) == (flag in flags)


@settings(max_examples=3, deadline=None)
@given(st.integers(1, 255))
def test_every_changed_byte_is_detected(tmp_path_factory: Any, flip: int) -> None:
    path = tmp_path_factory.mktemp("manifest") / "manifest.fpm"
    manifest.write(path, [entry("a.npy"), entry("b/c.npy", kind=PLAIN, documents=3)])
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ flip]) + whole[place + 1 :])
        with pytest.raises(FormatError, match=r"manifest\.fpm: at byte"):
            Manifest(path)
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(FormatError):
            Manifest(path)
    path.write_bytes(whole + b"\0")
    with pytest.raises(FormatError, match=f"found a file of {len(whole) + 1} bytes, expected {len(whole)}"):
        Manifest(path)


def with_right_crc(data: bytes) -> bytes:
    return data[:12] + struct.pack("<I", zlib.crc32(data[16:])) + data[16:]


def test_changed_bytes_with_a_valid_crc_give_an_error_or_valid_numbers(tmp_path: Path) -> None:
    """Hostile contents: no number leads outside the files or raises anything but FormatError."""
    path = tmp_path / "manifest.fpm"
    manifest.write(path, [entry("a.npy"), entry("b/c.npy", kind=0, tokens=30, offset=0), entry("d.bin", kind=3)])
    whole, refused = path.read_bytes(), 0
    for place in range(16, len(whole)):
        for flip in (1, 0x80, 0xFF, whole[place], whole[place] ^ ord("."), whole[place] ^ ord("/")):
            path.write_bytes(with_right_crc(whole[:place] + bytes([whole[place] ^ flip]) + whole[place + 1 :]))
            try:
                found = Manifest(path)
            except FormatError as error:
                assert 0 <= error.offset <= len(whole)  # noqa: PT017 (most of many)
                refused += 1
                continue
            assert all(is_inside(name) for name in found.names())
            for number in np.flatnonzero(found.kinds & PLAIN).tolist():
                end = found.offsets[number] + found.lengths[number] * DTYPES[found.dtypes[number]].itemsize
                assert 0 <= found.offsets[number] <= end <= found.sizes[number]
            assert (np.diff(found.cumulative) == found.tokens).all()
    assert refused > len(whole)


@pytest.mark.parametrize(
    "name",
    ["../a.npy", "a/../b.npy", "..", "/etc/passwd", "a//b.npy", "./a.npy", "a/.", "a/", "", "s3://other/a.npy", "a/.."],
)
def test_names_outside_the_folder_are_rejected(name: str, tmp_path: Path) -> None:
    path = tmp_path / "manifest.fpm"
    manifest.write(path, [entry(name), entry("zzz.npy")])
    with pytest.raises(FormatError, match="expected a path within the folder of the manifest"):
        Manifest(path)


@pytest.mark.parametrize("name", ["...", "a/.b", ".hidden", "..a.npy", "a..", "a/b/...c"])
def test_names_with_dots_are_accepted(name: str, tmp_path: Path) -> None:
    manifest.write(tmp_path / "m.fpm", [entry(name)])
    assert Manifest(tmp_path / "m.fpm").names() == [name]


def test_duplicate_unordered_or_undecodable_names_are_rejected(tmp_path: Path) -> None:
    path = tmp_path / "manifest.fpm"
    manifest.write(path, [entry("a.npy"), entry("b.npy")])
    whole = path.read_bytes()
    for names in (b"b.npy\0a.npy\0", b"a.npy\0a.npy\0"):
        path.write_bytes(with_right_crc(whole[: -len(names)] + names))
        with pytest.raises(FormatError, match="names in order, each once"):
            Manifest(path)
    path.write_bytes(with_right_crc(whole[:-12] + b"\xff.npy\0b.npy\0"))
    with pytest.raises(FormatError, match="not UTF-8"):
        Manifest(path)
    path.write_bytes(with_right_crc(whole[:-12] + b"a\0npy\0b.npy\0"))
    with pytest.raises(FormatError, match="zero byte"):
        Manifest(path)


@pytest.mark.parametrize(
    ("section", "value", "expected"),
    [
        ("sizes", -1, "0 or more"),
        ("offsets", -8, "0 or more"),
        ("offsets", 1 << 62, "tokens within the size"),
        ("lengths", 11, "tokens within the size"),
        ("lengths", (1 << 63) - 1, "tokens within the size"),
        ("tokens", 9, "the length"),
        ("documents", -2, "-1 or more"),
        ("cumulative", 1, "the tokens of all shards before"),
        ("name_bounds", 3, "zero byte"),
        ("dtypes", 200, "number of a dtype"),
        ("kinds", 4, "at most 3"),
    ],
)
def test_inconsistent_numbers_are_rejected(section: str, value: int, expected: str, tmp_path: Path) -> None:
    path = tmp_path / "manifest.fpm"
    manifest.write(path, [entry("a.npy"), entry("b.npy")])
    data = bytearray(path.read_bytes())
    start = HEADER.unpack(data[: HEADER.size])[8 + [one.name for one in SECTIONS].index(section)]
    new = bytes([value]) if section in ("dtypes", "kinds") else struct.pack("<q", value)
    data[start : start + len(new)] = new
    path.write_bytes(with_right_crc(bytes(data)))
    with pytest.raises(FormatError, match=expected) as caught:
        Manifest(path)
    assert caught.value.offset == start or value == 1 << 62  # which is told of the lengths


def test_sums_beyond_64_bits_are_rejected(tmp_path: Path) -> None:
    path = tmp_path / "manifest.fpm"
    odd = [entry(name, kind=0, length=1 << 61, tokens=0, size=0, offset=0) for name in "abcdefgh"]
    manifest.write(path, odd)
    with pytest.raises(FormatError, match=r"more than 2\^62 rows"):
        Manifest(path)


def test_later_versions_and_other_files_are_rejected(tmp_path: Path) -> None:
    path = tmp_path / "manifest.fpm"
    manifest.write(path, [entry("a.npy")])
    whole = path.read_bytes()
    path.write_bytes(whole[:8] + struct.pack("<I", 2) + whole[12:])
    with pytest.raises(FormatError, match="found version 2 of the format, expected 1: a newer fastpack may read it"):
        Manifest(path)
    for other in (b"", b"\x93NUMPY", b"x" * 500, whole[:151]):
        path.write_bytes(other)
        with pytest.raises(FormatError):
            Manifest(path)
    with pytest.raises(FileNotFoundError):
        Manifest(tmp_path / "absent.fpm")


def test_times_count_while_the_manifest_keeps_its_modification_time(tmp_path: Path) -> None:
    path = tmp_path / "manifest.fpm"
    manifest.write(path, [entry("a.npy")])
    assert Manifest(path).times_count
    moved = tmp_path / "moved.fpm"
    path.rename(moved)
    assert Manifest(moved).times_count
    os.utime(moved, ns=(1, 1))
    assert not Manifest(moved).times_count


def test_dtypes_and_names_that_cannot_be_stored_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="the dtype complex64 cannot be in a manifest"):
        manifest.write(tmp_path / "m.fpm", [entry("a.npy", dtype=np.dtype(np.complex64))])
    with pytest.raises(JobError, match="not UTF-8"):
        manifest.write(tmp_path / "m.fpm", [entry(os.fsdecode(b"\xff.npy"))])
    assert not list(tmp_path.iterdir())
