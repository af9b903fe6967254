"""Write prepared datasets with arbitrary names and damage, without `fastpack.prepare`."""

from __future__ import annotations

import json
import shutil
import sqlite3
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import tar_files
import yaml

from fastpack.documents.offset_index import write_offset_index
from fastpack.webdataset.shard_index import scan_shard, shard_index_path

Members = Sequence[tuple[str, bytes] | tarfile.TarInfo]
Maker = Callable[..., Path]

SCHEMA = """
CREATE TABLE samples (tar_file_id INTEGER NOT NULL, sample_key TEXT NOT NULL UNIQUE, sample_index INTEGER NOT NULL,
                      byte_offset INTEGER, byte_size INTEGER);
CREATE TABLE sample_parts (tar_file_id INTEGER, sample_index INTEGER, part_name TEXT,
                      content_byte_offset INTEGER, content_byte_size INTEGER);
CREATE INDEX idx_samples_by_tar_and_idx ON samples(tar_file_id, sample_index);
CREATE INDEX idx_sample_parts_seq ON sample_parts(tar_file_id, sample_index, content_byte_offset);
CREATE INDEX idx_sample_parts_full ON sample_parts(tar_file_id, sample_index, part_name, content_byte_offset,
                                                   content_byte_size);
"""


def write_tar(path: Path, members: Members) -> None:
    tar_files.write_tar(path, [member if isinstance(member, tuple) else (member, b"") for member in members])


def prepare(folder: Path, shards: Sequence[str], split: dict[str, list[str]], exclude: Sequence[str] = ()) -> None:
    """Write the metadata of `prepare` for existing tar files."""
    meta = folder / ".nv-meta"
    meta.mkdir()
    db = sqlite3.connect(meta / "index.sqlite")
    db.executescript(SCHEMA)
    counts = {}
    for number, name in enumerate(shards):
        scan = scan_shard(folder / name)
        write_offset_index(shard_index_path(folder / name), scan.sample_offsets)
        counts[name] = scan.n_samples
        offsets = scan.sample_offsets.tolist()
        for i, key in enumerate(scan.sample_keys):
            row = (number, key.decode(), i, offsets[i], offsets[i + 1] - offsets[i])
            db.execute("INSERT INTO samples VALUES (?, ?, ?, ?, ?)", row)
        columns = (
            scan.field_samples.tolist(),
            scan.field_names,
            scan.field_offsets.tolist(),
            scan.field_sizes.tolist(),
        )
        for sample, field, offset, size in zip(*columns, strict=True):
            db.execute(
                "INSERT INTO sample_parts VALUES (?, ?, ?, ?, ?)", (number, sample, field.decode(), offset, size)
            )
    db.commit()
    db.close()
    (meta / ".info.json").write_text(json.dumps({"energon_version": "7.4.1", "shard_counts": counts}, indent=2))
    (meta / "split.yaml").write_text(yaml.dump({"split_parts": split, "exclude": list(exclude)}, sort_keys=False))
    (meta / "index.uuid").write_text("00000000-0000-4000-8000-000000000000")
    (meta / "dataset.yaml").write_text("__module__: megatron.energon\n__class__: CrudeWebdataset\n")


@pytest.fixture
def make(tmp_path: Path) -> Maker:
    """Return make({shard: members}, split=None, exclude=()) -> the folder of a dataset (default: all in train)."""

    def make(
        shards: dict[str, Members], split: dict[str, list[str]] | None = None, exclude: Sequence[str] = ()
    ) -> Path:
        folder = tmp_path / "dataset"
        for name, members in shards.items():
            write_tar(folder / name, members)
        splits = split or {"train": list(shards), "val": [], "test": []}
        prepare(folder, list(shards), splits, exclude)
        return folder

    return make


@pytest.fixture
def prepared(golden: Path, tmp_path: Path) -> Path:
    """Copy a dataset that Energon 7.4.1 prepared: 19 samples of jpg, txt, json and mask.png in 10 shards."""
    return Path(shutil.copytree(golden / "energon" / "split", tmp_path / "prepared"))
