"""Walk a tar from front to back by its headers, and return its samples in chunks, with few reads."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fastpack import kernels
from fastpack.errors import FormatError, JobError
from fastpack.io import PathLike, open_reader, stat_of
from fastpack.kernels.codecs.tar_errors import MAX_NAME_BYTES, Outcome, State, TarSyntaxError

LARGE_WINDOW = 1 << 20  # 256 KiB to 2 MiB cost the same in the page cache; disks prefer large reads
SMALL_WINDOW = 1 << 13
FIRST_WINDOW = 1 << 16
LARGE_SPAN = 1 << 14  # mean distance of members beyond which reading only headers is faster

_ROWS = 8192  # per chunk; with the keys they fit into the second-level cache
_TEXT_BYTES = 1 << 18
_MAX_NAMES = 256  # distinct field names per chunk
# Plain integers: an enumeration member costs 0.1 us per use as an index, several times per large member.
_POSITION, _WANTED, _N_MEMBERS = map(int, (State.POSITION, State.WANTED, State.N_MEMBERS))
_WINDOW, _END = int(Outcome.WINDOW), int(Outcome.END)
_COMPRESSED = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ\0": "xz", b"\x28\xb5\x2f\xfd": "Zstandard"}


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive stored fields of a tar, and the samples that start with one of them.

    fields: int64[n, 5] of (sample number, index into field_names, content offset, content size, 1 for a sparse file).
    The size of a sparse file includes its holes, which the tar does not store, and its content at the offset is packed.
    keys, starts: of the new samples; starts is int64[k], the offset of the first header of each sample.
    """

    fields: npt.NDArray[np.int64]
    field_names: list[bytes]
    keys: list[bytes]
    starts: npt.NDArray[np.int64]


class TarWalk:
    """One walk through a tar: iterate over `chunks()`; then `end` and `n_members` are final.

    n_members: entries of every kind so far. end: end of the last entry's data and padding. n_bytes_read: bytes read so
    far, fewer than the file has if members are large. Raises FileNotFoundError, JobError if the path is not a regular
    file, FormatError for an empty or compressed file; `chunks()` raises FormatError for a damaged archive, or more than
    `max_members` entries.
    """

    def __init__(self, path: PathLike, max_members: int) -> None:
        self.path = os.fspath(path)
        status = stat_of(self.path)
        if not stat.S_ISREG(status.st_mode):
            raise JobError(f"{self.path} is not a regular file")
        self.n_bytes = status.st_size
        if self.n_bytes == 0:
            raise FormatError(self.path, 0, "an empty file", "a tar archive")
        self.n_bytes_read = 0
        self._file = open_reader(self.path, status)
        self._buffer = np.empty(min(FIRST_WINDOW, self.n_bytes), np.uint8)
        self._window, self._base = self._read(0, len(self._buffer)), 0
        _check_not_compressed(self.path, self._window[:8].tobytes())
        self._span, self._seen_position, self._seen_members = 0, 0, 0
        self._rows, self._samples = np.empty((_ROWS, 5), np.int64), np.empty((_ROWS, 3), np.int64)
        self._text, self._name_text = np.empty(_TEXT_BYTES, np.uint8), np.empty(2 * MAX_NAME_BYTES, np.uint8)
        self._name_ends = np.empty(_MAX_NAMES, np.int64)
        self._state = np.zeros(len(State), np.int64)
        self._state[State.MAX_MEMBERS], self._state[State.KEY_END] = max_members, -1

    @property
    def n_members(self) -> int:
        return int(self._state[_N_MEMBERS])

    @property
    def end(self) -> int:
        return int(self._state[_POSITION])

    def chunks(self) -> Iterator[Chunk]:
        """Yield the contents in order; memory does not grow with the file."""
        filled = self._state, self._rows, self._samples, self._text, self._name_text, self._name_ends
        outcome = _WINDOW
        while outcome != _END:
            try:
                outcome = kernels.walk_tar(self._window, self._base, self.n_bytes, *filled)
            except TarSyntaxError as error:
                raise FormatError(self.path, error.offset, error.found, error.expected) from None
            if outcome == _WINDOW:
                self._move_window()
            else:
                yield self._take()
        self._check_tail()

    def _take(self) -> Chunk:
        """Copy the outputs of the walk and reset them; only the last sample's key is kept."""
        state, text = self._state, self._text
        new = self._samples[: state[State.N_NEW]]
        letters, names = text[: state[State.TEXT_END]].tobytes(), self._name_text.tobytes()
        ends = self._name_ends[: state[State.N_PARTS]].tolist()
        chunk = Chunk(
            fields=self._rows[: state[State.N_ROWS]].copy(),
            field_names=[names[start:end] for start, end in zip([0, *ends], ends, strict=False)],
            keys=[letters[start:end] for start, end in zip(new[:, 1].tolist(), new[:, 2].tolist(), strict=True)],
            starts=new[:, 0].copy(),
        )
        if state[State.KEY_END] >= 0:
            key = text[state[State.KEY_START] : state[State.KEY_END]].copy()
            text[: len(key)] = key
            state[[State.KEY_START, State.KEY_END, State.TEXT_END]] = 0, len(key), len(key)
        state[[State.N_ROWS, State.N_NEW, State.N_PARTS, State.LAST_PART]] = 0
        return chunk

    def _move_window(self) -> None:
        """Read from the position on: a large window for small members, a small one for large members."""
        state = self._state.tolist()
        position, n_members = state[_POSITION], state[_N_MEMBERS]
        if n_members > self._seen_members:
            span = (position - self._seen_position) // (n_members - self._seen_members)
            self._span = (3 * self._span + span) // 4 if self._seen_members else span
            self._seen_position, self._seen_members = position, n_members
        n_bytes = max(SMALL_WINDOW if self._span > LARGE_SPAN else LARGE_WINDOW, state[_WANTED])
        self._window, self._base = self._read(position, min(n_bytes, self.n_bytes - position)), position

    def _read(self, offset: int, n_bytes: int) -> npt.NDArray[np.uint8]:
        """Return bytes [offset, offset + n_bytes), valid until the next read."""
        if len(self._buffer) < n_bytes:
            self._buffer = np.empty(n_bytes, np.uint8)
        window = self._buffer[:n_bytes]
        done = self._file.read_into(window, offset)
        self.n_bytes_read += done
        if done < n_bytes:
            expected = f"{self.n_bytes} bytes, as when the file was opened"
            raise FormatError(self.path, offset + done, "the end of the file", expected)
        return window

    def _check_tail(self) -> None:
        """Raise FormatError unless only zeros follow the archive: a second archive would be lost silently."""
        offset = self.end
        while offset < self.n_bytes:
            tail = self._read(offset, min(LARGE_WINDOW, self.n_bytes - offset))
            if tail.any():
                where = offset + int(np.flatnonzero(tail)[0])
                found = f"data after the end of the archive at byte {self.end}"
                raise FormatError(self.path, where, found, "zeros up to the end of the file, and no second archive")
            offset += len(tail)


def _check_not_compressed(path: str, magic: bytes) -> None:
    kind = next((kind for start, kind in _COMPRESSED.items() if magic.startswith(start)), None)
    if kind is not None:
        expected = "a plain tar: compressed archives have no random access; decompress it first"
        raise FormatError(path, 0, f"a file compressed with {kind}", expected)
