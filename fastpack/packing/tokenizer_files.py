"""The files of a tokenizer, and the fingerprint of the tokenizer that is recorded with token files."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator

from fastpack.tokenizers.hf_tokenizer import HFTokenizer
from fastpack.tokenizers.interface import Tokenizer
from fastpack.tokenizers.tokenizer_spec import TokenizerSpec
from fastpack.tokens.tokenizer_fingerprint import TokenizerFingerprint

_VOCABULARY = "tokenizer.json"  # decides the ids; other files of a folder change which special tokens texts get
_HUB_FOLDER = re.compile(r"models--([^/]+)--([^/]+)/snapshots/")


def tokenizer_files(spec: TokenizerSpec) -> Iterator[str]:
    """Yield the files of a tokenizer."""
    for value in spec.config.values():
        if isinstance(value, str) and os.path.isfile(value):
            yield value
        elif isinstance(value, str) and os.path.isdir(value):
            paths = (os.path.join(value, name) for name in sorted(os.listdir(value)))
            yield from (path for path in paths if os.path.isfile(path))


def fingerprint_tokenizer(spec: TokenizerSpec, tokenizer: Tokenizer, eos_token_id: int) -> TokenizerFingerprint:
    """Return the fingerprint of a tokenizer; `tokenizer` is built from `spec`."""
    files = list(tokenizer_files(spec))
    vocabulary = [path for path in files if os.path.basename(path) == _VOCABULARY] or files
    digest = hashlib.sha256()
    for path in vocabulary:
        with open(path, "rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    n_ids = max(_n_ids(tokenizer), eos_token_id + 1)
    return TokenizerFingerprint(_name(spec, files), digest.hexdigest() if files else "", n_ids, eos_token_id)


def _n_ids(tokenizer: Tokenizer) -> int:
    """Return the largest id, added tokens included, plus 1."""
    if not isinstance(tokenizer, HFTokenizer):
        return tokenizer.vocab_size
    n_ids = int(tokenizer.backend.get_vocab_size(with_added_tokens=True))
    if tokenizer.token_of_id(n_ids - 1) is not None and tokenizer.token_of_id(n_ids) is None:
        return n_ids
    return 1 + max(tokenizer.backend.get_vocab(with_added_tokens=True).values(), default=-1)  # the ids have gaps


def _name(spec: TokenizerSpec, files: list[str]) -> str:
    """Return the name of a tokenizer: of its folder or file, or ORG/NAME of one from the Hub."""
    if not files:
        return spec.variant_key.removeprefix("builtin_")
    path = os.path.abspath(files[0])
    if hub := _HUB_FOLDER.search(path):
        return f"{hub[1]}/{hub[2]}"
    folder, name = os.path.split(path)
    return os.path.basename(folder) if name.endswith(".json") or len(files) > 1 else name
