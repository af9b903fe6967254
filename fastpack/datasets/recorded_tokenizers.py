"""The tokenizers that are recorded with the files of datasets: files of different tokenizers are not combined."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from typing import TypeAlias

from fastpack.errors import DataWarning
from fastpack.io import PathLike
from fastpack.tokens.common_fingerprint import first_of_files
from fastpack.tokens.manifest.manifest_shards import ManifestShards
from fastpack.tokens.tokenizer_fingerprint import TokenizerFingerprint, stated_fingerprint

Recorded: TypeAlias = tuple[str, TokenizerFingerprint]  # a file and its fingerprint


def tokenizer_of_file(path: PathLike, eos_token_id: int | None = None) -> Recorded | None:
    """Return the fingerprint of one token file, if it has one; one small file is read.

    Warns the caller of the caller if the given EOS token is not that of the tokenizer.
    """
    fingerprint = stated_fingerprint(path)
    recorded = None if fingerprint is None else (os.fspath(path), fingerprint)
    _warn_of_other_eos(recorded, eos_token_id)
    return recorded


def tokenizer_of_shards(paths: Sequence[str], mix: bool, eos_token_id: int | None) -> Recorded | None:
    """Return the first fingerprint of local shards, as `first_of_files`. Warns as for one file."""
    recorded = first_of_files(paths, mix)
    _warn_of_other_eos(recorded, eos_token_id)
    return recorded


def tokenizer_of_manifest(files: ManifestShards, mix: bool) -> Recorded | None:
    """Raise ValueError if shards of a manifest have different tokenizers, unless `mix`; only then they are opened."""
    return first_of_files(files.paths(), mix) if files.manifest.mixes_tokenizers else None


def _warn_of_other_eos(recorded: Recorded | None, eos_token_id: int | None) -> None:
    if recorded is None or eos_token_id in (None, recorded[1].eos_token_id):
        return
    path, fingerprint = recorded
    text = f"{path}: eos_token_id is {eos_token_id}, but the tokenizer {fingerprint.tokenizer} ended documents in"
    warnings.warn(f"{text} {fingerprint.eos_token_id}", DataWarning, stacklevel=4)
