"""Random access to the lines of a JSONL file as crude samples, through the `.jsonl.idx` that `prepare` writes."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fastpack.documents.offset_index import read_jsonl_offsets
from fastpack.errors import FormatError
from fastpack.io import AnyPath
from fastpack.webdataset.open_shards import Io, RawSample, Wanted, will_need
from fastpack.webdataset.tar_range import MappedTar, ReadTar, Tar


class _Open(NamedTuple):
    file: Tar
    offsets: npt.NDArray[np.int64]


class JsonLines:
    """Sample i is line i of the index, with following blank lines; its key is its number. See `Samples`.

    Raises FileNotFoundError, FormatError for an index of another file.
    """

    def __init__(self, path: AnyPath, io: Io = "mmap") -> None:
        self._path = path
        self._io: Io = io
        self._attach()
        self._n_lines = len(self._opened().offsets) - 1

    def _attach(self) -> None:
        self._open: _Open | None = None
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return self._n_lines

    def path(self, position: int) -> AnyPath:
        del position
        return self._path

    def read(self, position: int, wanted: Wanted = None) -> RawSample:
        file, offsets = self._open or self._opened()
        start, end = offsets[position : position + 2].tolist()
        sample = RawSample(str(position), self._path.name)
        if wanted is None or wanted("json"):
            line = file.read(start, end - start)
            if len(line) < end - start:
                expected = f"{end} bytes, as the index says"
                raise FormatError(self._path, start + len(line), "the end of the file", expected)
            sample.fields["json"], sample.offsets["json"] = line, start
            sample.file_names.append(f"{position}.json")
        return sample

    def key(self, position: int) -> str:
        return str(position)

    def will_need(self, positions: Sequence[int]) -> None:
        file, offsets = self._open or self._opened()
        spans = [offsets[position : position + 2].tolist() for position in positions]
        will_need([(file, start, end - start) for start, end in spans])

    def check_unchanged(self) -> None:
        if self._open is not None:
            self._open.file.check_unchanged()

    def close(self) -> None:
        self._open = None

    def _opened(self) -> _Open:
        with self._lock:
            if self._open is None:
                file = MappedTar(self._path) if self._io == "mmap" else ReadTar(self._path)
                self._open = _Open(file, read_jsonl_offsets(self._path))
            return self._open

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in vars(self).items() if name not in ("_open", "_lock")}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state)
        self._attach()
