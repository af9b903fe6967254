"""Select the samples of a split: its shards, without the exclusions of split.yaml."""

from __future__ import annotations

import threading
from collections.abc import Container, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fastpack.errors import FormatError
from fastpack.io import AnyPath, PathLike
from fastpack.webdataset.metadata import index_path, meta_path, read_info, read_split, select_splits
from fastpack.webdataset.open_shards import Samples, TarShards
from fastpack.webdataset.sample_index import SampleIndex


class Selection(NamedTuple):
    """The shards of a split in order, their sample counts and tar_file_ids; the excluded keys by shard."""

    names: list[str]
    counts: list[int]
    tar_file_ids: list[int]
    excluded: dict[str, set[str]]


def select(folder: AnyPath, split_part: str | None, split_config: str) -> Selection:
    """Select the shards of a split (None: all shards, by tar_file_id).

    Raises NotPrepared (a FileNotFoundError and ValueError), FileNotFoundError without a split file, ValueError for an
    unknown split, FormatError for a split without shards or with unknown shards.
    """
    counts = read_info(folder)
    numbers = {name: number for number, name in enumerate(counts)}
    path = meta_path(folder, split_config)
    names, exclude = list(counts), list[str]()
    if split_part is not None or path.exists():
        split = read_split(folder, split_config)
        exclude = split.exclude
        if split_part is not None and split_part not in split.shards:
            raise ValueError(f"{path} has no split {split_part!r}, only {', '.join(map(repr, split.shards)) or 'none'}")
        names = names if split_part is None else split.shards[split_part]
    unknown = next((name for name in names if name not in counts), None)
    if unknown is not None:
        raise FormatError(path, 0, f"the shard {unknown!r} in the split {split_part!r}", "shards that .info.json has")
    left_out = set(exclude)
    names = [name for name in names if name not in left_out]
    if not names and split_part is not None:
        raise FormatError(path, 0, f"the split {split_part!r} without shards", "at least one that is not excluded")
    return Selection(
        names, [counts[name] for name in names], [numbers[name] for name in names], _excluded_samples(exclude, names)
    )


def splits_with_shards(folder: PathLike, names: Sequence[str] | None, split_config: str) -> list[str | None]:
    """Return the splits `names` that have shards which are not excluded; [None], all shards, for None.

    Raises as `read_split` and `select_splits`.
    """
    if names is None:
        return [None]
    split = read_split(folder, split_config)
    chosen = select_splits(meta_path(folder, split_config), split.shards, names)
    return [name for name, shards in chosen.items() if not set(split.exclude).issuperset(shards)]


def _excluded_samples(exclude: Sequence[str], names: Sequence[str]) -> dict[str, set[str]]:
    """Return the excluded keys by shard."""
    known = set(names)
    excluded: dict[str, set[str]] = {}
    for entry in exclude:
        for shard, key in shards_and_keys(entry, known):
            excluded.setdefault(shard, set()).add(key)
    return excluded


def shards_and_keys(entry: str, shards: Container[str]) -> Iterator[tuple[str, str]]:
    """Yield each (shard, key) that an excluded `<shard>/<key>` can mean; shards and keys may contain slashes."""
    for at, letter in enumerate(entry):
        if letter == "/" and entry[:at] in shards:
            yield entry[:at], entry[at + 1 :]


class TarKeys:
    """Positions of samples by key, from index.sqlite or, if it does not exist, from a table of all keys."""

    def __init__(self, folder: AnyPath, selection: Selection, shards: TarShards) -> None:
        self._folder, self._shards = folder, shards
        # Position of a shard's first sample; of a repeated shard, the first occurrence.
        self._first = dict(zip(reversed(selection.tar_file_ids), reversed(shards.starts[:-1]), strict=True))
        self._index = SampleIndex(index_path(folder))
        self._has_index = self._index.path.is_file() and self._index.has_samples
        self._attach()

    def _attach(self) -> None:
        self._table: dict[str, int] | None = None
        self._lock = threading.Lock()

    def position(self, key: str) -> int:
        """Return the position of a sample in the split, the first of several with this key. Raises KeyError."""
        if not self._has_index:
            return self._positions_by_key()[key]
        row = self._index.get(key)
        first = self._first.get(row.tar_file_id)
        if first is None:
            shard = list(read_info(self._folder))[row.tar_file_id]
            raise KeyError(f"{key} is in {shard}, which is not in this split")
        return first + row.sample_index

    def _positions_by_key(self) -> dict[str, int]:
        with self._lock:
            if self._table is None:
                self._table = {}
                for position in range(len(self._shards)):
                    self._table.setdefault(self._shards.key(position), position)
            return self._table

    def excluded(self, selection: Selection) -> npt.NDArray[np.int64]:
        """Return the positions of the excluded samples, ascending."""
        positions = []
        starts = self._shards.starts
        for number, (name, tar_file_id) in enumerate(zip(selection.names, selection.tar_file_ids, strict=True)):
            left_out = selection.excluded.get(name)
            if left_out and self._has_index:
                rows = self._index.samples(tar_file_id)
                positions += [starts[number] + row.sample_index for key, row in rows if key in left_out]
            elif left_out:
                own = range(starts[number], starts[number + 1])
                positions += [position for position in own if self._shards.key(position) in left_out]
        return np.array(sorted(positions), np.int64)

    def close(self) -> None:
        """Close the index; the next use opens it again."""
        self._index.close()

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in vars(self).items() if name not in ("_table", "_lock")}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state)
        self._attach()


class LineKeys:
    """Line numbers as keys."""

    def __init__(self, lines: Samples) -> None:
        self._lines = lines

    def position(self, key: str) -> int:
        """Return the position of a key. Raises KeyError."""
        number = int(key) if key.isascii() and key.isdigit() and len(key) < 20 else -1
        if number < 0 or str(number) != key or number >= len(self._lines):
            raise KeyError(key)
        return number

    def close(self) -> None:
        """Do nothing: there is no index."""
