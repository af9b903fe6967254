"""Map sources to output files, and fingerprint each output so that `resume` detects changed inputs."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass

from fastpack.io import absolute, real_path
from fastpack.io.source_fingerprints import fingerprint
from fastpack.packing.output_formats import check_index_is_kept, default_output
from fastpack.packing.settings import PackSettings, Source
from fastpack.packing.tokenizer_files import tokenizer_files
from fastpack.tokens.flat.npy_writer import is_npy

IDENTITY_VERSION = 2  # increment when the same settings mean other bytes, or other notes in the journal


@dataclass(frozen=True)
class Target:
    """An output file and the sources whose documents it contains, in order."""

    output: str
    sources: tuple[Source, ...]


def targets_of(settings: PackSettings) -> list[Target]:
    """Return the output files of a job.

    With `per_source`, the folders between the sources' common folder and each source are repeated in the output folder.
    Raises ValueError where two sources have the same output, for an output folder with the suffix .npy, and where an
    output would replace the index of a source.
    """
    if settings.per_source:
        targets = list(_target_per_source(settings))
    else:
        assert settings.output is not None  # required where the settings are constructed
        targets = [Target(settings.output, settings.sources)]
    if settings.format == "megatron":
        for target in targets:
            for source in target.sources:
                check_index_is_kept(target.output, source.path, source.index_path)
    return targets


def _target_per_source(settings: PackSettings) -> Iterator[Target]:
    folder = settings.output
    if folder is not None and is_npy(folder):
        raise ValueError(
            f"{folder}: each source is packed into a separate .pbin in this folder, whose name must not end in .npy"
        )
    common = os.path.commonpath([os.path.dirname(absolute(source.path)) for source in settings.sources])
    taken: dict[str, str] = {}
    for source in settings.sources:
        output = default_output(source.path, settings.format)
        if folder is not None:
            output = os.path.join(folder, os.path.relpath(absolute(output), common))
        other = taken.setdefault(real_path(output), source.path)
        if other != source.path:
            raise ValueError(f"{other} and {source.path} would both be packed into {output}: rename one")
        yield Target(output, (source,))


def identity(settings: PackSettings, target: Target, eos_token_id: int, token_size: int) -> str:
    """Return a digest of all that decides an output's bytes: sources and tokenizer files by size and mtime."""
    fields = {
        "version": IDENTITY_VERSION,
        "sources": [
            [
                fingerprint(source.path),
                None if source.index_path is None else fingerprint(source.index_path),
                *([] if source.format == "jsonl" else [source.format, source.separator]),
            ]
            for source in target.sources
        ],
        "jq_pattern": settings.text_pattern,
        "tokenizer": [settings.tokenizer.variant_key, sorted(settings.tokenizer.config.items())],
        "tokenizer_files": [fingerprint(path) for path in tokenizer_files(settings.tokenizer)],
        "eod": eos_token_id,
        "token_size": token_size,
        "special_tokens_in_text": settings.special_tokens_in_text,
        **({} if settings.chat is None else {"chat": vars(settings.chat)}),
    }
    return hashlib.sha256(json.dumps(fields, default=str).encode()).hexdigest()
