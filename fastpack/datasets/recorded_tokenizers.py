"""The tokenizers that are recorded with the files of datasets: files of different tokenizers are not combined."""

from __future__ import annotations

import os
from collections.abc import Sequence

from fastpack.io import PathLike
from fastpack.tokens.common_fingerprint import Recorded, first_of_files, warn_of_other_eos
from fastpack.tokens.manifest.manifest_shards import ManifestShards
from fastpack.tokens.tokenizer_fingerprint import stated_fingerprint


def tokenizer_of_file(path: PathLike, eos_token_id: int | None = None) -> Recorded | None:
    """Return the fingerprint of one token file, if it has one; one small file is read.

    Warns the caller of the caller if the given EOS token is not that of the tokenizer.
    """
    fingerprint = stated_fingerprint(path)
    recorded = None if fingerprint is None else (os.fspath(path), fingerprint)
    warn_of_other_eos(recorded, eos_token_id, stacklevel=3)
    return recorded


def tokenizer_of_shards(paths: Sequence[str], mix: bool, eos_token_id: int | None) -> Recorded | None:
    """Return the first fingerprint of local shards, as `first_of_files`. Warns as for one file."""
    recorded = first_of_files(paths, mix)
    warn_of_other_eos(recorded, eos_token_id, stacklevel=3)
    return recorded


def tokenizer_of_manifest(files: ManifestShards, mix: bool) -> Recorded | None:
    """Raise ValueError if shards of a manifest have different tokenizers, unless `mix`; only then they are opened."""
    return first_of_files(files.paths(), mix) if files.manifest.mixes_tokenizers else None
