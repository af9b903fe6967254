"""`pack` as tasks: tokenise chunks of the sources, then concatenate the tokens into the output files.

The file of a task contains the tokens of its documents in the format of the output, then their lengths in tokens,
int64. Concatenated in order they are, byte for byte, what `pack_files` writes. Of conversations, the result of a task
also has their loss mask, as text.
"""

from __future__ import annotations

import base64
import json
import zlib
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache, partial, reduce
from typing import Any

import numpy as np

from fastpack.distributed.map_concatenate import (
    byte_counter,
    chunk_bytes,
    concatenate_tokens,
    numbered_tasks,
    split_sources,
    task_bytes,
    task_folder,
    task_output,
)
from fastpack.distributed.plan import Done, Plan, Task, results
from fastpack.io import AtomicFile, ExistencePolicy, Progress, may_write
from fastpack.io.source_fingerprints import fingerprint
from fastpack.packing.chat_encoder import build_encoder
from fastpack.packing.encoder import ChatCounts, Counts, Encoder, EncoderSpec
from fastpack.packing.output_formats import stored_dtype
from fastpack.packing.pack_job import chat_result, is_to_write, prepare_encoder, warn_of_inner_eos
from fastpack.packing.pack_result import ChatResult, PackResult, Skipped
from fastpack.packing.packing_pipeline import MAX_BATCH_BYTES, check_encoded, skipped_lines
from fastpack.packing.settings import PackSettings
from fastpack.packing.source_batches import lines_before, read_chunk
from fastpack.packing.source_indexes import check_indexes
from fastpack.packing.targets import Target, targets_of
from fastpack.packing.tokenizer_files import tokenizer_files
from fastpack.tokens.formats import format_named
from fastpack.tokens.mask_bits import MaskBits
from fastpack.tokens.tokenizer_fingerprint import TokenizerFingerprint


def plan_pack(settings: PackSettings, *, bytes_per_task: int | None = None, folder: str | None = None) -> Plan:
    """Plan a pack job as tasks; `collect_pack` is its last step.

    bytes_per_task: of the sources (default: 64 MiB, or more where that would make thousands of tasks). The result does
    not depend on it. folder: of the tasks' files (default: that of the target). Raises what the job itself raises
    before it reads documents; indexes are not created.
    """
    settings = check_indexes(settings)
    targets = targets_of(settings)
    kept = [not is_to_write(target, settings) for target in targets]
    paths = [path for source in settings.sources for path in (source.path, source.index_path) if path is not None]
    stamps = [fingerprint(path) for path in [*paths, *tokenizer_files(settings.tokenizer)]]
    sizes = dict(zip(paths, (stamp.n_bytes for stamp in stamps), strict=False))
    folder = task_folder(settings.output or targets[0].output, folder)
    work = list(_split(targets, sizes, bytes_per_task))
    tasks = numbered_tasks((arguments, n_bytes) for _, arguments, n_bytes in work)
    unneeded = frozenset(task.name for task, (number, _, _) in zip(tasks, work, strict=True) if kept[number])
    return Plan("pack", folder, settings.as_json(), stamps, tasks, unneeded)


def _split(
    targets: Sequence[Target], known: Mapping[str, int], requested: int | None
) -> Iterator[tuple[int, dict[str, Any], int]]:
    """Yield (number of the target, arguments, input bytes) of each task; chunks name sources by number among all."""
    sizes = [[known[source.path] for source in target.sources] for target in targets]
    n_bytes = task_bytes(sum(map(sum, sizes)), requested)
    first = 0
    for number, (target, target_sizes) in enumerate(zip(targets, sizes, strict=True)):
        whole = [not source.is_splittable for source in target.sources]
        for group in split_sources(target_sizes, whole, n_bytes):
            chunks = [[first + source, chunk, n_chunks] for source, chunk, n_chunks in group]
            yield number, {"chunks": chunks}, chunk_bytes(group, target_sizes)
        first += len(target.sources)


def pack_task(settings: Mapping[str, Any], arguments: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Tokenise the chunks of a task; write tokens and document lengths to `path`.

    Returns documents, tokens, token_size, engine, engine_note, counts, the fingerprint of the tokenizer, and for each
    chunk its number of lines and its skipped lines, counted from 1 in the chunk. Raises ValueError for a faulty
    document under `on_error="raise"`.
    """
    encoder, spec, note = _encoder(json.dumps(settings))
    chosen = PackSettings.from_json(settings)
    lengths, counts, chats, mask = array("q"), Counts(), ChatCounts(), MaskBits()
    chunks: list[tuple[int, list[tuple[int, str]]]] = []
    with AtomicFile(path, follow=False) as file:
        for number, chunk, n_chunks in arguments["chunks"]:
            source, n_lines = chosen.sources[number], 0
            skipped: list[tuple[int, str]] = []
            for batch in read_chunk(source, chunk, n_chunks, MAX_BATCH_BYTES):
                encoded = encoder.encode(batch.batch)
                check_encoded(batch, encoded, chosen.on_error, partial(lines_before, source, chunk, n_chunks))
                counts, chats = counts.plus(encoded.counts), chats.plus(encoded.chats)
                if encoded.mask is not None:
                    mask.append(encoded.mask)
                skipped += skipped_lines(batch, encoded)
                if len(encoded.tokens):
                    file.write(encoded.tokens)
                lengths.frombytes(encoded.lengths.astype(np.int64, copy=False).tobytes())
                n_lines = batch.n_lines
            chunks.append((n_lines, skipped))
        n_tokens = file.tell() // spec.token_size
        if lengths:
            file.write(lengths.tobytes())
    done = {"documents": len(lengths), "tokens": n_tokens, "token_size": spec.token_size, "chunks": chunks}
    fingerprint = None if spec.fingerprint is None else asdict(spec.fingerprint)
    engine = spec.tokenizer.engine
    if chosen.chat is not None:
        done |= {"chats": chats, "mask": base64.b64encode(zlib.compress(mask.tail(0), 1)).decode()}
    return {**done, "counts": counts, "engine": engine, "engine_note": note, "tokenizer": fingerprint}


def _joined_mask(tasks: Sequence[Done]) -> MaskBits | None:
    """Return the loss mask of all tasks; None if they packed texts."""
    if "mask" not in tasks[0].result:
        return None
    whole = MaskBits()
    for task in tasks:
        part, n_tokens = MaskBits(), task.result["tokens"]
        part.restore(0, zlib.decompress(base64.b64decode(task.result["mask"])), n_tokens)
        whole.append(part.read(0, n_tokens))
    return whole


@lru_cache(maxsize=1)
def _encoder(settings: str) -> tuple[Encoder, EncoderSpec, str | None]:
    """Return the encoder; it is built once per process, because the choice of the engine reads sample documents."""
    spec, choice = prepare_encoder(PackSettings.from_json(json.loads(settings)))
    return build_encoder(spec, choice.tokenizer), spec, choice.sentence


def collect_pack(
    plan: Plan, *, if_exists: ExistencePolicy = "error", progress: Progress | None = None
) -> list[PackResult]:
    """Concatenate the outputs of the tasks of `plan_pack`; return the results of the output files in order.

    Raises JobError with the names of tasks that are not done; TargetExists by the policy.
    """
    settings = PackSettings.from_json(plan.settings)
    targets = targets_of(settings)
    kept = [not may_write(target.output, if_exists) for target in targets]
    kind = PackResult if settings.chat is None else ChatResult
    if all(kept):
        return [kind(target.output, 0, 0, kept_existing=True) for target in targets]
    done = results(plan)
    finished = [(task, done[task.name]) for task in plan.needed]
    advance = byte_counter(progress, sum(_n_bytes(found) for _, found in finished))
    packed: list[PackResult] = []
    first = 0
    for target, keeps in zip(targets, kept, strict=True):
        last = first + len(target.sources)
        own = [(task, found) for task, found in finished if first <= task.arguments["chunks"][0][0] < last]
        if keeps:
            packed.append(kind(target.output, 0, 0, kept_existing=True))
        else:
            packed.append(_concatenate(target, settings.format, [found for _, found in own], if_exists, advance))
            packed[-1].skipped.extend(_skipped(own, plan.settings, len(target.sources) > 1))
        first = last
    return packed


def _n_bytes(done: Done) -> int:
    n_bytes: int = done.result["tokens"] * done.result["token_size"]
    return n_bytes


def _concatenate(
    target: Target, format: str, tasks: Sequence[Done], policy: ExistencePolicy, advance: Callable[[int], None]
) -> PackResult:
    first = tasks[0].result
    size = first["token_size"]
    outputs = [task_output(done, _n_bytes(done), done.result["documents"]) for done in tasks]
    n_bytes = sum(output.n_bytes for output in outputs)
    stored = stored_dtype(format, size)
    recorded = first.get("tokenizer")
    fingerprint = None if recorded is None else TokenizerFingerprint(**recorded)
    mask = _joined_mask(tasks)
    concatenate_tokens(outputs, stored, stored, format_named(format), target.output, policy, advance, fingerprint, mask)
    counts = reduce(Counts.plus, (done.result["counts"] for done in tasks), Counts())
    warn_of_inner_eos(target.output, counts)
    result = PackResult(
        target.output,
        documents=sum(output.n_documents for output in outputs),
        tokens=n_bytes // size,
        engine=first["engine"],
        engine_note=first["engine_note"],
        **counts._asdict(),
    )
    if mask is None:
        return result
    return chat_result(
        result, mask.n_counted, reduce(ChatCounts.plus, (done.result["chats"] for done in tasks), ChatCounts())
    )


def _skipped(finished: Sequence[tuple[Task, Done]], settings: Mapping[str, Any], several: bool) -> Iterator[Skipped]:
    """Yield the skipped lines, counted from the start of each source."""
    before: dict[int, int] = {}
    for task, done in finished:
        for (number, _, _), (n_lines, skipped) in zip(task.arguments["chunks"], done.result["chunks"], strict=True):
            first = before.get(number, 0)
            for line, reason in skipped:
                found: Skipped = {"line": first + line, "reason": reason}
                if several:
                    found["source"] = settings["sources"][number][0]
                yield found
            before[number] = first + n_lines
