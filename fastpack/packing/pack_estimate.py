"""What a pack job would write, estimated without doing it."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from fastpack.argument_aliases import accept_aliases
from fastpack.display import Result, facts
from fastpack.documents.json_lines import count_lines
from fastpack.io import ExistencePolicy, open_bytes, size_of
from fastpack.packing.chat_encoder import build_encoder
from fastpack.packing.document_sample import sample_lines, sample_of_table
from fastpack.packing.encoder import Batch, Encoder, EncoderSpec
from fastpack.packing.modalities_config import Config, load_pack_settings
from fastpack.packing.pack_job import is_to_write, prepare_encoder
from fastpack.packing.settings import Engine, PackSettings, Source
from fastpack.packing.source_batches import open_source_table, read_index
from fastpack.packing.source_indexes import indexes_before_creation
from fastpack.packing.targets import Target, targets_of

SAMPLED_BYTES = 1 << 20  # of documents, to estimate the number of tokens


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
    estimated_documents, estimated_loss_tokens
        Estimates of the number of documents that can be packed, and of the tokens that count in the loss; these are
        None for texts.
    estimated_seconds
        Estimate of the time that encoding takes, with the given number of processes.

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
    estimated_documents: int | None = None
    estimated_loss_tokens: int | None = None
    estimated_seconds: float | None = None


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
    encoder = build_encoder(replace(spec, audit=0), choice.tokenizer)
    lines = [line for line in sample_lines(settings) if line]
    sample = _measure(encoder, lines[:: 1 + sum(map(len, lines)) // SAMPLED_BYTES])
    n_processes = min(settings.num_workers, os.cpu_count() or 1)
    return [
        _estimate(target, keeps, spec, (encoder, sample, n_processes))
        for target, keeps in zip(targets, kept, strict=True)
    ]


class _Amounts(NamedTuple):
    """Amounts of documents. rows, n_bytes: before, documents, tokens, loss_tokens: after they are encoded."""

    rows: float = 0
    n_bytes: float = 0
    documents: float = 0
    tokens: float = 0
    loss_tokens: float = 0
    seconds: float = 0


def _measure(encoder: Encoder, documents: Sequence[bytes], *, is_text: bool = False) -> _Amounts:
    """Return the amounts of documents: lines of JSON, or texts."""
    if not documents:
        return _Amounts()
    lengths = np.array([len(document) for document in documents])
    rows = np.stack([np.cumsum(lengths + 1) - lengths - 1, lengths], axis=1)
    batch = Batch("", rows, b"\n".join(documents), is_text)
    encoder.encode(batch._replace(rows=rows[: 1 + len(rows) // 8]))  # libraries start slowly
    started = time.process_time()
    found = encoder.encode(batch)
    seconds = time.process_time() - started
    loss_tokens = 0 if found.mask is None else int(np.count_nonzero(found.mask))
    return _Amounts(len(rows), int(rows[-1].sum()) + 1, len(found.lengths), len(found.tokens), loss_tokens, seconds)


def _of_source(source: Source, lines: int | None, encoder: Encoder, sample: _Amounts) -> _Amounts | None:
    """Return the amounts of a source; None where they are unknown. sample: of all JSON Lines."""
    if lines is None or (source.format == "jsonl" and not sample.rows):
        return None
    if source.format == "jsonl":
        factor = size_of(source.path) / sample.n_bytes
    else:
        texts = [text.encode() for text in sample_of_table(source, SAMPLED_BYTES)]
        sample = _measure(encoder, texts, is_text=not source.as_rows)
        factor = lines / max(1, sample.rows)
    found = _Amounts(*(factor * amount for amount in sample))
    return found._replace(documents=lines * sample.documents / max(1, sample.rows))


def _estimate(target: Target, kept: bool, spec: EncoderSpec, measured: tuple[Encoder, _Amounts, int]) -> PlannedPack:
    encoder, sample, n_processes = measured
    lines = [_count_lines(source) for source in target.sources]
    found = [_of_source(source, n, encoder, sample) for source, n in zip(target.sources, lines, strict=True)]
    known_lines, known = [n for n in lines if n is not None], [one for one in found if one is not None]
    total = _Amounts(*map(sum, zip(*known, strict=True))) if len(known) == len(found) else None
    return PlannedPack(
        path=target.output,
        sources=[source.path for source in target.sources],
        source_bytes=sum(size_of(source.path) for source in target.sources),
        lines=sum(known_lines) if len(known_lines) == len(lines) else None,
        token_size_in_bytes=spec.token_size,
        engine=spec.tokenizer.engine,
        estimated_tokens=None if total is None else round(total.tokens),
        kept_existing=kept,
        estimated_documents=None if total is None else round(total.documents),
        estimated_loss_tokens=None if total is None or spec.chat is None else round(total.loss_tokens),
        estimated_seconds=None if total is None else round(total.seconds / n_processes, 3),
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
