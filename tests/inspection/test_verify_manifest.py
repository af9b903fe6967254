"""`verify` of a manifest: every shard is compared with its entry."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import fastpack
from fastpack.cli import main


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(5):
        np.save(tmp_path / f"{number}.npy", np.arange(50, dtype=np.uint16))
    return tmp_path


def test_a_sound_manifest(folder: Path) -> None:
    written = fastpack.write_manifest(folder)
    calls: list[tuple[int, int]] = []
    report = fastpack.verify(written.path, progress=lambda *call: calls.append(call))
    assert (report.kind, report.is_sound, report.findings) == ("manifest", True, [])
    assert report.checked["shards"] == 5
    assert calls[-1] == (5, 5)


def test_every_shard_that_differs_from_the_manifest_is_a_finding(folder: Path) -> None:
    pytest.importorskip("xxhash")
    written = fastpack.write_manifest(folder, checksums=True)
    (folder / "0.npy").unlink()
    (folder / "1.npy").write_bytes(b"\x93NUMPY")
    data = bytearray((folder / "2.npy").read_bytes())
    data[-1] ^= 1
    times = (folder / "2.npy").stat()
    (folder / "2.npy").write_bytes(data)
    os.utime(folder / "2.npy", ns=(times.st_atime_ns, times.st_mtime_ns))  # only the checksum shows the change
    os.utime(folder / "3.npy", ns=(1, 1))
    np.save(folder / "5.npy", np.arange(3))
    report = fastpack.verify(written.path)
    found = {Path(finding.file).name: finding for finding in report.findings}
    assert sorted(found) == ["0.npy", "1.npy", "2.npy", "3.npy", "manifest.fpm"]
    assert "No such file" in found["0.npy"].found
    assert "fastpack manifest" in found["1.npy"].expected
    assert "xxh3_128" in found["2.npy"].found
    assert "modified since" in found["3.npy"].found
    assert found["manifest.fpm"].severity == "warning"
    assert found["manifest.fpm"].found == "1 files that it does not name; the first is 5.npy"
    assert report.n_errors == 4


def test_a_damaged_manifest_is_a_finding(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written = fastpack.write_manifest(folder)
    path = Path(written.path)
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    assert main(["verify", str(path)]) == 3
    assert "at byte 12: found the CRC-32" in capsys.readouterr().out


def test_verifying_a_folder_verifies_its_manifest(folder: Path) -> None:
    fastpack.write_manifest(folder)
    assert fastpack.verify(folder).is_sound
    os.utime(folder / "3.npy", ns=(1, 1))
    report = fastpack.verify(folder)
    assert [Path(finding.file).name for finding in report.findings] == ["3.npy"]
