"""What a pack job would write, estimated without doing it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fastpack.argument_aliases import accept_aliases
from fastpack.display import Result, facts
from fastpack.documents.compressed import is_compressed
from fastpack.documents.json_fields import FaultyDocument, compile_pattern
from fastpack.documents.json_lines import count_lines
from fastpack.io import ExistencePolicy, open_bytes, size_of
from fastpack.packing.document_sample import sample_lines
from fastpack.packing.encoder import EncoderSpec
from fastpack.packing.modalities_config import Config, load_pack_settings
from fastpack.packing.pack_job import is_to_write, prepare_encoder
from fastpack.packing.settings import Engine, PackSettings, Source
from fastpack.packing.source_batches import read_index
from fastpack.packing.source_indexes import indexes_before_creation
from fastpack.packing.targets import Target, targets_of
from fastpack.tokenizers.interface import Tokenizer


@dataclass(frozen=True, repr=False)
class PlannedPack(Result):
    r"""A token file that a pack job would write.

    Attributes
    ----------
    path
        The file.
    sources
        Its sources, in order.
    source_bytes
        Their size in bytes.
    lines
        Number of lines in the sources. None if a source is compressed.
    token_size_in_bytes
        Size of a token in the file.
    engine
        The library that would tokenise.
    estimated_tokens
        Estimate from a sample of the documents. None if a source is compressed.
    kept_existing
        Whether the file exists and would be kept.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import fastpack
    >>> folder = tempfile.TemporaryDirectory()
    >>> _ = Path(folder.name, "a.jsonl").write_text('{"text": "hello"}\n' * 100)
    >>> index = fastpack.create_raw_index(f"{folder.name}/a.jsonl")
    >>> config = {
    ...     "settings": {
    ...         "src_path": f"{folder.name}/a.jsonl",
    ...         "dst_path": f"{folder.name}/a.pbin",
    ...         "jq_pattern": ".text",
    ...         "eod_token": "<|endoftext|>",
    ...     },
    ...     "tokenizer": {"component_key": "tokenizer", "variant_key": "builtin_bytes", "config": {}},
    ... }
    >>> (planned,) = fastpack.plan_packing(config)
    >>> planned.source_bytes, planned.token_size_in_bytes, planned.kept_existing
    (1800, 2, False)
    >>> folder.cleanup()
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


@accept_aliases(each="per_source", file_existence_policy="if_exists")
def plan_packing(
    config: Config,
    *,
    per_source: bool = False,
    if_exists: ExistencePolicy = "error",
    engine: Engine = "auto",
    resume: bool = False,
) -> list[PlannedPack]:
    r"""Estimate what `pack_encoded_data` would write, without writing anything.

    Parameters
    ----------
    config
        Path of a Modalities YAML file, or a mapping with the same structure.
    per_source
        Estimate `pack_each` instead: one file per source.
    if_exists, engine, resume
        As for `pack`.

    Returns
    -------
    list of PlannedPack
        One entry per output file, in order.

    Raises
    ------
    ValueError, FileExistsError, FileNotFoundError, StaleIndex
        As for `pack_encoded_data`, as far as it raises them before it writes.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import fastpack
    >>> folder = tempfile.TemporaryDirectory()
    >>> _ = Path(folder.name, "a.jsonl").write_text('{"text": "hello"}\n' * 100)
    >>> config = {
    ...     "settings": {
    ...         "src_path": [f"{folder.name}/a.jsonl"],
    ...         "dst_path": f"{folder.name}/a.pbin",
    ...         "jq_pattern": ".text",
    ...         "eod_token": "<|endoftext|>",
    ...     },
    ...     "tokenizer": {"component_key": "tokenizer", "variant_key": "builtin_bytes", "config": {}},
    ... }
    >>> (planned,) = fastpack.plan_packing(config)
    >>> planned.lines, planned.estimated_tokens
    (100, 600)
    >>> folder.cleanup()
    """
    return estimate_pack(
        load_pack_settings(config, per_source=per_source, if_exists=if_exists, engine=engine, resume=resume)
    )


def estimate_pack(settings: PackSettings) -> list[PlannedPack]:
    """Estimate the output files of a pack job; raise what the job would raise before it writes."""
    settings = indexes_before_creation(settings)
    targets = targets_of(settings)
    kept = [not is_to_write(target, settings) for target in targets]
    spec, choice = prepare_encoder(settings)
    rate = _tokens_per_byte(settings, choice.tokenizer)
    return [_estimate(target, keeps, spec, rate) for target, keeps in zip(targets, kept, strict=True)]


def _estimate(target: Target, kept: bool, spec: EncoderSpec, rate: float | None) -> PlannedPack:
    n_bytes = sum(size_of(source.path) for source in target.sources)
    lines = [_count_lines(source) for source in target.sources]
    known = [n for n in lines if n is not None]
    all_known = len(known) == len(lines)
    return PlannedPack(
        path=target.output,
        sources=[source.path for source in target.sources],
        source_bytes=n_bytes,
        lines=sum(known) if all_known else None,
        token_size_in_bytes=spec.token_size,
        engine=spec.tokenizer.engine,
        estimated_tokens=round(n_bytes * rate) if rate is not None and all_known else None,
        kept_existing=kept,
    )


def _count_lines(source: Source) -> int | None:
    if is_compressed(source.path):
        return None
    if source.index_path is not None:
        return len(read_index(source.path, source.index_path))
    return count_lines(open_bytes(source.path))


def _tokens_per_byte(settings: PackSettings, tokenizer: Tokenizer) -> float | None:
    """Return the tokens per byte of a line and its newline, in a sample; None where nothing can be sampled."""
    text_of = compile_pattern(settings.text_pattern)
    n_tokens = n_bytes = 0
    for line in sample_lines(settings):
        n_bytes += len(line) + 1
        try:
            n_tokens += int(np.sum(tokenizer.encode_many([text_of(line)])[1])) + 1
        except (FaultyDocument, ValueError):
            continue
        if n_bytes > 1 << 20:
            break
    return n_tokens / n_bytes if n_bytes else None
