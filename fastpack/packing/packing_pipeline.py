"""The pipeline of a pack job: batches of all sources go through the encoders and, in order, into the output files."""

from __future__ import annotations

import contextlib
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fastpack.errors import INTERRUPTS, JobError, note_interrupt, spoken
from fastpack.io import CountsDocuments, Progress, size_of
from fastpack.packing.chat_encoder import build_encoder
from fastpack.packing.encoder import Batch, ChatCounts, Counts, Encoded, EncoderSpec, Stop
from fastpack.packing.output_formats import RESUMABLE, create_output
from fastpack.packing.pack_result import Skipped
from fastpack.packing.settings import OnError, PackSettings
from fastpack.packing.source_batches import SourceBatch, read_batches
from fastpack.packing.targets import Target, identity
from fastpack.tokenizers.hf_tokenizer import single_threaded
from fastpack.tokenizers.interface import NEVER, Tokenizer
from fastpack.tokens.document_lines import LinesWriter
from fastpack.tokens.flat.npy_writer import CheckpointedNpyWriter
from fastpack.tokens.journal import CheckpointedWriter
from fastpack.tokens.mask_bits import MaskBits
from fastpack.tokens.pbin.packed_writer import CheckpointedPackedWriter
from fastpack.tokens.token_file import TokenWriter

MAX_BATCH_BYTES = 2 << 20  # 0.4 s of a Hugging Face tokenizer: the transfer between processes costs below 1 %
MIN_BATCH_BYTES = 256 << 10  # fits into the CPU cache: the bytes tokenizer runs 1.2 times as fast as with 2 MiB
BATCHES_PER_WORKER = 8
CHAT_WORKER_BYTES = 8 << 20  # as `Tokenizer.worker_bytes`, of conversations: rendering takes most of the time
FORK_BYTES = 16 << 20  # as `Tokenizer.worker_bytes`, of a forked worker
COMPRESSION_RATIO = 4  # assumed size of text relative to its compressed size
CHECKPOINT_SECONDS = 5.0  # the most work that a kill loses; a checkpoint takes about 10 ms
CHECKPOINT_BYTES = 256 << 20


@dataclass
class OutputFile:
    """An output file being written, with the counts of its documents so far."""

    target: Target
    writer: TokenWriter
    token_size: int
    checkpoints: CheckpointedWriter | None = None  # the writer, if it can be resumed
    lines: LinesWriter | None = None
    skipped: list[Skipped] = field(default_factory=list)
    counts: Counts = field(default_factory=Counts)
    chats: ChatCounts = field(default_factory=ChatCounts)
    resumed_documents: int = 0
    waiting: int = 0  # batches that are being encoded
    all_read: bool = False
    _after_batch: tuple[int, int, int, int, int, Counts] | None = None  # the state after the last complete batch
    _noted_skipped: int = 0
    _noted_tokens: int = 0
    _noted_at: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        notes = self._notes()
        self.skipped += [skipped for note in notes for skipped in note["skipped"]]
        if notes:
            self.counts = Counts(*notes[-1]["counts"])
            self.chats = ChatCounts(*notes[-1].get("chats", ()))
        if self.writer.mask is not None:
            self.writer.mask.restore_notes(note["mask"] for note in notes)
        self.resumed_documents = self.writer.n_documents
        self._noted_skipped, self._noted_tokens = len(self.skipped), self.writer.n_tokens

    def append(self, source: int, batch: SourceBatch, encoded: Encoded) -> None:
        """Append the documents of a batch."""
        self.writer.append_bytes(encoded.tokens, encoded.lengths)
        if self.writer.mask is not None:
            assert encoded.mask is not None
            self.writer.mask.append(encoded.mask)
        if self.lines is not None:
            self.lines.append(source, np.delete(batch.lines, [position for position, _ in encoded.faulty]))

    def close(self) -> None:
        """Give the file, and the one with its lines, their names."""
        if self.lines is not None:
            self.lines.commit()
        self.writer.close()

    def abort(self) -> None:
        """Remove what was written."""
        if self.lines is not None:
            self.lines.abort()
        self.writer.abort()

    def _notes(self) -> list[dict[str, Any]]:
        return [] if self.checkpoints is None else self.checkpoints.notes

    def start(self) -> tuple[int, int]:
        """Return the source and the row to continue with."""
        note = next(reversed(self._notes()), {"source": 0, "rows": 0})
        return note["source"], note["rows"]

    def note_batch(self, source: int, rows: int) -> None:
        """Note that everything up to `rows` rows of `source` is written."""
        writer = self.writer
        self._after_batch = writer.n_tokens, writer.n_documents, source, rows, len(self.skipped), self.counts

    def keep(self) -> bool:
        """Stop after an interrupt. Return whether anything is kept for `resume`."""
        if self.checkpoints is None or self.lines is not None:
            self.abort()
            return False
        if self._after_batch is not None:
            n_tokens, n_documents, source, rows, n_skipped, counts = self._after_batch
            if (n_tokens, n_documents) == (self.writer.n_tokens, self.writer.n_documents):
                skipped = self.skipped[self._noted_skipped : n_skipped]
                return self.checkpoints.keep(self._note(source, rows, skipped, counts))
        self.checkpoints.suspend()
        return self.checkpoints.is_kept

    def stop(self, resumable: bool) -> None:
        """Stop after an error. Keep what can be resumed if `resumable`, else remove it."""
        if resumable and self.checkpoints is not None:
            self.checkpoints.suspend()
        else:
            self.abort()

    def checkpoint_if_due(self, source: int, rows: int) -> None:
        """Write a checkpoint after `rows` rows of `source`, if enough time has passed or enough data was written."""
        if self.checkpoints is None:
            return
        n_bytes = (self.writer.n_tokens - self._noted_tokens) * self.token_size
        if n_bytes < CHECKPOINT_BYTES and time.monotonic() - self._noted_at < CHECKPOINT_SECONDS:
            return
        skipped = self.skipped[self._noted_skipped :]
        self.checkpoints.checkpoint(self._note(source, rows, skipped, self.counts))
        self._noted_skipped, self._noted_tokens = len(self.skipped), self.writer.n_tokens
        self._noted_at = time.monotonic()

    def _note(self, source: int, rows: int, skipped: list[Skipped], counts: Counts) -> dict[str, Any]:
        """Return what a checkpoint has to know."""
        note = {"source": source, "rows": rows, "skipped": skipped, "counts": counts}
        if (mask := self.writer.mask) is not None:
            note |= {"chats": self.chats, "mask": mask.note(self._noted_tokens)}
        return note


class EngineDiffers(JobError):
    """A faster engine gave other ids than the reference library, so none of its output is kept."""


def check_encoded(batch: SourceBatch, encoded: Encoded, on_error: OnError, lines_before: Callable[[], int]) -> None:
    """Raise for a document that ends the job; lines_before: returns the lines of the file before those of `batch`."""
    stop = encoded.stop
    if stop is None and encoded.faulty and on_error == "raise":
        stop = Stop(*encoded.faulty[0], by_engine=False)
    if stop is None:
        return
    text = f"{batch.place(stop.position, lines_before())}: {stop.reason}"
    if stop.by_engine:
        raise EngineDiffers(f"{text}. Nothing was written: run again with {spoken('engine')} tokenizers")
    raise ValueError(text)


def skipped_lines(batch: SourceBatch, encoded: Encoded) -> list[tuple[int, str]]:
    """Return (line, reason) of the lines that are not packed: without a row in the index, or faulty."""
    return sorted([*batch.omitted, *((int(batch.lines[position]), reason) for position, reason in encoded.faulty)])


class Packer:
    """Pack targets one after another with the same encoders."""

    def __init__(
        self, settings: PackSettings, spec: EncoderSpec, tokenizer: Tokenizer, progress: Progress | None = None
    ) -> None:
        self._settings, self._spec, self._tokenizer, self._progress = settings, spec, tokenizer, progress
        self._open: list[OutputFile] = []
        self._batches: deque[tuple[OutputFile, int, SourceBatch]] = deque()
        self._outputs: list[OutputFile] = []
        self._total = self._done = 0  # bytes of the sources
        self._packed = 0, 0  # documents and tokens of this run

    def pack(self, targets: Sequence[Target]) -> list[OutputFile]:
        """Write all `targets` and return their files in order."""
        sizes = [(size_of(s.path), s.is_smaller_than_text) for t in targets for s in t.sources]
        self._total = sum(size for size, _ in sizes)
        n_text = sum(size * COMPRESSION_RATIO if compressed else size for size, compressed in sizes)
        n_workers = min(self._settings.num_workers, n_text // self._worker_bytes())
        share = n_text // (n_workers * BATCHES_PER_WORKER) if n_workers > 1 else 0
        work = self._work(targets, min(MAX_BATCH_BYTES, max(MIN_BATCH_BYTES, share)))
        with contextlib.ExitStack() as stack:
            stack.push(self._stop)
            for encoded in self._encoders(stack, n_workers, work):
                self._write(*self._batches.popleft(), encoded)
        if self._progress is not None and self._outputs:
            self._progress(self._total, self._total)  # even where the index omits the last lines
        return self._outputs

    def _worker_bytes(self) -> int:
        """Return the bytes of text that are worth one more worker."""
        n_bytes = self._tokenizer.worker_bytes
        if self._settings.chat is not None:
            n_bytes = min(n_bytes, CHAT_WORKER_BYTES)
        if self._settings.num_workers > 1 and FORK_BYTES < n_bytes < NEVER:
            from fastpack.packing.worker_pool import can_fork

            return FORK_BYTES if can_fork() else n_bytes
        return n_bytes

    def _encoders(self, stack: contextlib.ExitStack, n_workers: int, work: Iterable[Batch]) -> Iterable[Encoded]:
        if n_workers > 1:
            from fastpack.packing.worker_pool import WorkerPool

            return stack.enter_context(WorkerPool(self._spec, n_workers, self._tokenizer)).encode(work)
        stack.enter_context(single_threaded())
        return map(build_encoder(self._spec, self._tokenizer).encode, work)

    def _work(self, targets: Sequence[Target], n_bytes: int) -> Iterator[Batch]:
        """Yield the batches of all targets; the target and source of each are queued for `_write`."""
        before = 0
        for target in targets:
            output = self._start(target)
            first_source, first_row = output.start()
            for number, source in enumerate(target.sources):
                if number >= first_source:
                    for batch in read_batches(source, first_row if number == first_source else 0, n_bytes):
                        output.waiting += 1
                        self._batches.append((output, number, batch._replace(done=before + batch.done)))
                        yield batch.batch
                before += size_of(source.path)
            output.all_read = True
            self._finish_if_done(output)

    def _start(self, target: Target) -> OutputFile:
        settings, size = self._settings, self._spec.token_size
        mask = None if settings.chat is None else MaskBits()
        if settings.format in RESUMABLE:
            kind = CheckpointedNpyWriter if settings.format == "npy" else CheckpointedPackedWriter
            writer = kind(
                target.output,
                size,
                identity(settings, target, self._spec.eos_token_id, size),
                if_exists=settings.if_exists,
                resume=settings.resume,
            )
            writer.mask = mask
            output = OutputFile(target, writer, size, writer)
        else:
            created = create_output(target.output, settings.format, size, settings.if_exists)
            created.mask = mask
            output = OutputFile(target, created, size)
        output.writer.fingerprint = self._spec.fingerprint
        self._outputs.append(output)
        self._open.append(output)
        if settings.record_lines:
            output.lines = LinesWriter(target.output, [source.path for source in target.sources], settings.if_exists)
        return output

    def _write(self, output: OutputFile, source: int, batch: SourceBatch, encoded: Encoded) -> None:
        check_encoded(batch, encoded, self._settings.on_error, lambda: 0)
        self._append_batch(output, source, batch, encoded)
        self._done = batch.done
        documents, tokens = self._packed
        self._packed = documents + len(encoded.lengths), tokens + int(encoded.lengths.sum())
        if len(batch.batch.rows):
            output.checkpoint_if_due(source, batch.next_row)
        if self._progress is not None:
            shown: object = self._progress
            if isinstance(shown, CountsDocuments):
                shown.count(*self._packed)
            self._progress(batch.done, self._total)
        self._finish_if_done(output)

    def _append_batch(self, output: OutputFile, source: int, batch: SourceBatch, encoded: Encoded) -> None:
        """Append a complete batch. The command line delays signals during this call: half a batch cannot be resumed."""
        for line, reason in skipped_lines(batch, encoded):
            output.skipped.append({"line": line, "reason": sys.intern(reason)})  # one string for equal reasons
            if len(output.target.sources) > 1:
                output.skipped[-1]["source"] = batch.batch.path
        output.counts = output.counts.plus(encoded.counts)
        output.chats = output.chats.plus(encoded.chats)
        output.append(source, batch, encoded)
        output.waiting -= 1
        if len(batch.batch.rows):
            output.note_batch(source, batch.next_row)

    def _finish_if_done(self, output: OutputFile) -> None:
        if output.all_read and not output.waiting:
            output.close()
            self._open.remove(output)

    def _stop(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        """Keep what can be resumed and remove the rest. The command line delays signals during this call."""
        if isinstance(error, INTERRUPTS):
            kept = [output.keep() for output in self._open]
            if any(kept):
                note_interrupt(error, self._done / max(1, self._total))
            return
        for output in self._open:
            output.stop(self._settings.resume and not isinstance(error, EngineDiffers))
