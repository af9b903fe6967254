"""`prepare` as tasks: scan shards, then build the indexes of the dataset from the scans.

A task writes `.tar.idx` next to each of its shards, and a file with everything that the index of the dataset needs: the
int64 columns of `ShardScan`, concatenated, then sample keys, field names and media metadata as text.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from fastpack.distributed.map_concatenate import numbered_tasks, split_sources, task_bytes, task_folder
from fastpack.distributed.plan import Done, Plan, check_size, results
from fastpack.errors import JobError
from fastpack.io import AtomicFile, PathLike, map_bytes, plain_path
from fastpack.io.source_fingerprints import fingerprint
from fastpack.webdataset import metadata as nvmeta
from fastpack.webdataset.preparation.media import MediaFilter
from fastpack.webdataset.preparation.nv_meta_folder import check_not_prepared, shards_of
from fastpack.webdataset.preparation.settings import ExecutionSettings
from fastpack.webdataset.preparation.walk_shards import (
    WalkOptions,
    WalkResult,
    is_unchanged,
    shard_size,
    unchanged_shards,
    walk_shard,
)
from fastpack.webdataset.sample_index import ShardRecord
from fastpack.webdataset.shard_index import ShardScan

SHARD_BYTES = 1 << 30  # of the shards of a task: only the headers of a tar are read


def plan_walk(
    path: PathLike,
    *,
    exclude: str | None = None,
    execution: ExecutionSettings | None = None,
    media: MediaFilter | None = None,
    bytes_per_task: int | None = None,
    folder: str | None = None,
) -> Plan:
    """Plan the scan of `prepare_webdataset` as tasks; the last step is that function with `walker_of(plan)`.

    bytes_per_task: of shards (default: 1 GiB, or more where that would make thousands); no shard is cut. folder: of the
    tasks' files. Raises what it raises before it walks.
    """
    execution = execution or ExecutionSettings()
    check_not_prepared(path, execution.force_overwrite)
    root, names = plain_path(path), shards_of(path, exclude)
    sizes = [shard_size(root, name) for name in names]
    n_bytes = task_bytes(sum(sizes), bytes_per_task, SHARD_BYTES)
    groups = [[shard for shard, _, _ in group] for group in split_sources(sizes, [True] * len(names), n_bytes)]
    tasks = numbered_tasks(
        ({"shards": [names[shard] for shard in group]}, sum(sizes[shard] for shard in group)) for group in groups
    )
    wanted = None if media is None else [media.strategy, list(media.patterns)]
    options = {"sample_tables": execution.sample_tables, "walk_all": execution.walk_all}
    settings = {"root": root, "execution": options, "media": wanted}
    stamps = [
        fingerprint(os.path.join(root, name)) if size else [name] for name, size in zip(names, sizes, strict=True)
    ]
    home = task_folder(os.path.join(root, nvmeta.FOLDER), folder)
    return Plan("walk", home, settings, stamps, tasks)


def walk_task(settings: Mapping[str, Any], arguments: Mapping[str, Any], path: str) -> list[Any]:
    """Scan the shards of a task that changed since the dataset was prepared; write the scans to `path`.

    Returns for each shard its `ShardRecord` and the sizes of its data in the file, or "unchanged", or "bad".
    """
    root, options = settings["root"], _options(settings)
    unchanged = set(unchanged_shards(root, arguments["shards"], options))
    done: list[Any] = []
    with AtomicFile(path, follow=False) as file:
        for name in arguments["shards"]:
            if name in unchanged:
                done.append("unchanged")
                continue
            result = walk_shard(root, name, options)
            if result.scan is None:
                done.append("bad")
            else:
                done.append([list(result.shard), _write(file, result.scan, result.media)])
    return done


def _options(settings: Mapping[str, Any], *, skip_bad_shards: bool = True) -> WalkOptions:
    media = None if settings["media"] is None else MediaFilter(settings["media"][0], tuple(settings["media"][1]))
    return WalkOptions(
        execution=ExecutionSettings(skip_bad_shards=skip_bad_shards, **settings["execution"]), media=media
    )


def _write(file: AtomicFile, scan: ShardScan, media: Sequence[Any]) -> list[int]:
    """Append the scan of a shard; return the size in bytes of each column and text."""
    names = list(dict.fromkeys(scan.field_names))
    numbers = dict(zip(names, range(len(names)), strict=True))
    columns = [
        scan.sample_offsets,
        scan.field_samples,
        scan.field_offsets,
        scan.field_sizes,
        np.array([numbers[name] for name in scan.field_names], np.int64),
        scan.sparse_fields,
        _ends(scan.sample_keys),
        _ends(names),
        np.array([scan.n_members]),
    ]
    texts = [b"".join(scan.sample_keys), b"".join(names), json.dumps(list(media)).encode()]
    pieces = [np.ascontiguousarray(column, np.int64).tobytes() for column in columns] + texts
    data = b"".join(pieces)
    file.write(data + bytes(-len(data) % 8))
    return [len(piece) for piece in pieces]


def _ends(texts: Sequence[bytes]) -> npt.NDArray[np.int64]:
    return np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)))


def _read(path: str, data: npt.NDArray[np.uint8], sizes: Sequence[int]) -> tuple[ShardScan, list[Any]]:
    """Return what `_write` appended for the shard `path`."""
    ends = np.cumsum(sizes).tolist()
    pieces = [data[end - size : end] for end, size in zip(ends, sizes, strict=True)]
    offsets, samples, places, n_bytes, numbers, sparse, key_ends, name_ends, members = (
        piece.view(np.int64) for piece in pieces[:9]
    )
    keys, names = _split(pieces[9], key_ends), _split(pieces[10], name_ends)
    field_names = [names[number] for number in numbers.tolist()]
    scan = ShardScan(path, keys, offsets, samples, field_names, places, n_bytes, sparse, int(members[0]))
    return scan, [tuple(row) for row in json.loads(pieces[11].tobytes())]


def _split(data: npt.NDArray[np.uint8], ends: npt.NDArray[np.int64]) -> list[bytes]:
    text = data.tobytes()
    return [text[start:end] for start, end in pairwise([0, *ends.tolist()])]


def walker_of(plan: Plan, *, skip_bad_shards: bool = False) -> Callable[[str], WalkResult]:
    """Return a function from a shard's name to the scan of its task. JobError with the names of unfinished tasks.

    A bad shard is scanned again, so that the error is the one of a local scan. JobError for a shard that changed since
    its task.
    """
    root, options = plan.settings["root"], _options(plan.settings, skip_bad_shards=skip_bad_shards)
    finished = results(plan)
    places: dict[str, tuple[Done, int, Any]] = {}
    for task in plan.tasks:
        done, start = finished[task.name], 0
        for name, found in zip(task.arguments["shards"], done.result, strict=True):
            places[name] = (done, start, found)
            if not isinstance(found, str):
                n_bytes = sum(found[1])
                start += n_bytes + -n_bytes % 8
        check_size(done, start)

    def walk(name: str) -> WalkResult:
        task_done, start, found = places[name]
        if isinstance(found, str):
            return walk_shard(root, name, options)
        shard = ShardRecord(*found[0])
        if not is_unchanged(root, shard):
            raise JobError(f"{os.path.join(root, name)} has changed since its task: run the ranks again")
        scan, media = _read(os.path.join(root, name), map_bytes(task_done.path)[start:], found[1])
        return WalkResult(shard, scan, "", media)

    return walk
