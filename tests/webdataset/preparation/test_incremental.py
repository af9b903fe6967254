"""Preparing a changed dataset again gives the index of a full walk with less work."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from unittest import mock

import pytest
from preparing import prepare
from tar_files import write_tar

from fastpack import kernels
from fastpack.webdataset import metadata as nvmeta


def write_shard(path: Path, keys: Iterable[str], fields: Iterable[str] = ("jpg", "json")) -> None:
    write_tar(path, ((f"{key}.{field}", f"{key[:20]} {field}".encode()) for key in keys for field in fields))


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """Six shards of 1 to 900 samples with varying field names."""
    folder = tmp_path / "ds"
    for number, n_samples in enumerate((300, 1, 900, 40, 7, 250)):
        keys = [f"é{number}/{'k' * (k % 90)}{k:04d}" for k in range(n_samples)]
        write_shard(folder / f"s{number}.tar", keys, [f"p{(number + k) % 11}" for k in range(1 + number % 3)])
    return folder


def change_and_prepare(folder: Path, reused: int) -> None:
    """Add a shard in front, replace one, remove one; compare the new index with that of a full walk."""
    prepare(folder)
    write_shard(folder / "a.tar", [f"new{k}" for k in range(70)])
    write_shard(folder / "s3.tar", [f"other{k}" for k in range(90)])
    (folder / "s4.tar").unlink()
    assert prepare(folder).reused == reused
    index = nvmeta.index_path(folder).read_bytes()
    assert prepare(folder, walk_all=True).reused == 0
    assert nvmeta.index_path(folder).read_bytes() == index


def test_the_index_equals_that_of_a_full_walk(dataset: Path, backend: str) -> None:
    change_and_prepare(dataset, reused=4)


def test_shards_whose_pages_are_not_supported_are_walked_again(dataset: Path) -> None:
    with mock.patch.object(kernels, "read_leaves", return_value=-1, create=True):
        change_and_prepare(dataset, reused=0)
    write_shard(dataset / "long.tar", ["x" * 5000, "y"])  # a key that spans several pages
    prepare(dataset)
    write_shard(dataset / "z.tar", ["z"])
    assert prepare(dataset).reused < 7
    index = nvmeta.index_path(dataset).read_bytes()
    prepare(dataset, walk_all=True)
    assert nvmeta.index_path(dataset).read_bytes() == index


@pytest.mark.slow
def test_adding_a_shard_is_faster_than_a_full_walk(tmp_path: Path) -> None:
    """Copying rows with SQLite took 2.5 times as long as a full walk."""
    folder, n_shards, n_samples = tmp_path / "ds", 15, 2000
    for number in range(n_shards + 1):
        write_shard(folder / f"s{number:02d}.tar", [f"{number}_{k}" for k in range(n_samples)])
    added, aside = folder / f"s{n_shards}.tar", tmp_path / "aside"
    costs: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(3):
        added.rename(aside)
        prepare(folder, walk_all=True, num_workers=1)
        aside.rename(added)
        for walk_all in (False, True):
            before = time.process_time()
            assert prepare(folder, walk_all=walk_all, num_workers=1).reused == (0 if walk_all else n_shards)
            costs[walk_all].append(time.process_time() - before)
    assert min(costs[False]) < min(costs[True])
