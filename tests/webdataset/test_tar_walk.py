"""Walking a tar by its headers: bytes read, data after the archive, and files that are not archives."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

import numpy as np
import pytest
from tar_files import tar_bytes

from fastpack.errors import FormatError, JobError
from fastpack.webdataset import tar_walk as tar
from fastpack.webdataset.tar_walk import TarWalk


def archive(*members: tuple[str, bytes]) -> bytes:
    return tar_bytes(members)


def write(folder: Path, data: bytes) -> Path:
    path = folder / "x.tar"
    path.write_bytes(data)
    return path


def refusal(path: Path) -> FormatError:
    with pytest.raises(FormatError) as caught:
        list(TarWalk(path, 100).chunks())
    assert caught.value.path == str(path)
    return caught.value


def fields_of(path: Path) -> list[tuple[int, bytes, int, int]]:
    found = []
    for chunk in TarWalk(path, 10**7).chunks():
        names = [chunk.field_names[number] for number in chunk.fields[:, 1]]
        found += list(zip(chunk.fields[:, 0].tolist(), names, *chunk.fields[:, 2:4].T.tolist(), strict=True))
    return found


@pytest.mark.usefixtures("backend")
def test_chunks_contain_all_fields_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"{i}.{field}" for i in range(50) for field in ("jpg", f"p{i}", "txt")]
    path = write(tmp_path, archive(*((name, bytes(i)) for i, name in enumerate(names))))
    whole = fields_of(path)
    monkeypatch.setattr(tar, "_ROWS", 7)
    monkeypatch.setattr(tar, "_MAX_NAMES", 4)
    monkeypatch.setattr(tar, "FIRST_WINDOW", 512)
    monkeypatch.setattr(tar, "LARGE_WINDOW", 1536)
    chunks = list(TarWalk(path, 10**7).chunks())
    assert max(len(chunk.fields) for chunk in chunks) <= 7
    assert max(len(chunk.field_names) for chunk in chunks) <= 4
    assert [key for chunk in chunks for key in chunk.keys] == [b"%d" % i for i in range(50)]
    assert fields_of(path) == whole
    with tarfile.open(path) as theirs:
        expected = [(m.name.encode(), m.offset_data, m.size) for m in theirs]
    assert [(b"%d.%s" % (sample, field), at, size) for sample, field, at, size in whole] == expected


def test_long_keys_and_field_names_fit(tmp_path: Path) -> None:
    names = [f"{letter * 60_000}.{letter * 60_000}" for letter in "abcabc"]
    path = write(tmp_path, archive(*((f"{name[:40_000]}.{name[-20_000:]}", b"") for name in names)))
    keys = [key for chunk in TarWalk(path, 100).chunks() for key in chunk.keys]
    assert keys == [letter.encode() * 40_000 for letter in "abcabc"]


def test_contents_of_large_members_are_not_read(tmp_path: Path) -> None:
    large = write(tmp_path, archive(*((f"{i}.bin", bytes(200_000)) for i in range(60))))
    walk = TarWalk(large, 100)
    list(walk.chunks())
    assert walk.n_members == 60
    assert walk.n_bytes_read < os.path.getsize(large) / 15
    small = write(tmp_path, archive(*((f"{i}.bin", bytes(800)) for i in range(2000))))
    walk, n_reads = TarWalk(small, 10_000), 0
    read = walk._read

    def counted(offset: int, n_bytes: int) -> np.ndarray:
        nonlocal n_reads
        n_reads += 1
        return read(offset, n_bytes)

    walk._read = counted  # type: ignore[method-assign]
    list(walk.chunks())
    assert walk.n_bytes_read < 1.01 * os.path.getsize(small)
    assert n_reads < 20


def test_the_window_size_adapts_to_the_members(tmp_path: Path) -> None:
    large = [(f"l{i}.bin", bytes(100_000)) for i in range(40)]
    small = [(f"s{i}.bin", b"") for i in range(4000)]
    walk = TarWalk(write(tmp_path, archive(*large, *small, *((f"m{name}", data) for name, data in large))), 10_000)
    list(walk.chunks())
    assert walk.n_members == 4080
    assert 2_000_000 < walk.n_bytes_read < 4_500_000


def test_a_concatenated_archive_is_an_error(tmp_path: Path) -> None:
    one = archive(("a.txt", b"a"))
    error = refusal(write(tmp_path, one + archive(("b.txt", b"b"))))
    assert error.offset == len(one)
    assert "data after the end of the archive at byte 1024" in str(error)


def test_zeros_after_the_archive_are_accepted(tmp_path: Path) -> None:
    walk = TarWalk(write(tmp_path, archive(("a.txt", b"a")) + bytes(700_001)), 10)
    assert [chunk.keys for chunk in walk.chunks()] == [[b"a"]]
    assert (walk.end, walk.n_members) == (1024, 1)


def test_other_files_are_rejected(tmp_path: Path) -> None:
    assert refusal(write(tmp_path, b"")).found == "an empty file"
    assert refusal(write(tmp_path, b"\x1f\x8b\x08" + bytes(600))).found == "a file compressed with gzip"
    assert refusal(write(tmp_path, b"\x28\xb5\x2f\xfd" + bytes(600))).found == "a file compressed with Zstandard"
    assert refusal(write(tmp_path, b"x" * 600)).offset == 148
    with pytest.raises(FileNotFoundError, match=r"none\.tar"):
        TarWalk(tmp_path / "none.tar", 10)
    with pytest.raises(JobError, match="not a regular file"):
        TarWalk(tmp_path, 10)


def test_a_file_that_shrinks_during_the_walk_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path, archive(*((f"{i}.bin", bytes(50_000)) for i in range(20))))
    walk = TarWalk(path, 100)
    os.truncate(path, 300_000)
    with pytest.raises(FormatError, match="as when the file was opened") as caught:
        list(walk.chunks())
    assert caught.value.offset >= 300_000


def test_the_number_of_members_is_limited(tmp_path: Path) -> None:
    path = write(tmp_path, archive(("a.txt", b""), ("b.txt", b""), ("c.txt", b"")))
    assert list(TarWalk(path, 3).chunks())
    with pytest.raises(FormatError, match="a member after 2 others") as caught:
        list(TarWalk(path, 2).chunks())
    assert caught.value.offset == 1024
