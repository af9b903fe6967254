"""Which packed file is made of which sources, and what makes a packed file the same work when it is taken up again."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass

from fastpack.documents.compressed import SUFFIXES
from fastpack.io import absolute, real_path
from fastpack.io.source_fingerprints import fingerprint
from fastpack.packing.modalities_config import PackConfig, PackSettings, Source
from fastpack.packing.special_tokens import SpecialRule
from fastpack.tokens.flat.npy_writer import is_npy

IDENTITY_VERSION = 2  # raised when the same configuration comes to mean other bytes, or other notes in the journal


@dataclass(frozen=True)
class Target:
    """A packed file to write, and the sources whose documents it holds, in order."""

    dst_path: str
    sources: tuple[Source, ...]


def one_target(settings: PackSettings) -> list[Target]:
    assert settings.dst_path is not None  # load_pack_config checks it
    return [Target(settings.dst_path, settings.sources)]


def target_each(settings: PackSettings) -> list[Target]:
    """A packed file for each source: beside it, or in the folder `dst_path`, where folders of the sources come again.

    Raises ValueError where two sources would have the same packed file, and for a folder that is named as a shard.
    """
    folder = settings.dst_path
    if folder is not None and is_npy(folder):
        raise ValueError(
            f"{folder}: each source is packed into a .pbin of its own in this folder, which cannot be a .npy"
        )
    common = os.path.commonpath([os.path.dirname(absolute(s.path)) for s in settings.sources])
    taken: dict[str, str] = {}
    targets: list[Target] = []
    for source in settings.sources:
        dst_path = f"{_stem(source.path)}.pbin"
        if folder is not None:
            dst_path = os.path.join(folder, os.path.relpath(absolute(dst_path), common))
        other = taken.setdefault(real_path(dst_path), source.path)
        if other != source.path:
            raise ValueError(f"{other} and {source.path} would both be packed into {dst_path}: rename one")
        targets.append(Target(dst_path, (source,)))
    return targets


def _stem(path: str) -> str:
    """The path without its suffix, nor that of its compression."""
    for suffix in SUFFIXES:
        path = path.removesuffix(suffix)
    return os.path.splitext(path)[0]


def identity(config: PackConfig, target: Target, eod: int, token_size: int, special: SpecialRule) -> str:
    """A digest of all that decides a target's bytes: sources and tokenizer files by size and time of change."""
    parts = {
        "version": IDENTITY_VERSION,
        "sources": [
            [fingerprint(s.path), None if s.index_path is None else fingerprint(s.index_path)] for s in target.sources
        ],
        "jq_pattern": config.settings.jq_pattern,
        "tokenizer": [config.tokenizer.variant_key, sorted(config.tokenizer.config.items())],
        "tokenizer_files": [fingerprint(path) for path in tokenizer_files(config)],
        "eod": eod,
        "token_size": token_size,
        "special_tokens_in_text": special,
    }
    return hashlib.sha256(json.dumps(parts, default=str).encode()).hexdigest()


def tokenizer_files(config: PackConfig) -> Iterator[str]:
    """The files that the tokenizer is made of."""
    for value in config.tokenizer.config.values():
        if isinstance(value, str) and os.path.isfile(value):
            yield value
        elif isinstance(value, str) and os.path.isdir(value):
            paths = (os.path.join(value, name) for name in sorted(os.listdir(value)))
            yield from (path for path in paths if os.path.isfile(path))
