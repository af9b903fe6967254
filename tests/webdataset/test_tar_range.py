"""Reading one sample's range of a tar: windows, damage, and ranges that are not one sample."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastpack import FormatError
from fastpack.webdataset import tar_range
from fastpack.webdataset.tar_range import MappedTar, ReadTar, SampleRange, Walker

MEMBERS = [("k.small", b"small"), ("k.large", bytes(range(256)) * 300), ("k.empty", b""), ("k.last", b"last" * 200)]


def tar_of(members: list[tuple[str, bytes]], kind: int = tarfile.GNU_FORMAT) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=kind) as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
        end = tar.offset
    return out.getvalue()[:end]


def read(tar: Any, start: int, end: int, window: int = tar_range.WINDOW) -> tuple[str, list[tuple[str, bytes]]]:
    found = SampleRange(tar, start, end, Walker(), window)
    return found.key, [(member.field, found.content(member)) for member in found.members]


@pytest.mark.parametrize("opened", [MappedTar, ReadTar])
@pytest.mark.parametrize("window", [1, 512, 1300, 1 << 18])
@pytest.mark.parametrize("kind", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_the_window_size_does_not_change_the_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: Any, window: int, kind: int, backend: str
) -> None:
    monkeypatch.setattr(tar_range, "HEADER_WINDOW", window)
    before = tar_of([("j.txt", b"before")], kind)
    key = f"{'folder/' * 40}ü"
    data = before + tar_of([(f"{key}.{name[2:]}", content) for name, content in MEMBERS], kind)
    path = tmp_path / "a.tar"
    path.write_bytes(data + tar_of([("l.txt", b"behind")], kind) + bytes(1024))
    found, fields = read(opened(path), len(before), len(data), window)
    assert found == key
    assert fields == [(name[2:], content) for name, content in MEMBERS]


def test_unselected_contents_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = tar_of([("k.bin", bytes(10 << 20)), ("k.json", b"{}")])
    path = tmp_path / "a.tar"
    path.write_bytes(data)
    tar, n_bytes = ReadTar(path), []
    reading = ReadTar._read_into
    monkeypatch.setattr(
        ReadTar, "_read_into", lambda self, out, start: n_bytes.append(len(out)) or reading(self, out, start)
    )
    found = SampleRange(tar, 0, len(data), Walker())
    assert found.content(found.members[1]) == b"{}"
    assert sum(n_bytes) <= tar_range.WINDOW + tar_range.HEADER_WINDOW


def test_one_walker_reads_samples_with_many_field_names(tmp_path: Path) -> None:
    walker, offset = Walker(), 0
    pieces = [tar_of([(f"{n}.{n}.{k}", b"%d" % k) for k in range(n % 40 + 1)]) for n in range(50)]
    path = tmp_path / "a.tar"
    path.write_bytes(b"".join(pieces))
    tar = MappedTar(path)
    for n, piece in enumerate(pieces):
        found = SampleRange(tar, offset, offset + len(piece), walker)
        assert found.key == str(n)
        assert [found.content(member) for member in found.members] == [b"%d" % k for k in range(n % 40 + 1)]
        assert [member.field for member in found.members] == [f"{n}.{k}" for k in range(n % 40 + 1)]
        offset += len(piece)


def test_keys_longer_than_the_walkers_buffer(tmp_path: Path) -> None:
    key = "long/" * 900
    data = tar_of([(f"{key}a.txt", b"x"), (f"{key}a.{'p' * 3000}", b"y")])
    (tmp_path / "a.tar").write_bytes(data)
    found, fields = read(MappedTar(tmp_path / "a.tar"), 0, len(data))
    assert (found, fields) == (f"{key}a", [("txt", b"x"), ("p" * 3000, b"y")])


@pytest.mark.parametrize("opened", [MappedTar, ReadTar])
@pytest.mark.parametrize(
    ("members", "text"),
    [
        ([("noextension", b"")], "found no sample, expected one in the bytes up to 512"),
        ([("__meta__/a.txt", b"")], "found no sample"),
        ([("a.txt", b""), ("b.txt", b"")], "found the samples 'a', 'b', expected one"),
    ],
)
def test_ranges_that_are_not_one_sample_are_rejected(tmp_path: Path, opened: Any, members: Any, text: str) -> None:
    data = tar_of(members)
    (tmp_path / "a.tar").write_bytes(data)
    with pytest.raises(FormatError, match=text):
        SampleRange(opened(tmp_path / "a.tar"), 0, len(data), Walker())


def sparse_tar(real_size: int, map_text: bytes) -> bytes:
    """A sparse file in PAX 1.0 format: its map, padded to 512 bytes, then its data."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        info = tarfile.TarInfo("ignored")
        info.pax_headers = {
            "GNU.sparse.major": "1",
            "GNU.sparse.minor": "0",
            "GNU.sparse.name": "k.bin",
            "GNU.sparse.realsize": str(real_size),
        }
        data = map_text.ljust(512, b"\0") + b"data"
        info.size = len(data)
        tar.addfile(info, io.BytesIO(data))
        end = tar.offset
    return out.getvalue()[:end]


@pytest.mark.parametrize("opened", [MappedTar, ReadTar])
def test_sparse_files_include_their_holes(tmp_path: Path, opened: Any) -> None:
    path = tmp_path / "a.tar"
    data = sparse_tar(1000, b"1\n500\n4\n")
    path.write_bytes(data)
    assert read(opened(path), 0, len(data)) == ("k", [("bin", bytes(500) + b"data" + bytes(496))])
    for size, map_text, text in (
        (1 << 40, b"1\n500\n4\n", "a sparse file of 1099511627776 bytes"),
        (4000, b"1\n0\n4000\n", "sparse file"),
    ):
        data = sparse_tar(size, map_text)
        path.write_bytes(data)
        found = SampleRange(opened(path), 0, len(data), Walker())
        with pytest.raises(FormatError, match=text):
            found.content(found.members[0])


GOOD = tar_of([("k.txt", b"text"), ("k.json", b"{}" * 300)], tarfile.PAX_FORMAT)


@given(st.integers(0, len(GOOD) - 1), st.integers(1, 255))
def test_a_changed_byte_is_an_error_or_data(tmp_path_factory: pytest.TempPathFactory, at: int, change: int) -> None:
    path = tmp_path_factory.getbasetemp() / "changed.tar"
    data = bytearray(GOOD)
    data[at] ^= change
    path.write_bytes(data)
    for opened in (MappedTar, ReadTar):
        try:
            _, fields = read(opened(path), 0, len(GOOD))
        except FormatError:
            continue
        assert [len(content) for _, content in fields] == [4, 600]


@given(st.integers(0, len(GOOD) - 1))
def test_a_truncated_file_is_an_error(tmp_path_factory: pytest.TempPathFactory, n_bytes: int) -> None:
    path = tmp_path_factory.getbasetemp() / "cut.tar"
    path.write_bytes(GOOD[:n_bytes])
    for opened in (MappedTar, ReadTar):
        with pytest.raises(FormatError):
            read(opened(path), 0, len(GOOD))


def test_cached_bytes_are_detected(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(np.zeros(100_000, np.uint8).tobytes())
    tar = MappedTar(path)
    tar.will_need(5000, 70_000)
    assert tar.read(5000, 3) == bytes(3)
    assert tar.is_in_memory(5000, 3)
    ReadTar(path).will_need(0, 10)
    assert not ReadTar(path).is_in_memory(0, 10)
