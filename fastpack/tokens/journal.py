"""Checkpoints of token writers: after a kill, work resumes from the last checkpoint.

The journal `.<name>.journal` is stored next to the partial file. It is a sequence of frames: u32 length, u32 CRC-32
(little-endian), and that many bytes. The first frame is a JSON line that identifies the work. Each later frame is a
JSON line (the progress of the writer and of its user) and the lengths of the documents since the previous frame, int64.
A frame is written after its tokens have reached the disk, so everything up to the last complete frame is there.
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
from fastpack.tokens.token_writer import BufferedTokenWriter

VERSION = 1
_FRAME = struct.Struct("<II")


class CheckpointedWriter(BufferedTokenWriter):
    """Mixin for token writers: `checkpoint(note)` saves the progress; `suspend()` stops so that work can be resumed.

    Attributes
    ----------
    identity
        What the file is made from and how. Work saved under another identity is not resumed.
    notes
        The notes of the checkpoints that this writer resumes from, in order; empty if it starts from the beginning.
    stale
        Whether a journal of other work was found.
    """

    def __init__(
        self,
        path: PathLike,
        token_size_in_bytes: int,
        identity: str,
        *,
        if_exists: ExistencePolicy = "error",
        resume: bool = False,
    ) -> None:
        self.identity = identity
        self.notes: list[Any] = []
        self.stale = False
        self._resume = resume
        self._journal_path = journal_path(path)
        self._noted = 0  # documents whose lengths are in the journal
        self._journal_bytes = 0  # complete frames of this work; a torn frame may follow them
        super().__init__(path, token_size_in_bytes, if_exists=if_exists)

    def _open(self, path: PathLike) -> AtomicFile:
        output = AtomicFile(path, keep=True, policy=self._policy)
        try:
            if not (self._resume and self._restore(output)):
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

    def _restore(self, output: AtomicFile) -> bool:
        """Restore the state of the last checkpoint; return False if there is none of this work."""
        frames = read_journal(self._journal_path)
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
        """Flush all tokens to the disk and save the progress; a writer that resumes from here finds `note`."""
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
        """Stop after an interrupt, with a last checkpoint if the file is complete; return whether any work is kept."""
        if self._output is not None:
            self._flush()
            n_bytes = self.header_bytes + self.n_tokens * self.token_size_in_bytes
            if os.fstat(self._output.fileno()).st_size == n_bytes:  # else a write was interrupted
                self.checkpoint(note)
        self.suspend()
        return self.is_kept

    def close(self) -> None:
        """Finish the file and remove its journal."""
        open_before = self._output is not None
        super().close()
        if open_before:
            remove(self._journal_path)

    @property
    def is_kept(self) -> bool:
        """Whether there is a checkpoint to resume from."""
        return bool(self._journal_bytes)

    def suspend(self) -> None:
        """Stop and keep the work up to the last checkpoint for `resume`; remove it if there is no checkpoint."""
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
        """Remove what was written, and the journal."""
        if self._output is not None:
            remove(self._journal_path)  # before the partial file that it describes
            super().abort()


def journal_path(path: PathLike) -> str:
    """Return the path of the journal of a token file that is being written."""
    return f"{partial_path(path).removesuffix('.partial')}.journal"


def remove_finished_journal(path: PathLike) -> None:
    """Remove the journal that a kill left next to a complete token file."""
    if exists(path) and not os.path.lexists(partial_path(path)):
        remove(journal_path(path))


def read_journal(path: PathLike) -> Iterator[tuple[dict[str, Any], bytes, int]]:
    """Yield (JSON fields, following bytes, its end in bytes) of each frame before the first torn one.

    Yields nothing if there is no file.
    """
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
