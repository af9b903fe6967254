"""The tokenizer that decodes a corpus: the one that is named, or the one recorded next to it, if it is found here."""

from __future__ import annotations

import os
from collections.abc import Iterator

from fastpack.escape import escape_token
from fastpack.inspection.curation.open_corpus import token_files_of
from fastpack.inspection.recorded_tokenizer import files_of
from fastpack.io import PathLike, as_path, exists, is_remote
from fastpack.packing.tokenizer_files import fingerprint_tokenizer
from fastpack.tokenizers.decode import TokenDecoder
from fastpack.tokenizers.tokenizer_spec import TokenizerSpec
from fastpack.tokens.formats import formats_of
from fastpack.tokens.tokenizer_fingerprint import TokenizerFingerprint, load_fingerprint

NO_TOKENIZER = "none"


def find_decoder(path: PathLike, tokenizer: str | None) -> TokenDecoder | None:
    """Return the decoder of the tokenizer `tokenizer`, as `pack` takes it, or of the one recorded for token files.

    A recorded tokenizer is used if it is that of bytes, or if its vocabulary, with the recorded hash, is next to the
    files; nothing is downloaded for it. Returns None if there is none, or for the name "none". Raises as
    `TokenizerSpec.from_name` and `build`.
    """
    if tokenizer is not None:
        return None if tokenizer == NO_TOKENIZER else TokenDecoder(TokenizerSpec.from_name(tokenizer).build())
    given = [as_path(one) for one in token_files_of(path)][:1]
    files = [file for one in given for file in files_of(one, formats_of(one)[0], None)]
    try:
        recorded = load_fingerprint(files[0]) if files else None
    except (ValueError, OSError):
        return None  # `info` and `verify` describe it
    return None if recorded is None else _found(files[0], recorded)


def _found(file: str, recorded: TokenizerFingerprint) -> TokenDecoder | None:
    for name in _candidates(file, recorded):
        try:
            spec = TokenizerSpec.from_name(name)
            built = spec.build()
            found = fingerprint_tokenizer(spec, built, recorded.eos_token_id)
        except Exception:  # a file of this name that is no tokenizer: libraries raise any error
            continue
        if found.sha256 == recorded.sha256:
            return TokenDecoder(built)
    return None


def _candidates(file: str, recorded: TokenizerFingerprint) -> Iterator[str]:
    if recorded.tokenizer == "bytes" and not recorded.sha256:
        yield "bytes"
    if is_remote(file):
        return
    folder = os.path.dirname(os.path.abspath(file))
    for parent in dict.fromkeys((folder, os.path.dirname(folder))):
        for name in ("tokenizer.json", os.path.basename(recorded.tokenizer)):
            if exists(path := os.path.join(parent, name)):
                yield path


def piece_text(decoder: TokenDecoder | None, token: int) -> str | None:
    """Return a token as text, with bytes that are no whole character as escapes; None if it is unknown."""
    piece = None if decoder is None else decoder.piece(token)
    return None if piece is None else escape_token(piece)
