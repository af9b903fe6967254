"""`pack` in tasks: parts of the sources are tokenised anywhere, in any order, and then joined into the packed files.

A task's file has the tokens of its documents, as the packed file will have them, and then their lengths in tokens,
int64. Joined in order they are, byte for byte, what `pack_encoded_data` writes.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, reduce
from typing import Any

import numpy as np

from fastpack.distributed.concatenate import append_parts, counted, join_packed, part_of
from fastpack.distributed.plan import Done, Plan, Task, cut, part_bytes, parts_folder, results
from fastpack.documents.compressed import is_compressed
from fastpack.io import AtomicFile, ExistencePolicy, Progress, may_write
from fastpack.io.source_fingerprints import fingerprint
from fastpack.packing.encoder import Counts, Encoder
from fastpack.packing.pack_job import is_to_write, prepare_encoder, warn_of_inner_eos
from fastpack.packing.pack_result import PackResult, Skipped
from fastpack.packing.packing_pipeline import MAX_BATCH_BYTES, stop_error
from fastpack.packing.settings import PackSettings
from fastpack.packing.source_batches import lines_before, read_part
from fastpack.packing.source_indexes import check_indexes
from fastpack.packing.targets import Target, targets_of, tokenizer_files
from fastpack.tokens.flat.npy_writer import is_npy, npy_header


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
    stamps = [fingerprint(path) for path in [*paths, *tokenizer_files(settings)]]
    sizes = dict(zip(paths, (stamp.n_bytes for stamp in stamps), strict=False))
    folder = parts_folder(settings.output or targets[0].output, folder)
    tasks = list(_tasks(targets, sizes, bytes_per_task))
    unneeded = frozenset(task.name for number, task in tasks if kept[number])
    return Plan(
        "fastpack.distributed.pack_tasks:pack_part",
        folder,
        settings.as_json(),
        stamps,
        [task for _, task in tasks],
        unneeded,
    )


def _tasks(targets: Sequence[Target], known: Mapping[str, int], asked: int | None) -> Iterator[tuple[int, Task]]:
    """(number of the target, task) for parts of sources, which are named by their number among all."""
    sizes = [[known[source.path] for source in target.sources] for target in targets]
    n_bytes = part_bytes(sum(map(sum, sizes)), asked)
    first = number = 0
    for target_number, (target, its_sizes) in enumerate(zip(targets, sizes, strict=True)):
        whole = [is_compressed(source.path) for source in target.sources]
        for pieces in cut(its_sizes, whole, n_bytes):
            numbered = [[first + source, part, n_parts] for source, part, n_parts in pieces]
            share = sum(its_sizes[source] // n_parts for source, _, n_parts in pieces)
            yield target_number, Task(f"{number:06d}", {"pieces": numbered}, share)
            number += 1
        first += len(target.sources)


def pack_part(settings: Mapping[str, Any], arguments: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Do a task: tokens and lengths into `path`.

    Returns documents, tokens, token_size, engine, engine_note, and of each piece its lines and what was left out, with
    lines counted from the piece's first. Raises ValueError for a faulty document under "error".
    """
    encoder, size, engine, note = _encoder(json.dumps(settings))
    chosen = PackSettings.from_json(settings)
    lengths, pieces = array("q"), list[tuple[int, list[tuple[int, str]]]]()
    with AtomicFile(path, follow=False) as file:
        counts = Counts()
        for number, part, n_parts in arguments["pieces"]:
            source = chosen.sources[number]
            n_lines = 0
            skipped: list[tuple[int, str]] = []
            for piece in read_part(source, part, n_parts, MAX_BATCH_BYTES):
                encoded = encoder.encode(piece.batch)
                if encoded.stop is not None:
                    raise stop_error(piece, encoded.stop, lines_before(source, part, n_parts))
                counts = counts.plus(encoded.counts)
                if encoded.faulty and chosen.on_error == "raise":
                    position, reason = encoded.faulty[0]
                    line = piece.lines[position] + lines_before(source, part, n_parts)
                    raise ValueError(f"{source.path}: line {line} at byte {piece.offset(position)}: {reason}")
                found = [(int(piece.lines[position]), reason) for position, reason in encoded.faulty]
                skipped += sorted([*piece.omitted, *found])
                if len(encoded.tokens):
                    file.write(encoded.tokens)
                lengths.frombytes(encoded.lengths.astype(np.int64, copy=False).tobytes())
                n_lines = piece.n_lines
            pieces.append((n_lines, skipped))
        n_tokens = file.tell() // size
        if lengths:
            file.write(lengths.tobytes())
    done = {"documents": len(lengths), "tokens": n_tokens, "token_size": size, "pieces": pieces}
    return {**done, "counts": counts, "engine": engine, "engine_note": note}


@lru_cache(maxsize=1)
def _encoder(settings: str) -> tuple[Encoder, int, str, str | None]:
    """Return the encoder; it is built once per process, because the choice of the engine reads sample documents."""
    spec, choice = prepare_encoder(PackSettings.from_json(json.loads(settings)))
    return Encoder(spec, choice.tokenizer), spec.token_size, choice.spec.engine, choice.sentence


def collect_pack(
    plan: Plan, *, if_exists: ExistencePolicy = "error", progress: Progress | None = None
) -> list[PackResult]:
    """Join what the tasks of a plan of `plan_pack` left into the packed files; their results, in order.

    Raises JobError, with their names, where tasks are not done; TargetExists by the policy.
    """
    targets = targets_of(PackSettings.from_json(plan.settings))
    kept = [not may_write(target.output, if_exists) for target in targets]
    if all(kept):
        return [PackResult(target.output, 0, 0, kept_existing=True) for target in targets]
    done = results(plan)
    left = [(task, done[task.name]) for task in plan.needed]
    advance = counted(progress, sum(_n_bytes(found) for _, found in left))
    packed: list[PackResult] = []
    first = 0
    for target, keeps in zip(targets, kept, strict=True):
        last = first + len(target.sources)
        parts = [(task, found) for task, found in left if first <= task.arguments["pieces"][0][0] < last]
        if keeps:
            packed.append(PackResult(target.output, 0, 0, kept_existing=True))
        else:
            packed.append(_join(target, [found for _, found in parts], if_exists, advance))
            packed[-1].skipped.extend(_skipped(parts, plan.settings, len(target.sources) > 1))
        first = last
    return packed


def _n_bytes(done: Done) -> int:
    n_bytes: int = done.result["tokens"] * done.result["token_size"]
    return n_bytes


def _join(target: Target, tasks: Sequence[Done], policy: ExistencePolicy, advance: Callable[[int], None]) -> PackResult:
    said = tasks[0].result
    parts = [part_of(done, _n_bytes(done), done.result["documents"]) for done in tasks]
    n_bytes = sum(part.n_bytes for part in parts)
    if is_npy(target.output):
        with AtomicFile(target.output, policy=policy) as output:
            output.write(npy_header(n_bytes // said["token_size"], said["token_size"]))
            output.reserve(n_bytes)
            append_parts(output, parts, advance)
    else:
        join_packed(parts, said["token_size"], target.output, policy, advance)
    n_documents, n_tokens = sum(part.n_documents for part in parts), n_bytes // said["token_size"]
    counts = reduce(Counts.plus, (done.result["counts"] for done in tasks), Counts())
    warn_of_inner_eos(target.output, counts)
    return PackResult(
        target.output,
        n_documents,
        n_tokens,
        [],
        engine=said["engine"],
        engine_note=said["engine_note"],
        **counts._asdict(),
    )


def _skipped(parts: Sequence[tuple[Task, Done]], settings: Mapping[str, Any], several: bool) -> Iterator[Skipped]:
    """What was left out, with lines counted from the start of each source."""
    before: dict[int, int] = {}
    for task, done in parts:
        for (number, _, _), (n_lines, skipped) in zip(task.arguments["pieces"], done.result["pieces"], strict=True):
            first = before.get(number, 0)
            for line, reason in skipped:
                found: Skipped = {"line": first + line, "reason": reason}
                if several:
                    found["source"] = settings["sources"][number][0]
                yield found
            before[number] = first + n_lines
