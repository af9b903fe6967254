"""Writes tests/golden/energon/walk: run it by a Python that has megatron-energon 7.4.1; it needs GNU tar.

    python tests/golden/make_energon_walk.py

The same files in a tar of every format; `expected.json` has, for each, the rows of the index that `energon prepare`
makes of it alone, sorted, and what is in its `.tar.idx`.
"""

from __future__ import annotations

import json
import os
import sqlite3
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent / "energon" / "walk"
FILES = {
    "v1.0/003.seg.png": b"png",
    "v1.0/003.json": b"{}",
    "plain.jpg": b"j" * 700,
    "plain.txt": b"hello\n",
    "d/.hid.jpg": b"h",
    "a.b/.hid.jpg": b"ignored",
    "noext": b"ignored",
    ".top.jpg": b"ignored",
    "__meta__/x.json": b"{}",
    "dd..jpg": b"2",
    "dot.": b"",
    "ünï/日本.txt": "é".encode(),
    f"long/{'k' * 120}/{'n' * 90}.jpg": b"long",
    f"long/{'k' * 120}/{'n' * 90}.txt": b"too",
}
LINKS = ["link.txt", "zhard.txt"]
FORMATS = {
    "v7": ["--format=v7"],
    "ustar": ["--format=ustar"],
    "gnu": ["--format=gnu", "--sparse"],
    "pax": ["--format=posix", "--pax-option=delete=atime,delete=ctime"],
    "pax_global": ["--format=posix", "--pax-option=globexthdr.name=/tmp/g,comment=all,delete=atime,delete=ctime"],
    "sparse_0.0": ["--format=posix", "--sparse", "--sparse-version=0.0"],
    "sparse_0.1": ["--format=posix", "--sparse", "--sparse-version=0.1"],
    "sparse_1.0": ["--format=posix", "--sparse", "--sparse-version=1.0"],
}


def write_files(folder: Path) -> None:
    for name, data in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    with open(folder / "sparse.bin", "wb") as file:
        file.write(b"A" * 4096)
        file.seek(1 << 20)
        file.write(b"B" * 4096)
        file.truncate(3 << 20)
    (folder / "link.txt").symlink_to("plain.txt")
    os.link(folder / "plain.txt", folder / "zhard.txt")


def write_tar(path: Path, source: Path, options: list[str]) -> None:
    names = ["v1.0", *(name for name in FILES if name != "v1.0/003.seg.png"), *LINKS]
    if "--format=v7" in options:
        names = [name for name in names if len(name) < 100]
    if "--sparse" in options:
        names.append("sparse.bin")
    names = [name for name in names if name != "v1.0/003.json"]
    same = ["--owner=0", "--group=0", "--numeric-owner", "--mtime=@0", "--sort=name", "--blocking-factor=1"]
    subprocess.run(["tar", "-C", source, *same, *options, "-cf", path, *names], check=True)


def prepared(tar: Path) -> dict[str, list[list[object]] | list[int]]:
    """The rows of energon's index of a folder with this tar only."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "x.tar").write_bytes(tar.read_bytes())
        command = [Path(sys.executable).parent / "energon", "prepare", "--non-interactive", "--split-ratio", "1,0,0"]
        subprocess.run([*command, "--num-workers", "1", folder], check=True, stdout=subprocess.DEVNULL)
        index = (folder / "x.tar.idx").read_bytes()
        with sqlite3.connect(folder / ".nv-meta" / "index.sqlite") as db:
            samples = db.execute("SELECT sample_key, sample_index, byte_offset, byte_size FROM samples ORDER BY 2")
            order = "sample_index, part_name, content_byte_offset, content_byte_size"
            parts = db.execute(f"SELECT {order} FROM sample_parts ORDER BY 1, 3")
            return {
                "samples": [list(row) for row in samples],
                "sample_parts": [list(row) for row in parts],
                "tar_idx": list(struct.unpack(f"<{len(index) // 8}Q", index)),
            }


def main() -> None:
    HERE.mkdir(parents=True, exist_ok=True)
    expected = {}
    with tempfile.TemporaryDirectory() as name:
        write_files(Path(name))
        for kind, options in FORMATS.items():
            tar = HERE / f"{kind}.tar"
            write_tar(tar, Path(name), options)
            expected[tar.name] = prepared(tar)
    (HERE / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()
