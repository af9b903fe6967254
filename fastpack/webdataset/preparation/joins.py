"""Write join indexes: for each sample of the first dataset, the location of that key in the other datasets."""

from __future__ import annotations

import hashlib
import os
import sqlite3
import struct
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fastpack.errors import FormatError, JobError
from fastpack.io import AnyPath, AtomicFile
from fastpack.io.dry_run import NoFile
from fastpack.webdataset import metadata as nvmeta
from fastpack.webdataset.sample_index.reader import read_only_uri

MAGIC = b"JIDX0001"
NONMATCH = ("error", "skip", "none")
_ROWS = 8192  # per query; each row is a Python tuple
_NOT_IN_SPLIT = -2  # the position of a shard outside the split


@dataclass(frozen=True, slots=True)
class JoinedSet:
    """A prepared dataset in a join.

    numbers: position in the split -> tar_file_id, for each shard that is not excluded. excludes: the entries with a
    slash under exclude in `split.yaml`. samples: the excluded (tar_file_id, key) pairs. nonmatch: "error", "skip" or
    "none", for a sample of the first dataset whose key is missing here.
    """

    folder: AnyPath
    uuid: str
    numbers: dict[int, int]
    excludes: list[str]
    samples: list[tuple[int, str]]
    nonmatch: str


def open_set(folder: AnyPath, split_part: str, split_config: str | None, nonmatch: str) -> JoinedSet:
    """Open a dataset for a join. Raises FileNotFoundError, FormatError, ValueError for a split without shards."""
    if nonmatch not in NONMATCH:
        raise ValueError(f"nonmatch is one of {', '.join(NONMATCH)}, not {nonmatch!r}")
    uuid = nvmeta.meta_path(folder, "index.uuid")
    if not uuid.is_file():
        raise FileNotFoundError(f"{folder} has no index.uuid: `fastpack prepare {folder} --tar-index-only` writes it")
    numbers = {name: number for number, name in enumerate(nvmeta.read_info(folder))}
    split = nvmeta.read_split(folder, split_config or "split.yaml")
    excluded = set(split.exclude)
    listed = split.shards.get(split_part, [])
    shards = {position: shard for position, shard in enumerate(listed) if shard not in excluded}
    if not shards:
        raise ValueError(f"{folder}: no shards in the split {split_part!r}")
    if unknown := [shard for shard in shards.values() if shard not in numbers]:
        raise FormatError(nvmeta.meta_path(folder, "split.yaml"), 0, f"the shard {unknown[0]}", "one of .info.json")
    excludes = _in_energon_order(split.exclude)
    samples = []
    for text in excludes:
        shard, _, key = text.partition(".tar/")
        if f"{shard}.tar" in numbers and key:
            samples.append((numbers[f"{shard}.tar"], key))
    ids = {position: numbers[shard] for position, shard in shards.items()}
    return JoinedSet(folder, uuid.read_text(), ids, excludes, samples, nonmatch)


def _in_energon_order(exclude: Sequence[str]) -> list[str]:
    """Return the excluded paths with a slash in the order in which Energon hashes them: that of its set of strings.

    With PYTHONHASHSEED set to a number, a set built in the same way here has the same order. Otherwise Energon's order
    differs from process to process, and the order of the split file is used.
    """
    if not hash_seed_is_fixed():
        return list(dict.fromkeys(text for text in exclude if "/" in text))
    texts = {text for text in exclude}  # noqa: C416  (set() may size the table differently)
    return list({text for text in texts if "/" in text})


def hash_seed_is_fixed() -> bool:
    """Return whether PYTHONHASHSEED makes the order of sets of strings the same in every process."""
    return not sys.flags.ignore_environment and os.environ.get("PYTHONHASHSEED", "").isdecimal()


def join_name(sets: Sequence[JoinedSet]) -> str:
    """Return the file name of the join index, which changes when a dataset is prepared again."""
    digest = hashlib.sha256()
    for joined in sets:
        digest.update(b"\0uuid=" + joined.uuid.encode() + b"\0excludes=")
        digest.update(b"".join(text.encode() + b"\0" for text in joined.excludes))
        digest.update(f"\0nonmatch={joined.nonmatch}\0".encode())
    return f"join_index_{digest.hexdigest()}.bin"


def write_join(path: AnyPath, sets: Sequence[JoinedSet], *, dry_run: bool = False) -> int:
    """Write the index of a join and return the number of rows; with `dry_run`, write nothing.

    A row has three int64 per dataset: the position of the sample's shard in the split, its offset and its size in
    bytes; -1 three times for a sample without a match if nonmatch is "none". Raises ValueError with the key for such a
    sample if nonmatch is "error", JobError if no sample has a match.
    """
    if sets[0].nonmatch != "error":
        raise ValueError(f"{sets[0].folder}: the first dataset of a join cannot have nonmatch {sets[0].nonmatch!r}")
    positions = [_positions(joined) for joined in sets]
    n_rows = 0
    memory = sqlite3.connect(":memory:", uri=True, isolation_level=None)
    with closing(memory) as db, NoFile() if dry_run else AtomicFile(path, follow=False) as file:
        _attach(db, sets)
        file.write(MAGIC + struct.pack("<q", len(sets)))
        for rows in _matches(db, len(sets)):
            for column, joined in enumerate(sets):
                shards = rows[:, 3 * column]
                shards[:] = np.where(shards < 0, shards, positions[column][shards])
                rows = _apply_nonmatch(db, rows, column, joined)
                if not len(rows):
                    break
            rows = rows[:, :-1]
            file.write(np.ascontiguousarray(rows, "<i8"))
            n_rows += len(rows)
        if not n_rows:
            raise JobError(f"{path}: no sample of {sets[0].folder} has a match in all datasets that are joined with it")
    return n_rows


def _positions(joined: JoinedSet) -> npt.NDArray[np.int64]:
    """Return the position of each shard in the split, by tar_file_id."""
    n_shards = len(nvmeta.read_info(joined.folder))
    positions = np.full(n_shards + 1, _NOT_IN_SPLIT, np.int64)
    positions[list(joined.numbers.values())] = list(joined.numbers)
    return positions


def _apply_nonmatch(
    db: sqlite3.Connection, rows: npt.NDArray[np.int64], column: int, joined: JoinedSet
) -> npt.NDArray[np.int64]:
    """Apply `nonmatch` to the rows without a match in this dataset."""
    missing = rows[:, 3 * column] < 0
    if not missing.any():
        return rows
    if joined.nonmatch == "skip":
        return np.ascontiguousarray(rows[~missing])
    if joined.nonmatch == "none":
        rows[missing, 3 * column : 3 * column + 3] = -1
        return rows
    (key,) = db.execute("SELECT sample_key FROM s0.samples WHERE rowid = ?", (int(rows[missing][0, -1]),)).fetchone()
    raise ValueError(f"the sample {key!r} is not in {joined.folder}. To allow this, set its nonmatch to skip or none.")


def _attach(db: sqlite3.Connection, sets: Sequence[JoinedSet]) -> None:
    """Attach all indexes as s0, s1, ...; store shard order and exclusions in temporary tables."""
    for number, joined in enumerate(sets):
        index = nvmeta.index_path(joined.folder)
        if not index.is_file():
            raise FileNotFoundError(f"{os.fspath(index)} does not exist. Prepare the dataset first.")
        db.execute(f"ATTACH ? AS s{number}", (read_only_uri(index),))
        db.execute(
            f"CREATE TABLE excluded{number} (tar_file_id INTEGER, sample_key TEXT, UNIQUE (sample_key, tar_file_id))"
        )
        db.executemany(f"INSERT INTO excluded{number} VALUES (?, ?)", joined.samples)
    db.execute("CREATE TABLE shards (position INTEGER PRIMARY KEY, tar_file_id INTEGER)")
    db.executemany("INSERT INTO shards VALUES (?, ?)", sets[0].numbers.items())


def _matches(db: sqlite3.Connection, n_sets: int) -> Iterator[npt.NDArray[np.int64]]:
    """Yield rows [k, 3 * n_sets + 1]: tar_file_id, offset and size per dataset (-1: no match), and a rowid."""
    columns, joins = ["t0.tar_file_id, t0.byte_offset, t0.byte_size"], []
    for n in range(1, n_sets):
        columns.append(f"ifnull(t{n}.tar_file_id, -1), ifnull(t{n}.byte_offset, -1), ifnull(t{n}.byte_size, -1)")
        joins.append(f"LEFT JOIN s{n}.samples t{n} ON t{n}.sample_key = t0.sample_key AND {_kept(n)}")
    query = (
        f"SELECT {', '.join(columns)}, t0.rowid FROM shards CROSS JOIN s0.samples t0 "
        f"ON t0.tar_file_id = shards.tar_file_id {' '.join(joins)} WHERE {_kept(0)} "
        "ORDER BY shards.position, t0.sample_index"
    )
    try:
        cursor = db.execute(query)
        while rows := cursor.fetchmany(_ROWS):
            yield np.array(rows, np.int64)
    except sqlite3.DatabaseError as error:
        raise JobError(f"the indexes cannot be joined: {error}") from error


def _kept(n: int) -> str:
    return f"(t{n}.tar_file_id, t{n}.sample_key) NOT IN excluded{n}"
