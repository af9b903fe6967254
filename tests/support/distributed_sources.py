"""Inputs of commands that run as ranks."""

from __future__ import annotations

import gzip
import json
import random
import shutil
from pathlib import Path

import pytest
from packed_files import packed_bytes, write_packed
from preparing import write_tar

from fastpack.documents.create_index import create_raw_index
from fastpack.documents.raw_index import write_raw_index
from fastpack.io.checksums import write_checksums


def write_tokens(folder: Path) -> None:
    """Write packed files of every generation, files of lines, and a folder of packed files."""
    rng = random.Random(0)

    def documents(n: int) -> list[list[int]]:
        return [[rng.randrange(256) for _ in range(rng.choice((0, 1, 30)))] for _ in range(n)]

    (folder / "folder").mkdir()
    for name, generation, size, n in (
        ("a.pbin", 5, 2, 300), ("b.pbin", 3, 2, 200), ("b4.pbin", 4, 2, 50), ("wide.pbin", 1, 4, 90),
        ("few.pbin", 5, 2, 1), ("folder/x.pbin", 5, 1, 40), ("folder/y.pbin", 5, 1, 1), ("folder/z.pbin", 3, 1, 60),
    ):  # fmt: skip
        (folder / name).write_bytes(packed_bytes([[1], *documents(n)], generation, size))
    for name, n in (("a.jsonl", 200), ("b.jsonl", 50), ("empty.jsonl", 0)):
        (folder / name).write_bytes(b"\n".join(b"x" * rng.randrange(60) for _ in range(n)) + b"y" * (n > 0))


def write_lines(path: Path, n_lines: int, seed: int) -> None:
    """Write JSON lines, some of them faulty or without a text."""
    rng = random.Random(seed)
    path.parent.mkdir(exist_ok=True, parents=True)
    lines = []
    for number in range(n_lines):
        text = "".join(rng.choices("abcü ", k=rng.randrange(200)))
        lines.append("{torn" if number % 41 == 3 else json.dumps({"text": None if number % 29 == 1 else text}))
    data = "\n".join(lines).encode() + b"\n" * rng.randrange(2)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


def write_texts(folder: Path) -> list[Path]:
    """Write indexed, unindexed, compressed, empty and small files to `in`; return their paths."""
    paths = [folder / "in" / name for name in ("a.jsonl", "b.jsonl", "c.jsonl.gz", "d.jsonl", "e.jsonl", "f.jsonl")]
    for seed, (path, n_lines) in enumerate(zip(paths, (400, 300, 100, 0, 3, 5), strict=True)):
        write_lines(path, n_lines, seed)
    with pytest.warns(UserWarning, match="faulty line"):
        create_raw_index(paths[0], drop_faulty_entries=True)
    return paths


def write_shards(folder: Path, n_shards: int = 14, n_samples: int = 30, first: int = 0) -> None:
    """Write tar files to subfolders."""
    rng = random.Random(0)
    for shard in range(first, first + n_shards):
        members = []
        for sample in range(rng.randrange(1, n_samples)):
            key = f"{shard}_{sample}_ü"
            members += [f"{key}.{field}" for field in ("jpg", "json", "ä.txt")[: rng.randrange(1, 4)]]
        write_tar(folder / f"{shard % 3}" / f"{shard:03}.tar", members, rng.randbytes(40))


def write_sound_and_damaged(folder: Path, golden: Path) -> None:
    """Write sound and damaged files of all kinds to `data`, one with checksums, and a WebDataset to `web`."""
    data = folder / "data"
    data.mkdir()
    for number in range(4):
        write_packed(data / f"{number}.pbin", [[number + 1] * length for length in range(1, 30)])
    content = bytearray((data / "1.pbin").read_bytes())
    content[200:204] = b"\xff\xff\xff\xff"
    (data / "1.pbin").write_bytes(content)
    (data / "2.pbin").write_bytes((data / "2.pbin").read_bytes()[:-9])
    for name in ("a", "b"):
        (data / f"{name}.jsonl").write_text('{"a": 1}\n' * 50)
        create_raw_index(data / f"{name}.jsonl")
    write_raw_index(data / "b.idx", [(0, 8), (9, 3)] + [(18 + 9 * k, 8) for k in range(1500)])
    write_checksums(data / "3.pbin")
    (data / "3.pbin").write_bytes((data / "3.pbin").read_bytes() + b"x")
    shutil.copytree(golden / "energon" / "split", folder / "web")
