"""Create prepared WebDatasets."""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from tar_files import write_tar

from fastpack.documents.offset_index import write_offset_index
from fastpack.webdataset.metadata import (
    index_path,
    meta_path,
    write_dataset_yaml,
    write_info,
    write_split,
)
from fastpack.webdataset.sample_index import write_sample_index
from fastpack.webdataset.shard_index import scan_shard, shard_index_path

Members = Sequence[tuple[str, bytes]]
Prepare = Callable[..., Path]


def prepare(
    folder: Path,
    shards: Mapping[str, Members | None] | None = None,
    split: Mapping[str, Sequence[str]] | None = None,
    exclude: Sequence[str] = (),
    definition: Mapping[str, Any] | None = None,
    index: bool = True,
) -> Path:
    """Write the shards (None: they exist) and their metadata; return the folder."""
    shards = {"a.tar": None} if shards is None else shards
    for name, members in shards.items():
        if members is not None:
            write_tar(folder / name, members, tarfile.GNU_FORMAT)
    scans = [scan_shard(folder / name) for name in shards]
    for scan in scans:
        write_offset_index(shard_index_path(scan.path), scan.sample_offsets)
    meta_path(folder).mkdir(parents=True, exist_ok=True)
    write_info(folder, {name: scan.n_samples for name, scan in zip(shards, scans, strict=True)})
    if split is not None:
        write_split(folder, split, exclude)
    if definition is not None:
        write_dataset_yaml(folder, definition)
    if index:
        write_sample_index(index_path(folder), scans)
    return folder


@pytest.fixture(name="prepare")
def give_prepare() -> Prepare:
    """The function `prepare(folder, shards, split, exclude, definition, index)`."""
    return prepare


@pytest.fixture
def three(tmp_path: Path) -> Path:
    """Three shards of 3, 1 and 2 samples `s0` ... `s5`, each with the fields txt and json."""
    names = [["s0", "s1", "s2"], ["s3"], ["d/s4", "d/s5"]]
    shards = {
        f"x{number}.tar": [
            member
            for key in keys
            for member in ((f"{key}.txt", f"text of {key}".encode()), (f"{key}.json", f'{{"k": "{key}"}}'.encode()))
        ]
        for number, keys in enumerate(names)
    }
    split = {"train": ["x0.tar", "x2.tar"], "val": ["x1.tar"], "test": []}
    return prepare(tmp_path / "set", shards, split)
