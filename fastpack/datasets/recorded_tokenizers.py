"""The tokenizers that are recorded with the files of datasets: files of different tokenizers are not combined."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from fastpack.errors import DataWarning
from fastpack.io import TOKENIZER, PathLike, is_remote
from fastpack.tokens.common_fingerprint import CommonFingerprint
from fastpack.tokens.tokenizer_fingerprint import TokenizerFingerprint, stated_fingerprint

Recorded: TypeAlias = tuple[str, TokenizerFingerprint]  # a file and its fingerprint


def tokenizer_of_file(path: PathLike, eos_token_id: int | None = None) -> Recorded | None:
    """Return the fingerprint of one token file, if it has one; one small file is read.

    Warns if the given EOS token is not that of the tokenizer.
    """
    fingerprint = stated_fingerprint(path)
    if fingerprint is None:
        return None
    _warn_of_other_eos(os.fspath(path), fingerprint, eos_token_id)
    return os.fspath(path), fingerprint


def tokenizer_of_files(paths: Sequence[PathLike], eos_token_id: int | None = None) -> Recorded | None:
    """Return the first fingerprint of the files of one dataset; DataWarning if two differ. Warns as for one file."""
    if len(paths) == 1:
        return tokenizer_of_file(paths[0], eos_token_id)
    return tokenizer_of_shards((os.fspath(path) for path in paths), True, eos_token_id)


def tokenizer_of_shards(paths: Iterable[str], mix: bool, eos_token_id: int | None) -> Recorded | None:
    """Return the first fingerprint of local shards; ValueError if two differ, unless `mix`. Warns as for one file.

    Each folder is listed once, so that only existing side files are opened. Shards in a store are not compared: each
    would cost a request.
    """
    found, folders = CommonFingerprint(mix), dict[str, set[str]]()
    for path in paths:
        if is_remote(path):
            return None
        folder, name = os.path.split(path)
        if folder not in folders:
            folders[folder] = {entry for entry in os.listdir(folder or ".") if entry.endswith(TOKENIZER)}
        if name + TOKENIZER in folders[folder]:
            found.add(path, stated_fingerprint(path))
    if found.first is not None:
        _warn_of_other_eos(*found.first, eos_token_id)
    return found.first


def _warn_of_other_eos(path: str, fingerprint: TokenizerFingerprint, eos_token_id: int | None) -> None:
    if eos_token_id not in (None, fingerprint.eos_token_id):
        text = f"{path}: eos_token_id is {eos_token_id}, but the tokenizer {fingerprint.tokenizer} ended documents in"
        warnings.warn(f"{text} {fingerprint.eos_token_id}", DataWarning, stacklevel=5)
