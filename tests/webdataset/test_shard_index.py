"""Scans of shards match Energon's rows and tarfile; damaged shards and `.tar.idx` files."""

from __future__ import annotations

import json
import os
import re
import resource
import stat
import struct
import tarfile
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tar_files import tar_bytes

from fastpack.documents.offset_index import (
    jsonl_offsets_path,
    read_jsonl_offsets,
    read_offset_index,
    write_offset_index,
)
from fastpack.errors import FormatError, JobError
from fastpack.webdataset import shard_index as webdataset
from fastpack.webdataset.shard_index import ShardScan, scan_shard, scan_shards, shard_index_path

FORMATS = (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)


def archive(members: Sequence[tuple[str, bytes]], tar_format: int = tarfile.GNU_FORMAT) -> bytes:
    return tar_bytes(members, tar_format)


def write(folder: Path, data: bytes, name: str = "x.tar") -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def rows_of(scan: ShardScan) -> list[list[object]]:
    """Return the rows as in Energon's table sample_parts."""
    names = [name.decode() for name in scan.field_names]
    columns = (scan.field_samples.tolist(), names, scan.field_offsets.tolist(), scan.field_sizes.tolist())
    return [list(row) for row in zip(*columns, strict=True)]


def samples_of(scan: ShardScan) -> list[list[object]]:
    keys = [key.decode() for key in scan.sample_keys]
    sizes = np.diff(scan.sample_offsets).tolist()
    return [list(row) for row in zip(keys, range(len(keys)), scan.sample_offsets.tolist(), sizes, strict=False)]


@pytest.mark.parametrize("kind", ["v7", "ustar", "gnu", "pax", "pax_global", "sparse_0.0", "sparse_0.1", "sparse_1.0"])
@pytest.mark.usefixtures("backend")
def test_rows_of_every_format_match_energon(golden: Path, kind: str) -> None:
    expected = json.loads((golden / "energon" / "walk" / "expected.json").read_text())[f"{kind}.tar"]
    scan = scan_shard(golden / "energon" / "walk" / f"{kind}.tar")
    assert samples_of(scan) == expected["samples"]
    assert rows_of(scan) == expected["sample_parts"]
    assert scan.sample_offsets.tolist() == expected["tar_idx"]
    is_sparse = kind == "gnu" or kind.startswith("sparse")
    assert [scan.field_names[field] for field in scan.sparse_fields] == ([b"bin"] if is_sparse else [])


@pytest.mark.usefixtures("backend")
def test_rows_of_a_dataset_match_energon(golden: Path) -> None:
    root = golden / "energon" / "split"
    expected = json.loads((root / "expected.json").read_text())
    for number, shard in enumerate(json.loads(expected[".info.json"])["shard_counts"]):
        scan = scan_shard(root / shard)
        wanted = sorted(row[1:] for row in expected["samples"] if row[0] == number)
        assert sorted(samples_of(scan)) == wanted
        assert sorted(rows_of(scan)) == sorted(row[1:] for row in expected["sample_parts"] if row[0] == number)
        index = read_offset_index(shard_index_path(root / shard))
        assert index.tolist() == scan.sample_offsets.tolist() == expected["tar_idx"][f"{shard}.idx"]


KEYS = st.lists(st.text("ab/é", min_size=1, max_size=150), min_size=1, max_size=6)


@given(KEYS, st.lists(st.sampled_from(["jpg", "seg.png", "", "日"]), min_size=1, max_size=3), st.sampled_from(FORMATS))
def test_scans_agree_with_tarfile(
    tmp_path_factory: pytest.TempPathFactory, keys: list[str], fields: list[str], tar_format: int
) -> None:
    names = [f"{key}.{field}" for key in keys for field in fields]
    try:
        data = archive([(name, name.encode()) for name in names], tar_format)
    except ValueError:  # too long for ustar
        data = archive([(name, name.encode()) for name in names])
    scan = scan_shard(path := write(tmp_path_factory.mktemp("x"), data))
    with tarfile.open(path) as tar:
        members = tar.getmembers()
    pairs = zip(scan.field_samples, scan.field_names, strict=True)
    found = [b"%s.%s" % (scan.sample_keys[sample], name) for sample, name in pairs]
    assert found == [member.name.encode() for member in members]
    assert scan.field_offsets.tolist() == [member.offset_data for member in members]
    assert scan.field_sizes.tolist() == [member.size for member in members]
    assert (scan.n_samples, scan.n_fields, scan.n_members) == (len(scan.sample_keys), len(names), len(names))
    firsts = np.flatnonzero(np.diff(scan.field_samples, prepend=-1))
    assert scan.sample_offsets[:-1].tolist() == [members[first].offset for first in firsts]
    for field, (offset, size) in enumerate(zip(scan.field_offsets, scan.field_sizes, strict=True)):
        assert data[offset : offset + size] == names[field].encode()


def test_ignored_members_belong_to_the_range_of_the_previous_sample(tmp_path: Path) -> None:
    names = ["first", "a.jpg", "__m__/x.json", "a.txt", "between", "b.jpg", "last"]
    scan = scan_shard(write(tmp_path, archive([(name, b"") for name in names])))
    assert scan.sample_offsets.tolist() == [512, 5 * 512, 7 * 512]
    assert scan.n_members == 7


def test_columns_are_contiguous_int64(tmp_path: Path) -> None:
    scan = scan_shard(write(tmp_path, archive([("a.jpg", b"1")])))
    for name in ("sample_offsets", "field_samples", "field_offsets", "field_sizes", "sparse_fields"):
        column = getattr(scan, name)
        assert column.dtype == np.int64
        assert column.flags.c_contiguous
        assert column.base is None or column.base.nbytes == column.nbytes


DAMAGED = {
    "empty": (b"", 0, "an empty file"),
    "zeros": (bytes(10_240), 0, "0 members, none of which belongs to a sample"),
    "no sample": (archive([("x", b""), ("d/y", b"")]), 1024, "2 members, none of which belongs to a sample"),
    "cut header": (archive([("a.b", b"1"), ("c.d", b"2")])[:1300], 1024, "276 bytes and the end of the file"),
    "cut data": (archive([("a.b", bytes(2000))])[:1024], 512, "512 bytes and the end of the file"),
    "two": (archive([("a.b", b"1")]) * 2, 10_240, "data after the end of the archive at byte 1024"),
    "key": (archive([("a.b", b""), ("\udcff.b", b"")]), 512, r"the name b'\xff'"),
    "field": (archive([("a.b", b""), ("a.\udcff", b"")]), 1024, r"the name b'\xff'"),
}


@pytest.mark.parametrize("name", sorted(DAMAGED))
@pytest.mark.usefixtures("backend")
def test_damage_is_reported_with_its_offset(tmp_path: Path, name: str) -> None:
    data, offset, found = DAMAGED[name]
    path = write(tmp_path, data)
    with pytest.raises(FormatError, match=re.escape(found)) as caught:
        scan_shard(path)
    assert (caught.value.path, caught.value.offset) == (str(path), offset)


@pytest.mark.usefixtures("backend")
def test_a_flipped_byte_in_any_header_is_detected(tmp_path: Path) -> None:
    data = archive([(f"{i}.txt", b"x" * 100) for i in range(10)])
    for i in range(10):
        for at in (0, 110, 130, 149, 156, 260, 400):
            mutant = bytearray(data)
            mutant[1024 * i + at] ^= 1
            with pytest.raises(FormatError) as caught:
                scan_shard(write(tmp_path, bytes(mutant)))
            assert 1024 * i <= caught.value.offset < 1024 * i + 512


def test_a_tgz_is_rejected_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"a\.tgz: at byte 0: found a \.tgz, expected a \.tar: compressed archives"):
        scan_shard(write(tmp_path, archive([("a.b", b"")]), "a.tgz"))


def test_the_number_of_members_is_limited(tmp_path: Path) -> None:
    path = write(tmp_path, archive([(f"{i}.b", b"") for i in range(4)]))
    assert scan_shard(path, max_members=4).n_samples == 4
    with pytest.raises(FormatError, match="a member after 3 others"):
        scan_shard(path, max_members=3)


@pytest.mark.parametrize("threads", [1, 3])
def test_scans_and_errors_are_yielded_in_order(tmp_path: Path, threads: int) -> None:
    paths: list[Path] = []
    for i in range(20):
        data = archive([(f"{i}_{j}.txt", b"") for j in range(i)]) if i != 7 else b"no tar"
        paths.append(write(tmp_path, data, f"{i}.tar"))
    paths[3] = tmp_path / "missing.tar"
    paths[5] = tmp_path
    results = list(scan_shards(paths, threads=threads))
    kinds = [FormatError, ShardScan, ShardScan, FileNotFoundError, ShardScan, JobError, ShardScan, FormatError]
    assert [type(result) for result in results[:8]] == kinds
    for i, result in enumerate(results[8:], 8):
        assert isinstance(result, ShardScan)
        assert (result.path, result.n_samples) == (str(paths[i]), i)


def test_pending_scans_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[str] = []
    lock = threading.Lock()

    def scan(path: str) -> str:
        with lock:
            begun.append(path)
        return f"scan of {path}"

    monkeypatch.setattr(webdataset, "scan_shard", scan)
    scans = scan_shards([str(i) for i in range(100)], threads=2)
    assert next(scans) == "scan of 0"
    scans.close()  # type: ignore[attr-defined]
    assert len(begun) <= 4
    with pytest.raises(ValueError, match="0 threads"):
        next(scan_shards([tmp_path], threads=0))


def test_memory_per_member_is_small(tmp_path: Path) -> None:
    """100,000 samples: only their keys and six numbers are in memory, not the tar."""
    block = archive([("00000000.txt", b"x")])[:1024]
    header, body = bytearray(block[:512]), block[512:1024]
    base = sum(header[8:148]) + sum(header[156:]) + 256
    path = tmp_path / "x.tar"
    with open(path, "wb") as file:
        for i in range(100_000):
            header[:8] = b"%08d" % i
            header[148:156] = b"%06o\0 " % (base + sum(header[:8]))
            file.write(header + body)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    scan = scan_shard(path)
    assert scan.n_samples == 100_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 30 << 10


def test_index_files(tmp_path: Path) -> None:
    path = tmp_path / "x.tar.idx"
    offsets = np.array([1024, 2048, 2**40])
    write_offset_index(path, offsets, mode=0o640)
    assert path.read_bytes() == struct.pack("<3Q", 1024, 2048, 2**40)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o640
    read = read_offset_index(path)
    assert read.tolist() == offsets.tolist()
    assert read.dtype == np.int64
    assert os.listdir(tmp_path) == ["x.tar.idx"]
    assert shard_index_path("d.x/x.tar") == "d.x/x.tar.idx"
    assert shard_index_path(tmp_path / "x.tgz") == str(path)


@pytest.mark.parametrize(
    ("data", "offset", "found"),
    [
        (b"", 0, "0 bytes"),
        (bytes(7), 7, "7 bytes"),
        (struct.pack("<3Q", 0, 512, 512), 16, "the offset 512"),
        (struct.pack("<3Q", 0, 512, 100), 16, "the offset 100"),
        (struct.pack("<2Q", 2**63, 5), 0, "the offset 9223372036854775808"),
    ],
)
def test_damaged_index_files(tmp_path: Path, data: bytes, offset: int, found: str) -> None:
    path = write(tmp_path, data, "x.tar.idx")
    with pytest.raises(FormatError, match=found) as caught:
        read_offset_index(path)
    assert caught.value.offset == offset


@pytest.mark.parametrize(
    "index",
    [b"", b"\0" * 7, b"\0" * 8, struct.pack("<2Q", 0, 5), struct.pack("<2Q", 1, 6), struct.pack("<3Q", 0, 0, 6)],
)
def test_an_inconsistent_jsonl_index_is_an_error(tmp_path: Path, index: bytes) -> None:
    source = tmp_path / "x.jsonl"
    source.write_bytes(b"{}\n{}\n")
    jsonl_offsets_path(source).write_bytes(index)
    with pytest.raises(FormatError):
        read_jsonl_offsets(source)
