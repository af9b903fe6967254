"""`pack_encoded_data`: a JSONL file and its index, tokenised and packed into one `.pbin`, byte for byte as Modalities.

Where Modalities loses data, this does not: a document that cannot be packed is left out, named, and costs no other.
Such are: an empty text (Modalities calls it faulty too; only a tokenizer that adds tokens to an empty text makes it a
document), a result that is no string (null, a missing key, a number, an array), no result, invalid UTF-8 or JSON, a
lone high surrogate escape, and a token beyond the file's token size.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, TypedDict

import numpy as np
import numpy.typing as npt

from fastpack import files
from fastpack.build.packing.config import PackConfig, PackSettings, load_pack_config
from fastpack.build.packing.encode import Batch, Encoded, Encoder, EncoderSpec
from fastpack.build.tokenizing.interface import Tokenizer, TokenizerSpec, token_size
from fastpack.files import ExistencePolicy, PathLike, Progress
from fastpack.formats.json_fields import compile_pattern
from fastpack.formats.jsonl import check_bounds, counts_characters, read_raw_index
from fastpack.formats.pbin import PackedWriter

Rows: TypeAlias = npt.NDArray[np.int64]

MAX_BATCH_BYTES = 2 << 20  # 0.4 s of a Hugging Face tokenizer: hand-over costs below 1 %
MIN_BATCH_BYTES = 256 << 10  # stays in the processor's cache: built-in bytes run 1.2 times as fast as with 2 MiB
MAX_BATCH_LINES = 16_384
BATCHES_PER_WORKER = 8


class Skipped(TypedDict):
    """A document that was left out: its line, counted from 0 as the index counts, and why."""

    line: int
    reason: str


@dataclass(frozen=True)
class PackResult:
    """What was packed. `kept_existing`: the target was there already and the policy was "skip"; nothing was done."""

    path: str
    documents: int
    tokens: int
    skipped: list[Skipped] = field(default_factory=list)
    kept_existing: bool = False


def pack_encoded_data(
    config: PathLike | Mapping[str, Any],
    *,
    file_existence_policy: ExistencePolicy = "error",
    on_faulty: Literal["skip", "error"] = "skip",
    progress: Progress | None = None,
) -> PackResult:
    """Tokenise and pack what a Modalities configuration says (a YAML file, or a mapping of the same shape).

    The bytes written depend on neither `num_cpus` nor batch sizes. The target appears complete or not at all.
    `progress(done, total)` is called in bytes of lines. With `on_faulty="error"` the first document that cannot be
    packed ends the run.

    Raises ValueError and FileNotFoundError for the configuration (`load_pack_config`) and the tokenizer; TargetExists
    (a ValueError) when the target is there; ValueError naming file, line, byte offset and reason for a faulty document
    under "error"; FormatError for an index that does not fit the source; JobError when a worker process dies.
    """
    if on_faulty not in ("skip", "error"):
        raise ValueError(f"unknown rule for faulty documents {on_faulty!r}: choose skip or error")
    checked = load_pack_config(config)
    tokenizer, spec = _prepare(checked)
    settings = checked.settings
    if not files.may_write(settings.dst_path, file_existence_policy):
        return PackResult(settings.dst_path, 0, 0, kept_existing=True)
    run = _Run(settings, _read_index(settings), on_faulty, progress)
    policy: ExistencePolicy = "override" if file_existence_policy == "override" else "error"
    with PackedWriter(settings.dst_path, spec.token_size, file_existence_policy=policy) as writer:
        run.write(writer, spec, tokenizer)
    return PackResult(settings.dst_path, run.documents, run.tokens, run.skipped)


def _prepare(config: PackConfig) -> tuple[Tokenizer, EncoderSpec]:
    """The tokenizer and the description from which workers build theirs; what is wrong with either is raised here."""
    settings = config.settings
    tokenizer_spec = TokenizerSpec(config.tokenizer.variant_key, config.tokenizer.config)
    tokenizer = tokenizer_spec.build()
    size = token_size(tokenizer.vocab_size)
    eod = tokenizer.eod_id(settings.eod_token)
    if eod >= 1 << (8 * size):
        raise ValueError(
            f"settings.eod_token: {settings.eod_token!r} has the id {eod}, which does not fit into the {size} byte(s) "
            f"a token takes with a vocabulary of {tokenizer.vocab_size}"
        )
    compile_pattern(settings.jq_pattern)
    return tokenizer, EncoderSpec(settings.jq_pattern, tokenizer_spec, eod, size)


def _read_index(settings: PackSettings) -> Rows:
    rows = read_raw_index(settings.index_path)
    data = files.map_bytes(settings.src_path)
    check_bounds(rows, len(data), settings.index_path)
    if counts_characters(data, rows):
        raise ValueError(
            f"{settings.index_path} measures lines in characters, as Modalities did before v0.4.0, so documents would "
            f"be cut short: `fastpack index {settings.src_path} --repair-legacy` restores the lengths in bytes"
        )
    return rows


class _Run:
    def __init__(self, settings: PackSettings, rows: Rows, on_faulty: str, progress: Progress | None) -> None:
        self.settings, self.rows = settings, rows
        self.fail, self.progress = on_faulty == "error", progress
        self.documents = self.tokens = 0
        self.skipped: list[Skipped] = []
        self._ends = np.cumsum(rows[:, 1])

    def write(self, writer: PackedWriter, spec: EncoderSpec, tokenizer: Tokenizer) -> None:
        """Encode every batch, in workers where there is work for more than one process, and write them in order."""
        total = int(self._ends[-1]) if len(self.rows) else 0
        n_workers = min(self.settings.num_cpus, total // tokenizer.worker_bytes)
        share = total // (n_workers * BATCHES_PER_WORKER) if n_workers > 1 else 0
        batches = list(self._batches(min(MAX_BATCH_BYTES, max(MIN_BATCH_BYTES, share))))
        work = (Batch(self.settings.src_path, self.rows[first:end]) for first, end in batches)
        with contextlib.ExitStack() as stack:
            encoded: Iterable[Encoded]
            if n_workers > 1:
                from fastpack.build.packing.workers import WorkerPool

                encoded = stack.enter_context(WorkerPool(spec, n_workers)).encode(work)
            else:
                stack.enter_context(_single_threaded())
                encoded = map(Encoder(spec, tokenizer).encode, work)
            for (first, end), batch in zip(batches, encoded, strict=True):
                self._note_faulty(first, batch.faulty)
                writer.append_bytes(batch.tokens, batch.lengths)
                self.documents += len(batch.lengths)
                self.tokens += int(batch.lengths.sum())
                if self.progress is not None:
                    self.progress(int(self._ends[end - 1]), total)

    def _batches(self, n_bytes: int) -> Iterator[tuple[int, int]]:
        """Ranges of lines of about `n_bytes` in all, at least one line each."""
        first, ends = 0, self._ends
        while first < len(ends):
            before = int(ends[first - 1]) if first else 0
            end = int(np.searchsorted(ends, before + n_bytes, side="right"))
            end = min(max(end, first + 1), first + MAX_BATCH_LINES)
            yield first, end
            first = end

    def _note_faulty(self, first: int, faulty: list[tuple[int, str]]) -> None:
        for position, reason in faulty:
            line = first + position
            if self.fail:
                raise ValueError(f"{self.settings.src_path}: line {line} at byte {int(self.rows[line, 0])}: {reason}")
            self.skipped.append({"line": line, "reason": reason})


@contextlib.contextmanager
def _single_threaded() -> Iterator[None]:
    """Keep the tokenizers library to this thread: `num_cpus: 1` means one."""
    name = "TOKENIZERS_PARALLELISM"
    before = os.environ.get(name)
    os.environ[name] = "false"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
