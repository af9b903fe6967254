"""`pack` in tasks: parts of the sources are tokenised anywhere, in any order, and then joined into the packed files.

A task's file has the tokens of its documents, as the packed file will have them, and then their lengths in tokens,
int64. Joined in order they are, byte for byte, what `pack_encoded_data` writes.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache, reduce
from typing import Any

import numpy as np

from fastpack.distributed.concatenate import append_parts, counted, join_packed, part_of
from fastpack.distributed.plan import Done, Plan, Task, cut, part_bytes, parts_folder, results
from fastpack.documents.compressed import is_compressed
from fastpack.io import AtomicFile, ExistencePolicy, Progress, may_write
from fastpack.io.source_fingerprints import fingerprint
from fastpack.packing.encoder import Counts, Encoder
from fastpack.packing.modalities_config import (
    PackConfig,
    PackSettings,
    Source,
    TokenizerConfig,
    check_indexes,
    load_pack_config,
)
from fastpack.packing.pack import (
    Config,
    Engine,
    OnFaulty,
    PackResult,
    check_rules,
    is_to_write,
    prepare,
    warn_of_eos,
)
from fastpack.packing.packing_pipeline import MAX_BATCH_BYTES, Skipped, stopped
from fastpack.packing.source_batches import lines_before, read_part
from fastpack.packing.special_tokens import SpecialRule
from fastpack.packing.targets import Target, one_target, target_each, tokenizer_files
from fastpack.tokens.flat.npy_writer import is_npy, npy_header


def plan_parts(
    config: Config,
    *,
    each: bool = False,
    on_faulty: OnFaulty = "skip",
    engine: Engine = "auto",
    bytes_per_task: int | None = None,
    folder: str | None = None,
    file_existence_policy: ExistencePolicy = "error",
    special_tokens_in_text: SpecialRule = "keep",
    audit: float | None = None,
) -> Plan:
    """`pack_encoded_data` (each: `pack_each`) in tasks; `collect_parts` does the last step.

    bytes_per_task: of source (default: 64 MiB, or more where that would make thousands). The result does not depend
    on it. folder: of the tasks' files (default: that of the target). Raises what they raise before they read documents.
    """
    checked = check_indexes(load_pack_config(config, one_output=not each))
    targets = (target_each if each else one_target)(checked.settings)
    kept = [not is_to_write(target, file_existence_policy, False) for target in targets]
    sources = checked.settings.sources
    settings = {
        "sources": [[source.path, source.index_path] for source in sources],
        "dst_path": checked.settings.dst_path,
        "jq_pattern": checked.settings.jq_pattern,
        "eod_token": checked.settings.eod_token,
        "tokenizer": asdict(checked.tokenizer),
        "each": each,
        "on_faulty": on_faulty,
        "engine": engine,
        "special_tokens_in_text": special_tokens_in_text,
        "audit": audit,
    }
    check_rules(special_tokens_in_text, audit)
    paths = [path for source in sources for path in (source.path, source.index_path) if path is not None]
    stamps = [fingerprint(path) for path in [*paths, *tokenizer_files(checked)]]
    sizes = dict(zip(paths, (size for _, size, _ in stamps), strict=False))
    folder = parts_folder(checked.settings.dst_path or targets[0].dst_path, folder)
    tasks = list(_tasks(targets, sizes, bytes_per_task))
    unneeded = frozenset(task.name for number, task in tasks if kept[number])
    settings = json.loads(json.dumps(settings, default=str))
    return Plan(
        "fastpack.distributed.pack_tasks:pack_part", folder, settings, stamps, [task for _, task in tasks], unneeded
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
    lengths, pieces = array("q"), list[tuple[int, list[tuple[int, str]]]]()
    with AtomicFile(path, follow=False) as file:
        counts = Counts()
        for number, part, n_parts in arguments["pieces"]:
            source = Source(*settings["sources"][number])
            n_lines = 0
            skipped: list[tuple[int, str]] = []
            for piece in read_part(source, part, n_parts, MAX_BATCH_BYTES):
                encoded = encoder.encode(piece.batch)
                if encoded.stop is not None:
                    raise stopped(piece, encoded.stop, lines_before(source, part, n_parts))
                counts = counts.plus(encoded.counts)
                if encoded.faulty and settings["on_faulty"] == "error":
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
    """Made once a process: what decides on the engine reads a sample of the documents."""
    chosen = json.loads(settings)
    config, engine = _config(chosen)
    spec, tokenizer, note = prepare(config, engine, chosen["special_tokens_in_text"], chosen["audit"])
    return Encoder(spec, tokenizer), spec.token_size, spec.tokenizer.engine, note


def _config(settings: Mapping[str, Any]) -> tuple[PackConfig, Engine]:
    tokenizer = TokenizerConfig(**settings["tokenizer"])
    sources = tuple(Source(*source) for source in settings["sources"])
    given = PackSettings(sources, settings["dst_path"], settings["jq_pattern"], 1, settings["eod_token"])
    return PackConfig(given, tokenizer), settings["engine"]


def collect_parts(
    plan: Plan, *, file_existence_policy: ExistencePolicy = "error", progress: Progress | None = None
) -> list[PackResult]:
    """Join what the tasks of a plan of `plan_parts` left into the packed files; their results, in order.

    Raises JobError, with their names, where tasks are not done; TargetExists by the policy.
    """
    config, _ = _config(plan.settings)
    targets = (target_each if plan.settings["each"] else one_target)(config.settings)
    kept = [not may_write(target.dst_path, file_existence_policy) for target in targets]
    if all(kept):
        return [PackResult(target.dst_path, 0, 0, kept_existing=True) for target in targets]
    done = results(plan)
    left = [(task, done[task.name]) for task in plan.needed]
    advance = counted(progress, sum(_n_bytes(found) for _, found in left))
    packed: list[PackResult] = []
    first = 0
    for target, keeps in zip(targets, kept, strict=True):
        last = first + len(target.sources)
        parts = [(task, found) for task, found in left if first <= task.arguments["pieces"][0][0] < last]
        if keeps:
            packed.append(PackResult(target.dst_path, 0, 0, kept_existing=True))
        else:
            packed.append(_join(target, [found for _, found in parts], file_existence_policy, advance))
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
    if is_npy(target.dst_path):
        with AtomicFile(target.dst_path, policy=policy) as output:
            output.write(npy_header(n_bytes // said["token_size"], said["token_size"]))
            output.reserve(n_bytes)
            append_parts(output, parts, advance)
    else:
        join_packed(parts, said["token_size"], target.dst_path, policy, advance)
    n_documents, n_tokens = sum(part.n_documents for part in parts), n_bytes // said["token_size"]
    counts = reduce(Counts.plus, (done.result["counts"] for done in tasks), Counts())
    warn_of_eos(target.dst_path, counts)
    return PackResult(
        target.dst_path,
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
