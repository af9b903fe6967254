"""What a pack run would do, without doing it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fastpack import io as files
from fastpack import kernels
from fastpack.display import Result, facts
from fastpack.documents.compressed import is_compressed
from fastpack.documents.json_fields import FaultyDocument, compile_pattern
from fastpack.io import ExistencePolicy, size_of
from fastpack.packing.document_sample import sample_lines
from fastpack.packing.modalities_config import PackConfig, Source, check_indexes, load_pack_config
from fastpack.packing.pack import Config, Engine, is_to_write, prepare
from fastpack.packing.source_batches import read_index
from fastpack.packing.targets import Target, one_target, target_each
from fastpack.tokenizers.interface import Tokenizer

WINDOW = 64 << 20


@dataclass(frozen=True, repr=False)
class PlannedPack(Result):
    """A packed file that would be written.

    kept_existing: it is there and would stay. lines: of the sources; None where that takes unpacking them.
    estimated_tokens: from a sample of the documents; None for compressed sources.
    """

    _shown = facts("path", "sources", "lines", "estimated_tokens", "kept_existing", "source_bytes")

    path: str
    sources: list[str]
    source_bytes: int
    lines: int | None
    token_size_in_bytes: int
    engine: str
    estimated_tokens: int | None
    kept_existing: bool


def plan_packing(
    config: Config,
    *,
    each: bool = False,
    file_existence_policy: ExistencePolicy = "error",
    engine: Engine = "auto",
    resume: bool = False,
) -> list[PlannedPack]:
    """What `pack_encoded_data` (each: `pack_each`) would write; raises what they raise before they write."""
    checked = check_indexes(load_pack_config(config, one_output=not each))
    targets = (target_each if each else one_target)(checked.settings)
    kept = [not is_to_write(target, file_existence_policy, resume) for target in targets]
    spec, tokenizer, _ = prepare(checked, engine)
    rate = _tokens_per_byte(checked, tokenizer)
    return [
        _plan(target, keeps, spec.token_size, spec.tokenizer.engine, rate)
        for target, keeps in zip(targets, kept, strict=True)
    ]


def _plan(target: Target, kept: bool, token_size: int, engine: str, rate: float | None) -> PlannedPack:
    n_bytes = sum(size_of(source.path) for source in target.sources)
    lines = [_count_lines(source) for source in target.sources]
    known = [n for n in lines if n is not None]
    all_known = len(known) == len(lines)
    return PlannedPack(
        target.dst_path,
        [source.path for source in target.sources],
        n_bytes,
        sum(known) if all_known else None,
        token_size,
        engine,
        round(n_bytes * rate) if rate is not None and all_known else None,
        kept,
    )


def _count_lines(source: Source) -> int | None:
    if is_compressed(source.path):
        return None
    if source.index_path is not None:
        return len(read_index(source.path, source.index_path))
    data = files.open_bytes(source.path)
    n_lines = 0
    for start in range(0, len(data), WINDOW):
        n_lines += kernels.count_newlines(data[start : start + WINDOW])
        files.drop_pages(data, start, min(start + WINDOW, len(data)))
    return n_lines + bool(len(data) and data[len(data) - 1 :][0] != ord("\n"))


def _tokens_per_byte(config: PackConfig, tokenizer: Tokenizer) -> float | None:
    """Tokens for each byte of a line and its newline, in a sample; None where nothing can be sampled."""
    text_of = compile_pattern(config.settings.jq_pattern)
    n_tokens = n_bytes = 0
    for line in sample_lines(config.settings):
        n_bytes += len(line) + 1
        try:
            n_tokens += int(np.sum(tokenizer.encode_many([text_of(line)])[1])) + 1
        except (FaultyDocument, ValueError):
            continue
        if n_bytes > 1 << 20:
            break
    return n_tokens / n_bytes if n_bytes else None
