"""`prepare` with damaged shards, shards that change meanwhile, and killed runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest
from preparing import keys, prepare, write_tar

from fastpack.errors import FormatError, JobError
from fastpack.webdataset import metadata as nvmeta
from fastpack.webdataset import shard_index as webdataset
from fastpack.webdataset.sample_index import DuplicateKeys


def truncated(path: Path) -> None:
    os.truncate(path, 700)


def flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[1024 + 150] ^= 1
    path.write_bytes(data)


def concatenated(path: Path) -> None:
    path.write_bytes(path.read_bytes() * 2)


def emptied(path: Path) -> None:
    path.write_bytes(bytes(10240))


def not_utf8(path: Path) -> None:
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as tar:
        tar.addfile(tarfile.TarInfo("a\udcff.txt"))


def zipped(path: Path) -> None:
    path.with_name("s1.tgz").write_bytes(path.read_bytes())
    path.unlink()


def lost(path: Path) -> None:
    path.unlink()
    path.symlink_to("nowhere")


DAMAGES = [truncated, flipped, concatenated, emptied, not_utf8, zipped, lost]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("num_workers", [1, 2])
def test_a_bad_shard_is_an_error_and_keeps_the_old_index(
    shards: Path, damage: Callable[[Path], None], num_workers: int
) -> None:
    prepare(shards)
    before = {path.name: path.read_bytes() for path in (shards / ".nv-meta").iterdir()}
    damage(shards / "s1.tar")
    with pytest.raises((FormatError, FileNotFoundError), match=r"s1\.t"):
        prepare(shards, num_workers=num_workers)
    assert {path.name: path.read_bytes() for path in (shards / ".nv-meta").iterdir()} == before


@pytest.mark.parametrize("damage", DAMAGES)
def test_bad_shards_can_be_skipped(shards: Path, damage: Callable[[Path], None]) -> None:
    damage(shards / "s1.tar")
    result = prepare(shards, skip_bad_shards=True)
    assert [name[:2] for name in result.skipped] == ["s1"]
    assert list(result.shards) == list(nvmeta.read_info(shards)) == ["s0.tar", "s2.tar", "s3.tar"]
    assert {row[0] for row in keys(shards)} == {0, 1, 2}
    assert {shard for split in nvmeta.read_split(shards).shards.values() for shard in split} == set(result.shards)


def test_a_dataset_of_bad_shards_is_an_error(tmp_path: Path) -> None:
    emptied(tmp_path / "a.tar")
    with pytest.raises(JobError, match="all shards are bad"):
        prepare(tmp_path, skip_bad_shards=True)
    assert not nvmeta.is_prepared(tmp_path)
    with pytest.raises(JobError, match="files that are not excluded"):
        prepare(tmp_path, exclude="a")
    with pytest.raises(FileNotFoundError):
        prepare(tmp_path / "none")


def test_duplicate_keys_are_reported_with_their_shards(shards: Path) -> None:
    prepare(shards)
    write_tar(shards / "s3.tar", ["x.txt", "0_a.txt", "x.json"])
    with pytest.raises(DuplicateKeys) as caught:
        prepare(shards)
    assert str(caught.value) == "2 sample keys occur more than once: '0_a' in s0.tar, s3.tar; 'x' in s3.tar"
    assert len(keys(shards)) == 8


def test_a_shard_that_changes_during_the_walk_is_an_error(shards: Path) -> None:
    scan = webdataset.scan_shard

    def slow_scan(path: str) -> webdataset.ShardScan:
        result = scan(path)
        with open(path, "ab") as file:
            file.write(bytes(512))
        return result

    with (
        mock.patch.object(webdataset, "scan_shard", slow_scan),
        pytest.raises(JobError, match="changed while it was walked"),
    ):
        prepare(shards)


KILLED = """
import os, signal, sys
import fastpack
from fastpack.webdataset import shard_index as webdataset
scan = webdataset.scan_shard
def scan_and_die(path):
    if path.endswith("s2.tar"):
        os.kill(os.getpid(), signal.SIGKILL)
    return scan(path)
webdataset.scan_shard = scan_and_die
fastpack.prepare({folder!r}, split_ratio=(8, 1, 1), num_workers=1, skip_bad_shards=True)
"""


@pytest.mark.parametrize("change", [None, "s0.tar", "s1.tar"])
def test_resume_after_a_kill(shards: Path, change: str | None) -> None:
    emptied(shards / "s1.tar")
    done = subprocess.run([sys.executable, "-c", KILLED.format(folder=str(shards))], capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert not nvmeta.is_prepared(shards)
    if change:
        write_tar(shards / change, ["changed.txt"])
    scanned: list[str] = []
    scan = webdataset.scan_shard
    with mock.patch.object(webdataset, "scan_shard", lambda path: scanned.append(os.path.basename(path)) or scan(path)):
        result = prepare(shards, force_overwrite=False, resume=True, skip_bad_shards=True)
    assert scanned == (["s0.tar", "s1.tar", "s2.tar", "s3.tar"] if change else ["s2.tar", "s3.tar"])
    assert result.reused == (0 if change else 1)
    assert list(result.skipped) == ([] if change == "s1.tar" else ["s1.tar"])
    assert len(keys(shards)) == result.samples
    assert sorted(os.listdir(shards / ".nv-meta")) == sorted(result.files)
