"""A packed file's writer that a kill costs only what came after its last checkpoint.

Beside the partial file lies `.<name>.journal`: frames of u32 length, u32 CRC-32 (little-endian) and that many bytes.
The first is a JSON line that says whose work this is, each later one a JSON line (how far the writer and its user had
come) and the lengths of the documents since the frame before, int64. A frame is written after the tokens it speaks of
have reached the disk, so whatever the last whole frame says is there.
"""

from __future__ import annotations

import json
import os
import struct
import sys
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

from fastpack.errors import INTERRUPTS
from fastpack.io import AtomicFile, ExistencePolicy, PathLike, exists, map_bytes, partial_path, remove, write_durably
from fastpack.tokens.pbin.packed_file import PackedWriter

VERSION = 1
_FRAME = struct.Struct("<II")


class CheckpointedWriter(PackedWriter):
    """A PackedWriter with `checkpoint(note)`; `suspend()` stops so that another one can go on from there.

    identity: what the file is made from and how, as one string; work left behind under another one is not taken up.
    resume: go on behind the last checkpoint, if there is one. notes: what was noted at the checkpoints that it goes on
    from, in order (empty: it starts anew). stale: there was a journal, but of other work.
    """

    def __init__(
        self,
        path: PathLike,
        token_size_in_bytes: int,
        identity: str,
        *,
        file_existence_policy: ExistencePolicy = "error",
        resume: bool = False,
    ) -> None:
        self.identity = identity
        self.notes: list[Any] = []
        self.stale = False
        self._resume = resume
        self._journal_path = journal_path(path)
        self._noted = 0  # documents whose lengths are in the journal
        self._journal_bytes = 0  # whole frames of this work; what a kill tore lies behind them
        super().__init__(path, token_size_in_bytes, file_existence_policy=file_existence_policy)

    def _open(self, path: PathLike) -> AtomicFile:
        output = AtomicFile(path, keep=True, policy=self._policy)
        try:
            if not (self._resume and self._take_up(output)):
                remove(self._journal_path)
                output.truncate(0)
                output.write(bytes(self.header_bytes))
        except BaseException:
            if isinstance(sys.exception(), INTERRUPTS) and self._resume:
                output.suspend()
            else:
                output.abort()
            raise
        return output

    def _take_up(self, output: AtomicFile) -> bool:
        """Set this writer to where the last checkpoint was; False where there is none of this work."""
        frames = _read_frames(self._journal_path)
        first = next(frames, None)
        if first is None:
            return False
        if first[0] != self._first_frame():
            self.stale = True
            return False
        n_tokens = 0
        for fields, lengths, end in frames:
            n_tokens, self._journal_bytes = fields["tokens"], end
            self.notes.append(fields["note"])
            self._lengths.frombytes(lengths)
        n_bytes = self.header_bytes + n_tokens * self.token_size_in_bytes
        if not self.notes or n_bytes > output.tell():
            self.notes.clear()
            del self._lengths[:]
            self._journal_bytes = 0
            return False
        output.truncate(n_bytes)
        self.n_tokens, self._noted = n_tokens, len(self._lengths)
        return True

    def _first_frame(self) -> dict[str, Any]:
        return {"journal": VERSION, "identity": self.identity, "token_size": self.token_size_in_bytes}

    def checkpoint(self, note: Mapping[str, Any]) -> None:
        """Have all that was appended reach the disk, and note it: a later writer starts here, and is told `note`."""
        assert self._output is not None
        self._flush()
        self._output.sync()
        fields = {"tokens": self.n_tokens, "note": note}
        frames = _frame(fields, self._lengths[self._noted :].tobytes())
        if not self._journal_bytes:
            frames = _frame(self._first_frame()) + frames
        write_durably(self._journal_path, self._journal_bytes, frames)
        self._noted, self._journal_bytes = len(self._lengths), self._journal_bytes + len(frames)

    def keep(self, note: Mapping[str, Any]) -> bool:
        """Stop after an interrupt, with a last checkpoint if the file is whole; return whether anything is kept."""
        if self._output is not None:
            self._flush()
            n_bytes = self.header_bytes + self.n_tokens * self.token_size_in_bytes
            if os.fstat(self._output.fileno()).st_size == n_bytes:  # else a write was interrupted
                self.checkpoint(note)
        self.suspend()
        return self.is_kept

    def close(self) -> None:
        open_before = self._output is not None
        super().close()
        if open_before:
            remove(self._journal_path)

    @property
    def is_kept(self) -> bool:
        """Whether there is a checkpoint to continue from."""
        return bool(self._journal_bytes)

    def suspend(self) -> None:
        """Stop; the work up to the last checkpoint stays for `resume`, or nothing where there was none."""
        if not self._journal_bytes:
            self.abort()
        elif self._output is not None:
            self._output.suspend()
            self._output = None

    def _fail(self) -> None:
        if self._resume or isinstance(sys.exception(), INTERRUPTS):
            self.suspend()
        else:
            self.abort()

    def abort(self) -> None:
        if self._output is not None:
            remove(self._journal_path)  # first: it speaks of the partial file
            super().abort()


def journal_path(path: PathLike) -> str:
    """Where the journal of the packed file `path` lies while that is being written."""
    return f"{partial_path(path).removesuffix('.partial')}.journal"


def read_journal(path: PathLike) -> Iterator[tuple[dict[str, Any], bytes]]:
    """(JSON fields, bytes behind them) of each frame up to the first that is torn; nothing where there is no file."""
    return ((fields, rest) for fields, rest, _ in _read_frames(path))


def remove_finished_journal(path: PathLike) -> None:
    """Remove the journal that a kill left beside a packed file that was complete by then."""
    if exists(path) and not os.path.lexists(partial_path(path)):
        remove(journal_path(path))


def _read_frames(path: PathLike) -> Iterator[tuple[dict[str, Any], bytes, int]]:
    """As `read_journal`, each with where it ends, in bytes."""
    if not os.path.isfile(path):
        return
    data = map_bytes(path)
    start = 0
    while start + _FRAME.size <= len(data):
        n_bytes, checksum = _FRAME.unpack(data[start : start + _FRAME.size].tobytes())
        payload = data[start + _FRAME.size : start + _FRAME.size + n_bytes].tobytes()
        if len(payload) < n_bytes or zlib.crc32(payload) != checksum:
            return
        text, _, rest = payload.partition(b"\n")
        start += _FRAME.size + n_bytes
        yield json.loads(text), rest, start


def _frame(fields: Mapping[str, Any], rest: bytes = b"") -> bytes:
    payload = json.dumps(fields).encode() + b"\n" + rest
    return _FRAME.pack(len(payload), zlib.crc32(payload)) + payload
