"""What a pack job would write, estimated without doing it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fastpack.argument_aliases import accept_aliases
from fastpack.display import Result, facts
from fastpack.documents.json_fields import FaultyDocument, compile_pattern
from fastpack.documents.json_lines import count_lines
from fastpack.io import ExistencePolicy, open_bytes, size_of
from fastpack.packing.document_sample import sample_lines, sample_of_table
from fastpack.packing.encoder import EncoderSpec
from fastpack.packing.modalities_config import Config, load_pack_settings
from fastpack.packing.pack_job import is_to_write, prepare_encoder
from fastpack.packing.settings import Engine, PackSettings, Source
from fastpack.packing.source_batches import open_source_table, read_index
from fastpack.packing.source_indexes import indexes_before_creation
from fastpack.packing.targets import Target, targets_of
from fastpack.tokenizers.interface import Tokenizer

SAMPLED_BYTES = 1 << 20  # of text, to estimate the number of tokens


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
        Number of lines, or rows, in the sources. None if a source is compressed, CSV or plain text.
    token_size_in_bytes
        Size of a token in the file.
    engine
        The library that would tokenise.
    estimated_tokens
        Estimate from a sample of the documents. None if `lines` is None.
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
    rates = _Rates(_tokens_per_byte(settings, choice.tokenizer), choice.tokenizer)
    return [_estimate(target, keeps, spec, rates) for target, keeps in zip(targets, kept, strict=True)]


class _Rates(NamedTuple):
    """per_byte: tokens per byte of JSON Lines in a sample, None where nothing can be sampled."""

    per_byte: float | None
    tokenizer: Tokenizer

    def estimate(self, source: Source, n_rows: int | None) -> float | None:
        """Return the estimated number of tokens of a source with `n_rows` rows; None where it is unknown."""
        if n_rows is None:
            return None
        if source.format == "jsonl":
            return None if self.per_byte is None else size_of(source.path) * self.per_byte
        texts = sample_of_table(source, SAMPLED_BYTES)
        lengths = self.tokenizer.encode_many(texts)[1] + 1
        return n_rows * float(lengths.mean()) if texts else 0.0


def _estimate(target: Target, kept: bool, spec: EncoderSpec, rates: _Rates) -> PlannedPack:
    lines = [_count_lines(source) for source in target.sources]
    tokens = [rates.estimate(source, n) for source, n in zip(target.sources, lines, strict=True)]
    known_lines, known_tokens = ([n for n in numbers if n is not None] for numbers in (lines, tokens))
    return PlannedPack(
        path=target.output,
        sources=[source.path for source in target.sources],
        source_bytes=sum(size_of(source.path) for source in target.sources),
        lines=sum(map(int, known_lines)) if len(known_lines) == len(lines) else None,
        token_size_in_bytes=spec.token_size,
        engine=spec.tokenizer.engine,
        estimated_tokens=round(sum(known_tokens)) if len(known_tokens) == len(tokens) else None,
        kept_existing=kept,
    )


def _count_lines(source: Source) -> int | None:
    if not source.is_splittable:
        return None
    if source.format != "jsonl":
        group_rows = open_source_table(source).group_rows()
        return None if group_rows is None else int(group_rows.sum())
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
        if n_bytes > SAMPLED_BYTES:
            break
    return n_tokens / n_bytes if n_bytes else None
