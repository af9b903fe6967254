"""The operations that FUSE calls; a real mount if the machine supports it."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from fastpack.webdataset.browsing.mount import Listing, Operations
from fastpack.webdataset.browsing.mount_tree import Entry, SampleTree


@pytest.fixture
def complaints() -> list[str]:
    return []


@pytest.fixture
def operations(prepared: Path, complaints: list[str]) -> Operations:
    return Operations(SampleTree(prepared), complaints.append)


def read_all(operations: Operations, path: str, step: int = 100) -> bytes:
    handle = operations.open(path, os.O_RDONLY)
    pieces = []
    while piece := operations.read(path, step, sum(map(len, pieces)), handle):
        pieces.append(piece)
    operations.release(path, handle)
    return b"".join(pieces)


def names(operations: Operations, path: str, at_once: int) -> list[str]:
    """List as the kernel does: a buffer holds some entries, and the rejected one is requested again."""
    handle = operations.opendir(path)
    found: list[str] = []
    offset = 0
    while True:
        accepted = 0
        for name, status, position in operations.readdir_with_offset(path, offset, handle):
            if accepted == at_once:
                break
            assert stat.S_ISDIR(status["st_mode"]) or stat.S_ISREG(status["st_mode"])
            accepted, offset = accepted + 1, position
            found.append(name)
        if not accepted:
            break
    operations.releasedir(path, handle)
    return found


def test_status_of_files_and_folders(operations: Operations) -> None:
    root = operations.getattr("/")
    assert stat.S_ISDIR(root["st_mode"])
    file = operations.getattr("/train_part_00_0.jpg")
    assert (file["st_mode"], file["st_size"]) == (stat.S_IFREG | 0o444, 631)
    assert file["st_mtime"] > 10**18  # nanoseconds
    with pytest.raises(FileNotFoundError):
        operations.getattr("/absent.jpg")


def test_contents_in_pieces(operations: Operations, prepared: Path) -> None:
    data = read_all(operations, "/train_part_00_0.jpg")
    assert len(data) == 631
    assert data == (prepared / "train" / "part_00.tar").read_bytes()[512 : 512 + 631]
    assert read_all(operations, "/train_part_00_0.json", 7).startswith(b'{"caption"')
    handle = operations.open("/train_part_00_0.jpg", os.O_RDONLY)
    assert operations.read("/", 10, 631, handle) == b""
    assert operations.read("/", 10, 10_000, handle) == b""


@pytest.mark.parametrize("at_once", [1, 2, 3, 50, 1000])
def test_listing_works_with_any_buffer_size(operations: Operations, at_once: int) -> None:
    found = names(operations, "/", at_once)
    assert found[:2] == [".", ".."]
    assert len(found) == len(set(found)) == 78


def test_a_listing_can_be_rewound() -> None:
    entries = [Entry(f"{i}", 0) for i in range(5)]
    listing = Listing(lambda: iter(entries))
    assert listing.at(3) == entries[3]
    assert listing.at(3) == entries[3]
    assert listing.at(1) == entries[1]
    assert listing.at(7) is None
    assert listing.at(5) is None
    assert listing.at(4) == entries[4]


def test_writing_is_rejected(operations: Operations) -> None:
    for flags in (os.O_WRONLY, os.O_RDWR, os.O_RDONLY | os.O_TRUNC):
        with pytest.raises(OSError, match="Read-only"):
            operations.open("/train_part_00_0.jpg", flags)


def test_missing_names_and_names_of_another_kind_are_errors(operations: Operations) -> None:
    with pytest.raises(FileNotFoundError):
        operations.opendir("/absent")
    with pytest.raises(NotADirectoryError):
        operations.opendir("/train_part_00_0.jpg")
    with pytest.raises(IsADirectoryError):
        operations.open("/", os.O_RDONLY)
    assert (len(operations._files), len(operations._folders)) == (0, 0)


def test_damage_is_an_input_output_error_and_is_reported(
    operations: Operations, prepared: Path, complaints: list[str]
) -> None:
    handle = operations.open("/train_part_00_0.jpg", os.O_RDONLY)
    os.truncate(prepared / "train" / "part_00.tar", 600)
    with pytest.raises(OSError, match="Input/output") as caught:
        operations.read("/", 631, 0, handle)
    assert caught.value.errno == errno.EIO
    assert len(complaints) == 1
    assert "part_00.tar: at byte 600: found the end of the file" in complaints[0]


def test_sizes_of_the_file_system(operations: Operations, prepared: Path) -> None:
    status = operations.statfs("/")
    assert status["f_blocks"] == sum(path.stat().st_size for path in prepared.rglob("*.tar")) // 512
    assert status["f_bavail"] == 0


def test_reading_from_many_threads(operations: Operations) -> None:
    expected = {name: read_all(operations, f"/{name}") for name in names(operations, "/", 100)[2:]}
    wrong: list[str] = []

    def read_some(first: int) -> None:
        some = list(expected)[first::3]
        wrong.extend(name for name in some if read_all(operations, f"/{name}", 64) != expected[name])

    threads = [threading.Thread(target=read_some, args=(first % 3,)) for first in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert len(operations._files) == 0


def test_a_real_mount(prepared: Path, tmp_path: Path) -> None:
    try:
        import mfusepy  # noqa: F401
    except (ImportError, OSError) as error:
        pytest.skip(f"no FUSE: {error}")
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.skip("no FUSE: /dev/fuse is not accessible")
    target = tmp_path / "seen"
    target.mkdir()
    command = [sys.executable, "-m", "fastpack", "mount", prepared.name, target.name, "-s"]
    mounting = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 30
        while mounting.poll() is None and not os.path.ismount(target) and time.monotonic() < deadline:
            time.sleep(0.05)
        if not os.path.ismount(target):
            mounting.terminate()
            message = mounting.communicate()[1]
            assert "FUSE did not mount it" in message
            pytest.skip(f"no FUSE: {message}")
        assert len(os.listdir(target)) == 19
        assert sorted(os.listdir(target / "train_part_00_0")) == ["jpg", "json", "mask.png", "txt"]
        assert (target / "train_part_00_0" / "jpg").stat().st_size == 631
        assert (target / "train_part_00_0" / "json").read_bytes().startswith(b'{"caption"')
        with pytest.raises(OSError, match="Read-only"):
            (target / "new").write_text("x")
    finally:
        mounting.terminate()
        _, message = mounting.communicate(timeout=30)
    assert mounting.returncode == 0, message
    assert not os.path.ismount(target)
