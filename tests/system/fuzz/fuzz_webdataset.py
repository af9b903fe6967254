"""Fuzz targets for a prepared WebDataset: its tars, `.info.json`, split.yaml, dataset.yaml and index.sqlite."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fuzz_tar
import yaml
from fuzz_harness import GOLDEN, Target, refused, written
from fuzz_shards import YAML_TOKENS, tree_of

from fastpack.errors import FormatError
from fastpack.kernels.codecs import tar_np
from fastpack.webdataset import braces
from fastpack.webdataset import metadata as nvmeta
from fastpack.webdataset.sample_index.reader import SampleIndex
from fastpack.webdataset.shard_index import scan_shard

KEYS = ("a", "b/c", "日本", "quote'\"", "z" * 40)
SCHEMA = (
    "CREATE TABLE samples (tar_file_id INTEGER NOT NULL, sample_key TEXT NOT NULL UNIQUE, "
    "sample_index INTEGER NOT NULL, byte_offset INTEGER, byte_size INTEGER)",
    "CREATE TABLE sample_parts (tar_file_id INTEGER, sample_index INTEGER, part_name TEXT, "
    "content_byte_offset INTEGER, content_byte_size INTEGER)",
)


def check_tar(data: bytes, folder: Path) -> bool:
    """The walks of both implementations, and the scan of a file by `prepare`, compared with Python's tarfile."""
    data = fuzz_tar.repaired(data)
    outcome = fuzz_tar.differential(data)
    path = written(folder / "x.tar", data)
    try:
        scan = scan_shard(path)
    except FormatError as error:
        return refused(error, path, len(data))
    position, n_members, rows, samples = outcome
    assert (scan.sample_offsets.tolist()[-1], scan.n_members) == (position, n_members)
    assert scan.sample_keys == [key for key, _ in samples]
    found = zip(scan.field_samples, scan.field_names, scan.field_offsets, scan.field_sizes, strict=True)
    assert [(int(s), name, int(at), int(size)) for s, name, at, size in found] == [row[:4] for row in rows]
    return True


def _meta(folder: Path, name: str, data: bytes) -> Path:
    nvmeta.meta_path(folder).mkdir(exist_ok=True)
    for other in nvmeta.meta_path(folder).iterdir():
        other.unlink()
    return written(nvmeta.meta_path(folder, name), data)


def _base_yaml(data: bytes) -> Any:
    return yaml.load(data, Loader=yaml.BaseLoader)


def check_info(data: bytes, folder: Path) -> bool:
    """Counts of shards, as JSON and as YAML."""
    accepted = False
    for name, load in ((".info.json", json.loads), (".info.yaml", yaml.safe_load)):
        path = _meta(folder, name, data)
        try:
            found = nvmeta.read_info(folder)
            nvmeta.read_version(folder)
        except FormatError as error:
            refused(error, path, len(data))
            continue
        assert list(found.items()) == list(tree_of(load, data)["shard_counts"].items())
        assert all(type(shard) is str and type(count) is int and count >= 0 for shard, count in found.items())
        accepted = True
    return accepted


def check_split(data: bytes, folder: Path) -> bool:
    """Splits and their shards, with a lower limit on names, because 10 million names take long."""
    before, braces.MAX_NAMES = braces.MAX_NAMES, 100_000
    try:
        return _check_split(data, folder)
    finally:
        braces.MAX_NAMES = before


def _check_split(data: bytes, folder: Path) -> bool:
    accepted = False
    for name, load in (("split.yaml", _base_yaml), ("split.json", json.loads)):
        path = _meta(folder, name, data)
        try:
            found = nvmeta.read_split(folder)
        except FormatError as error:
            refused(error, path, len(data))
            continue
        tree = tree_of(load, data)
        assert list(found.shards) == list(tree["split_parts"])
        for part, shards in found.shards.items():
            given = tree["split_parts"][part] or []
            assert shards == [text for expression in given for text in braces.expand(expression)]
            if not any(set(expression) & set("{}\\") for expression in given):
                assert shards == given
        accepted = True
    return accepted


def check_definition(data: bytes, folder: Path) -> bool:
    """dataset.yaml; its code is not executed."""
    path = _meta(folder, "dataset.yaml", data)
    try:
        found = nvmeta.read_dataset_yaml(folder)
    except FormatError as error:
        return refused(error, path, len(data))
    assert str(found) == str(tree_of(yaml.safe_load, data))
    return True


def check_sqlite(data: bytes, folder: Path) -> bool:
    """Every query returns values of the correct types or raises FormatError.

    The values equal those of SQLite, if SQLite considers the file sound; otherwise SQLite's results are undefined.
    """
    path = written(folder / "index.sqlite", data)
    ours, theirs = SampleIndex(path), sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
    accepted, sound = False, _query_sqlite(theirs, "PRAGMA integrity_check", ()) == [("ok",)]
    try:
        for ask, query, values in QUERIES:
            try:
                found = ask(ours)
            except FormatError as error:
                refused(error, path, len(data))
                continue
            except KeyError:
                found = []
            assert not sound or found == _query_sqlite(theirs, query, values), query
            for row in found:
                for value in row:
                    assert type(value) in (int, str), row
            accepted = True
    finally:
        ours.close()
        theirs.close()
    return accepted


def _query_sqlite(db: sqlite3.Connection, query: str, values: tuple[Any, ...]) -> list[Any] | None:
    """Return SQLite's rows, or None if it fails."""
    try:
        return db.execute(query, values).fetchall()
    except (sqlite3.DatabaseError, UnicodeDecodeError, MemoryError):
        return None


SAMPLE = "SELECT tar_file_id, sample_index, byte_offset, byte_size FROM samples "
QUERIES: tuple[tuple[Callable[[SampleIndex], list[Any]], str, tuple[Any, ...]], ...] = (
    (lambda index: [(len(index),)], "SELECT count(*) FROM samples", ()),
    *(
        (
            lambda index, key=key: [tuple(index.get(key))],
            SAMPLE + "WHERE sample_key = ? ORDER BY tar_file_id, sample_index LIMIT 1",
            (key,),
        )
        for key in KEYS
    ),
    (
        lambda index: [(key,) for key in index.keys("b", 3)],
        "SELECT sample_key FROM samples WHERE sample_key >= ? ORDER BY sample_key LIMIT ?",
        ("b", 3),
    ),
    (
        lambda index: [(key, *row) for key, row in index.samples(0)],
        "SELECT sample_key, tar_file_id, sample_index, byte_offset, byte_size FROM samples WHERE tar_file_id = ? "
        "ORDER BY sample_index",
        (0,),
    ),
    (
        lambda index: index.fields(0, 1),
        "SELECT part_name, content_byte_offset, content_byte_size FROM sample_parts "
        "WHERE tar_file_id = ? AND sample_index = ? ORDER BY content_byte_offset",
        (0, 1),
    ),
)


def sqlite_seeds() -> list[bytes]:
    """Return small databases with small pages, with and without the indexes that Energon adds."""
    seeds = []
    for more in (False, True):
        db = sqlite3.connect(":memory:")
        db.execute("PRAGMA page_size = 512")
        for statement in SCHEMA:
            db.execute(statement)
        for i, key in enumerate(KEYS):
            db.execute("INSERT INTO samples VALUES (?, ?, ?, ?, ?)", (i // 3, key, i % 3, 1024 * i, 1024))
            db.execute("INSERT INTO sample_parts VALUES (?, ?, ?, ?, ?)", (i // 3, i % 3, "jpg", 1024 * i + 512, 300))
        if more:
            db.execute("CREATE INDEX idx_samples_by_tar_and_idx ON samples(tar_file_id, sample_index)")
            db.execute("CREATE INDEX idx_sample_parts_seq ON sample_parts(tar_file_id, sample_index)")
        db.commit()
        seeds.append(db.serialize())
        db.close()
    return seeds


def info_seeds() -> list[bytes]:
    seeds = [(GOLDEN / f"energon/{name}/.nv-meta/.info.json").read_bytes() for name in ("reading", "split")]
    return [*seeds, b"energon_version: 7.4.1\nshard_counts:\n  b.tar: 3\n  d/a.tar: 1\n"]


def split_seeds() -> list[bytes]:
    seeds = [(GOLDEN / f"energon/{name}/.nv-meta/split.yaml").read_bytes() for name in ("reading", "split")]
    more = b"split_parts:\n  train: ['a_{00..11}.tar', '{x,y{1..3}}/z.tar', c\\{d.tar]\n  yes:\nexclude: [a_03.tar/k]\n"
    return [*seeds, more, b'{"split_parts": {"train": ["a{1..2}.tar"]}, "exclude": []}']


def definition_seeds() -> list[bytes]:
    seeds = [(GOLDEN / f"energon/{name}/.nv-meta/dataset.yaml").read_bytes() for name in ("reading", "split")]
    more = b"sample_type: {__module__: m, __class__: C}\nsample_loader: a.py:f\npart_filter: [x, 1, 2.5, null]\n"
    return [*seeds, more]


SPLIT_TOKENS = YAML_TOKENS + tuple(b"{1..9} {a..e} {0..99999999999} {,} {1..9..0} split_parts exclude".split())
TRACE = tuple(
    (tar_np._Walk, name) for name in ("next_member", "take_extension", "take_member", "take_sparse_header", "after_map")
)
TRACE += tuple(
    (tar_np, name)
    for name in ("_check_header", "_number", "_long_name", "_take_records", "_check_value", "_take_meanings")
)

NVMETA = ((nvmeta, "_load"), (nvmeta, "read_info"), (nvmeta, "read_dataset_yaml"))

TARGETS = (
    Target("tar", fuzz_tar.seeds, check_tar, trace=TRACE, max_bytes=1 << 15),
    Target("info", info_seeds, check_info, (*YAML_TOKENS, b"shard_counts"), trace=NVMETA, max_bytes=2048),
    Target("split", split_seeds, check_split, SPLIT_TOKENS, trace=((braces, "_parse"),), max_bytes=1024),
    Target("definition", definition_seeds, check_definition, YAML_TOKENS, trace=NVMETA, max_bytes=1024),
    Target("sqlite", sqlite_seeds, check_sqlite, max_bytes=16384),
)
