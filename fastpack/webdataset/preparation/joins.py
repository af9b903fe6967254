"""The index of joined datasets: for each sample of the first one, where the samples of that key are in the others."""

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
_ROWS = 8192  # that are Python objects at a time
_ELSEWHERE = -2  # in a shard that is not in the split part


@dataclass(frozen=True, slots=True)
class JoinedSet:
    """A prepared dataset in a join.

    numbers: tar_file_id of each shard of the split part that is not excluded, by its position in the part; excludes:
    what `split.yaml` leaves out (paths with a slash); samples: the (tar_file_id, key) pairs among those; nonmatch: what
    to do about a sample of the first set that is not here.
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
    part = {place: shard for place, shard in enumerate(split.shards.get(split_part, [])) if shard not in excluded}
    if not part:
        raise ValueError(f"{folder}: no shards in the part {split_part!r}")
    if unknown := [shard for shard in part.values() if shard not in numbers]:
        raise FormatError(nvmeta.meta_path(folder, "split.yaml"), 0, f"the shard {unknown[0]}", "one of .info.json")
    excludes = _in_energons_order(split.exclude)
    samples = []
    for text in excludes:
        shard, _, key = text.partition(".tar/")
        if f"{shard}.tar" in numbers and key:
            samples.append((numbers[f"{shard}.tar"], key))
    return JoinedSet(
        folder, uuid.read_text(), {place: numbers[shard] for place, shard in part.items()}, excludes, samples, nonmatch
    )


def _in_energons_order(exclude: Sequence[str]) -> list[str]:
    """The excluded paths with a slash, in the order in which Energon hashes them: that of its set of strings.

    The order depends on PYTHONHASHSEED. If that is set to a number, a set that is built in the same way here has the
    same order; if not, Energon's order is another one in each process, and the order of the split file is taken.
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
    """Write the index of a join (dry_run: do all but that); return the number of rows.

    A row has for each set the position of the sample's shard in the split part, its first byte and how many it has, all
    int64; -1 three times where there is none and nonmatch is "none". Raises ValueError for a sample without a match
    where it is "error" (with the key), JobError where no sample has one.
    """
    if sets[0].nonmatch != "error":
        raise ValueError(f"{sets[0].folder}: the first set of a join cannot have nonmatch {sets[0].nonmatch!r}")
    places = [_places(joined) for joined in sets]
    n_rows = 0
    memory = sqlite3.connect(":memory:", uri=True, isolation_level=None)
    with closing(memory) as db, NoFile() if dry_run else AtomicFile(path, follow=False) as file:
        _attach(db, sets)
        file.write(MAGIC + struct.pack("<q", len(sets)))
        for rows in _matches(db, len(sets)):
            for column, joined in enumerate(sets):
                shards = rows[:, 3 * column]
                shards[:] = np.where(shards < 0, shards, places[column][shards])
                rows = _apply_nonmatch(db, rows, column, joined)
                if not len(rows):
                    break
            rows = rows[:, :-1]
            file.write(np.ascontiguousarray(rows, "<i8"))
            n_rows += len(rows)
        if not n_rows:
            raise JobError(
                f"{path}: no sample of {sets[0].folder} has its like in all the sets that are joined with it"
            )
    return n_rows


def _places(joined: JoinedSet) -> npt.NDArray[np.int64]:
    """Return the position in the split of each shard, by tar_file_id."""
    n_shards = len(nvmeta.read_info(joined.folder))
    places = np.full(n_shards + 1, _ELSEWHERE, np.int64)
    places[list(joined.numbers.values())] = list(joined.numbers)
    return places


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
    raise ValueError(f"the sample {key!r} is not in {joined.folder}: its nonmatch may be skip or none")


def _attach(db: sqlite3.Connection, sets: Sequence[JoinedSet]) -> None:
    """Attach all indexes as s0, s1, ...; store shard order and exclusions in temporary tables."""
    for number, joined in enumerate(sets):
        index = nvmeta.index_path(joined.folder)
        if not index.is_file():
            raise FileNotFoundError(f"{os.fspath(index)} is not there: prepare the dataset first")
        db.execute(f"ATTACH ? AS s{number}", (read_only_uri(index),))
        db.execute(f"CREATE TABLE out{number} (tar_file_id INTEGER, sample_key TEXT, UNIQUE (sample_key, tar_file_id))")
        db.executemany(f"INSERT INTO out{number} VALUES (?, ?)", joined.samples)
    db.execute("CREATE TABLE part (position INTEGER PRIMARY KEY, tar_file_id INTEGER)")
    db.executemany("INSERT INTO part VALUES (?, ?)", sets[0].numbers.items())


def _matches(db: sqlite3.Connection, n_sets: int) -> Iterator[npt.NDArray[np.int64]]:
    """Rows [k, 3 * n_sets + 1]: number of the shard, offset and size in each set, -1 for none; the first's rowid."""
    columns, joins = ["t0.tar_file_id, t0.byte_offset, t0.byte_size"], []
    for n in range(1, n_sets):
        columns.append(f"ifnull(t{n}.tar_file_id, -1), ifnull(t{n}.byte_offset, -1), ifnull(t{n}.byte_size, -1)")
        joins.append(f"LEFT JOIN s{n}.samples t{n} ON t{n}.sample_key = t0.sample_key AND {_kept(n)}")
    query = (
        f"SELECT {', '.join(columns)}, t0.rowid FROM part CROSS JOIN s0.samples t0 "
        f"ON t0.tar_file_id = part.tar_file_id {' '.join(joins)} WHERE {_kept(0)} "
        "ORDER BY part.position, t0.sample_index"
    )
    try:
        cursor = db.execute(query)
        while rows := cursor.fetchmany(_ROWS):
            yield np.array(rows, np.int64)
    except sqlite3.DatabaseError as error:
        raise JobError(f"the indexes cannot be joined: {error}") from error


def _kept(n: int) -> str:
    return f"(t{n}.tar_file_id, t{n}.sample_key) NOT IN out{n}"
