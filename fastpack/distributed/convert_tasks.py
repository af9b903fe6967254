"""`convert` as tasks: encode ranges of all tokens as the output stores them, then write the outputs from them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from fastpack.distributed.map_concatenate import equal_borders, numbered_tasks, task_bytes, task_folder, task_output
from fastpack.distributed.plan import Plan, results
from fastpack.io import AtomicFile, ExistencePolicy, PathLike, Progress, as_path, exists
from fastpack.io.source_fingerprints import check_unchanged, fingerprint
from fastpack.tokens.chunk_writer import put_run
from fastpack.tokens.common_fingerprint import common_fingerprint
from fastpack.tokens.convert import ConvertResult, describe, kept_result, open_sources, outputs_of
from fastpack.tokens.convert_dtypes import check_blocks, choose_dtype
from fastpack.tokens.convert_sources import find_shards
from fastpack.tokens.document_masks import corpus_mask
from fastpack.tokens.formats import format_named
from fastpack.tokens.interop_formats import output_files
from fastpack.tokens.token_corpus import TokenCorpus, joined
from fastpack.tokens.token_file import TokenFile
from fastpack.tokens.token_segment import TokenSegment
from fastpack.tokens.token_stream import TokenStream


def plan_conversion(
    sources: PathLike | Sequence[PathLike],
    output: PathLike,
    *,
    format: str | None = None,
    source_format: str | None = None,
    dtype: str | None = None,
    eos_token_id: int | None = None,
    shard_tokens: int | str | None = None,
    mix_tokenizers: bool = False,
    bytes_per_task: int | None = None,
    folder: str | None = None,
    if_exists: ExistencePolicy = "error",
) -> Plan:
    """Plan `convert` as tasks; `collect_conversion` is the last step.

    bytes_per_task: of output (default: 64 MiB, or a 4096th of all). folder: of the tasks' files (default: that of the
    output). Other arguments are those of `convert`. Raises what it raises, except for ids that do not fit, which the
    tasks find, and for errors in documents of raw formats, which the last step finds.
    """
    given = [sources] if isinstance(sources, (str, os.PathLike)) else list(sources)
    outputs = outputs_of(output, format, if_exists, shard_tokens)
    kept = outputs.is_kept()
    with open_sources(given, source_format, dtype, eos_token_id) as files:
        outputs.check_sources(files, eos_token_id)
        target_dtype = choose_dtype(files, outputs.row, dtype)
        common_fingerprint(files, mix_tokenizers)
        n_tokens = TokenCorpus.of(files, scan=False).n_tokens
        stamps = list(map(fingerprint, _input_files(files)))
    size = target_dtype.itemsize
    borders = equal_borders(n_tokens * size, task_bytes(n_tokens * size, bytes_per_task))
    ranges = [[start // size, end // size] for start, end in pairwise(borders)]
    tasks = numbered_tasks(({"start": start, "end": end}, (end - start) * size) for start, end in ranges)
    settings = {
        "paths": [os.fspath(path) for one in given for path in find_shards(one, source_format)],
        "source_format": source_format,
        "source_dtype": dtype,
        "eos_token_id": eos_token_id,
        "mix_tokenizers": mix_tokenizers,
        "target": os.fspath(outputs.target),
        "format": outputs.row.name,
        "dtype": str(target_dtype),
        "shard_tokens": outputs.shard_tokens,
        "stamps": stamps,
    }
    unneeded = frozenset(task.name for task in tasks if kept)
    return Plan("convert", task_folder(os.fspath(outputs.target), folder), settings, stamps, tasks, unneeded)


def _input_files(files: Sequence[TokenFile]) -> Iterator[str]:
    """Yield the files that decide the result."""
    for tokens in files:
        for path in output_files(tokens.format, as_path(tokens.path)):
            if exists(path):
                yield os.fspath(path)
        if tokens.format == "manifest":
            yield from dict.fromkeys(segment.path for segment in tokens.segments())


def convert_task(settings: Mapping[str, Any], arguments: Mapping[str, Any], path: str) -> dict[str, int]:
    """Write the tokens of a task to `path`, encoded as in the output; return their size in bytes."""
    check_unchanged(settings["stamps"])
    dtype, row = np.dtype(settings["dtype"]), format_named(settings["format"])
    corpus = _opened(json.dumps(settings)).corpus
    with AtomicFile(path, follow=False) as file:
        file.reserve((arguments["end"] - arguments["start"]) * dtype.itemsize)
        for stream, first, end in corpus.parts(arguments["start"], arguments["end"]):
            if not np.can_cast(stream.dtype, dtype):
                check_blocks(stream.blocks(first, end), first, stream.path, dtype, row)
            for run in TokenCorpus([stream]).runs(first, end, dtype):
                put_run(file, run if isinstance(run, tuple) else run.astype(dtype.newbyteorder("<"), copy=False))
        return {"bytes": file.tell()}


class _Opened(NamedTuple):
    corpus: TokenCorpus
    stack: ExitStack  # closes the files


@lru_cache(maxsize=1)
def _opened(settings: str) -> _Opened:
    """Return the open sources: thousands of tasks of a process would read their indexes again."""
    fields = json.loads(settings)
    stack = ExitStack()
    arguments = (fields[name] for name in ("paths", "source_format", "source_dtype", "eos_token_id"))
    files = stack.enter_context(open_sources(*arguments))
    return _Opened(TokenCorpus.of(files, scan=False), stack)


def collect_conversion(
    plan: Plan, *, if_exists: ExistencePolicy = "error", progress: Progress | None = None
) -> ConvertResult:
    """Write the outputs from the files of all tasks of a plan of `plan_conversion`.

    Raises JobError with the names of tasks that are not done, and for a source that has changed; TargetExists by the
    policy.
    """
    fields = plan.settings
    outputs = outputs_of(fields["target"], fields["format"], if_exists, fields["shard_tokens"])
    if plan.unneeded or outputs.is_kept():
        return kept_result(outputs)
    done = results(plan)
    check_unchanged(plan.stamps)
    dtype, eos = np.dtype(fields["dtype"]), fields["eos_token_id"]
    found = [task_output(done[task.name], done[task.name].result["bytes"]) for task in plan.tasks]
    encoded = TokenCorpus([_stream(one.path, one.n_bytes, dtype) for one in found])
    with open_sources(fields["paths"], fields["source_format"], fields["source_dtype"], eos) as files:
        tokenizer = common_fingerprint(files, fields["mix_tokenizers"])
        whole = joined(files, eos)
        result, lengths = describe(files, TokenCorpus.of(whole), outputs, dtype, eos)
        paths = outputs.write(encoded, lengths, dtype, tokenizer, corpus_mask(whole), progress)
        return replace(result, outputs=list(map(str, paths)))


def _stream(path: str, n_bytes: int, dtype: np.dtype[Any]) -> TokenStream:
    stored = np.dtype(dtype.newbyteorder("<").str)
    n_tokens = n_bytes // dtype.itemsize
    return TokenStream(None, n_tokens, stored, [TokenSegment(path, stored, n_tokens, 0)], path=path)
