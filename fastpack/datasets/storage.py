"""Windows read by position instead of mapped: a file that shrinks is an error then, not the end of the process."""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from fastpack.datasets.windows import Group, Openers, Tokens, Windows, copied_group, like_of, row_addresses, starts_of
from fastpack.errors import FormatError
from fastpack.io import Reader
from fastpack.tokens.flat.shards import not_flat_error
from fastpack.tokens.manifest.manifest_shards import first_odd
from fastpack.tokens.token_segment import TokenSegment

MAX_OPEN_FILES = 64  # common limits are 256 to 1024 descriptors a process


def shard_openers(shards: Sequence[TokenSegment]) -> Openers:
    """What opens each of the shards, which are looked up only then."""
    return Openers(len(shards), lambda number: shards[number].open)


class ReadWindows(Windows):
    """As `Windows`, of shards that are read by `pread`: FormatError where a file has become too short.

    Costs a system call (3 us) and a copy a window. Raises ValueError for a shard that is not a flat array.
    """

    def __init__(self, shards: Sequence[TokenSegment], n_windows: npt.ArrayLike, n_tokens: int, step: int) -> None:
        super().__init__(shard_openers(shards), n_windows, n_tokens, step)
        if (odd := first_odd(shards)) is not None:
            raise not_flat_error(odd)
        self._shards = shards
        self._files: dict[int, Reader] = {}
        self._files_lock = threading.Lock()

    def window(self, number: int, start: int) -> Tokens:
        dtype = self._shards[number].dtype
        out = np.empty(self._n_tokens * dtype.itemsize, np.uint8)
        self._read(number, start, out)
        return out.view(dtype)

    def groups(self, indices: npt.NDArray[np.int64], negative: bool = False) -> Iterator[Group]:
        """As `Windows.groups`, the windows read into memory first."""
        shards, starts = self._place(indices, negative)
        places: list[tuple[int, int]] = list(zip(shards.tolist(), starts.tolist(), strict=True))
        dtypes = [self._shards[number].dtype for number, _ in places]
        for dtype in dict.fromkeys(dtypes):
            rows = np.array([k for k, other in enumerate(dtypes) if other == dtype])
            windows = np.empty((len(rows), self._n_tokens * dtype.itemsize), np.uint8)
            for window, (number, start) in zip(windows, [places[k] for k in rows.tolist()], strict=True):
                self._read(number, start, window)
            tokens = windows.view(dtype)
            like = like_of(tokens.reshape(-1))
            if like is None:
                yield copied_group(list(tokens), rows)
            else:
                yield Group(row_addresses(tokens), rows, like, tokens)

    def _read(self, number: int, start: int, out: npt.NDArray[np.uint8]) -> None:
        shard = self._shards[number]
        offset = shard.offset + start * shard.dtype.itemsize
        try:
            n_bytes = self._file(number).read_into(out, offset)
        except OSError as error:
            if error.errno != errno.ESTALE:  # a network file system that wants the file opened again
                raise
            with self._files_lock:
                self._files.pop(number, None)
            n_bytes = self._file(number).read_into(out, offset)
        if n_bytes < len(out):
            end = offset + n_bytes
            raise FormatError(shard.path, end, "the end of the file", f"{offset + len(out)} bytes, as when opened")

    def _file(self, number: int) -> Reader:
        file = self._files.get(number)
        if file is None:
            file = self._shards[number].open_reader()
            with self._files_lock:
                while len(self._files) >= MAX_OPEN_FILES:
                    del self._files[next(iter(self._files))]
                self._files[number] = file
        return file

    def will_need(self, indices: npt.NDArray[np.int64], negative: bool = False) -> None:
        shards, starts = self._place(indices, negative)
        for number, start in zip(shards.tolist(), starts.tolist(), strict=True):
            shard = self._shards[number]
            n_bytes = self._n_tokens * shard.dtype.itemsize
            self._file(number).will_need(shard.offset + start * shard.dtype.itemsize, n_bytes)

    def close(self) -> None:
        super().close()
        with self._files_lock:
            self._files = {}


class ReadChosenWindows(ReadWindows):
    """Windows of one shard that begin anywhere: window i at token starts[i] (int64 [n])."""

    def __init__(self, shard: TokenSegment, starts: npt.NDArray[np.int64], n_tokens: int) -> None:
        super().__init__([shard], [len(starts)], n_tokens, 1)
        self.starts = starts

    def _place(
        self, indices: npt.NDArray[np.int64], negative: bool
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """As `Windows._place`; ValueError for a window that does not lie in the shard."""
        shards, numbers = super()._place(indices, negative)
        return shards, starts_of(self.starts, numbers, self._n_tokens, self._shards[0].length)
