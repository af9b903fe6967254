"""The digest of tokens and documents, which is the same in every format."""

from __future__ import annotations

import numpy as np

from fastpack.io.checksum_blocks import load_hash
from fastpack.tokens.token_corpus import TokenCorpus
from fastpack.tokens.token_file import TokenFile

_HASHED = 1 << 18  # tokens widened at once: 2 MiB


def token_digest(tokens: TokenFile) -> str:
    """Return the xxh3_128 of all tokens, then of all document ends, as little-endian int64, in hexadecimal.

    Without document boundaries only the tokens are hashed. Raises MissingExtra if xxhash is not installed.
    """
    return corpus_digest(TokenCorpus.of([tokens]))


def corpus_digest(corpus: TokenCorpus) -> str:
    """Return the digest of several files as one, as `token_digest`."""
    digest = load_hash()()
    for block in corpus.blocks():
        for first in range(0, len(block), _HASHED):
            digest.update(block[first : first + _HASHED].astype("<i8").data)
    if corpus.lengths is not None:
        ends = np.cumsum(corpus.lengths)
        for first in range(0, len(ends), _HASHED):
            digest.update(ends[first : first + _HASHED].astype("<i8").data)
    return str(digest.hexdigest())
