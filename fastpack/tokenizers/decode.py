"""Decode tokens: the bytes of a single id, and the text of many ids.

The text of one token is bytes, because in byte-level vocabularies a token can be part of a character.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from fastpack.tokenizers.hf_tokenizer import HFTokenizer
from fastpack.tokenizers.interface import END_OF_TEXT, Tokenizer
from fastpack.tokenizers.sp_tokenizer import SPTokenizer
from fastpack.tokenizers.tiktoken_engine import byte_characters

_META = "\N{LOWER ONE EIGHTH BLOCK}"  # SentencePiece's space
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")
_BYTES_EOD = 256


class TokenDecoder:
    """Decodes the ids of a tokenizer. vocab_size: number of tokens, including added ones."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        if isinstance(tokenizer, HFTokenizer):
            functions = _hf(tokenizer)
        elif isinstance(tokenizer, SPTokenizer):
            functions = _sp(tokenizer)
        else:
            functions = tokenizer.vocab_size, _byte, _text_of_bytes
        self.vocab_size, self._piece, self._text = functions

    def piece(self, token: int) -> bytes | None:
        """Return the bytes of one token, which may be part of a character; None if there is no such token."""
        return self._piece(token)

    def text(self, ids: Sequence[int]) -> str:
        """Decode tokens with the tokenizer's own decoder, including special tokens."""
        return self._text(ids)

    def encode(self, text: str) -> Sequence[int]:
        """Return the ids of a text, as packing does. Raises FaultyText for one that cannot be encoded."""
        ids: list[int] = self.tokenizer.encode_many([text])[0].tolist()
        return ids

    def eos(self) -> int | None:
        """Return the tokenizer's own EOS token, if it has one; a packed file may use another."""
        if isinstance(self.tokenizer, HFTokenizer):
            token = self.tokenizer.tokens.get("eos_token")
            return None if token is None else self.tokenizer.backend.token_to_id(str(token))
        if isinstance(self.tokenizer, SPTokenizer):
            token = int(self.tokenizer.processor.eos_id())
            return None if token < 0 else token
        return _BYTES_EOD


_Functions = tuple[int, Callable[[int], bytes | None], Callable[[Sequence[int]], str]]


def _byte(token: int) -> bytes | None:
    if token == _BYTES_EOD:
        return END_OF_TEXT.encode()
    return bytes([token]) if 0 <= token < _BYTES_EOD else None


def _text_of_bytes(ids: Sequence[int]) -> str:
    return b"".join(_byte(token) or b"" for token in ids).decode(errors="replace")


def _sp(tokenizer: SPTokenizer) -> _Functions:
    processor = tokenizer.processor

    def piece(token: int) -> bytes | None:
        return _metaspace(processor.IdToPiece(token)) if 0 <= token < tokenizer.vocab_size else None

    def text(ids: Sequence[int]) -> str:
        decoded: str = processor.Decode(list(ids))
        return decoded

    return tokenizer.vocab_size, piece, text


def _hf(tokenizer: HFTokenizer) -> _Functions:
    backend = tokenizer.backend
    n_tokens = int(backend.get_vocab_size(with_added_tokens=True))
    added = {number: token.content.encode() for number, token in backend.get_added_tokens_decoder().items()}
    read = _piece_reader(json.loads(backend.decoder.__getstate__()) if backend.decoder is not None else None)

    def piece(token: int) -> bytes | None:
        if token in added:
            return added[token]
        content = backend.id_to_token(token) if 0 <= token < 1 << 32 else None
        return None if content is None else read(content)

    def text(ids: Sequence[int]) -> str:
        return backend.decode(list(ids), skip_special_tokens=False)

    return n_tokens, piece, text


def _piece_reader(decoder: dict[str, Any] | None) -> Callable[[str], bytes]:
    """Return the function from a token of the vocabulary to its bytes, by the decoder of a tokenizer.json."""
    steps = _steps(decoder)
    kinds = {step["type"] for step in steps}
    if "ByteLevel" in kinds:
        return _byte_level
    if "Metaspace" in kinds or "ByteFallback" in kinds:
        return _metaspace
    for step in steps:
        if step["type"] == "WordPiece":
            prefix = str(step.get("prefix", "##"))
            return lambda token: (token[len(prefix) :] if token.startswith(prefix) else f" {token}").encode()
        if step["type"] == "BPEDecoder":
            suffix = str(step.get("suffix", "</w>"))
            return lambda token: (f"{token.removesuffix(suffix)} " if token.endswith(suffix) else token).encode()
    return str.encode


def _steps(decoder: dict[str, Any] | None) -> list[dict[str, Any]]:
    if decoder is None:
        return []
    if decoder["type"] != "Sequence":
        return [decoder]
    return [inner for step in decoder["decoders"] for inner in _steps(step)]


_BYTES_OF = {character: byte for byte, character in enumerate(byte_characters())}


def _byte_level(token: str) -> bytes:
    try:
        return bytes(map(_BYTES_OF.__getitem__, token))
    except KeyError:  # not a byte-level token, but a word
        return token.encode()


def _metaspace(piece: str) -> bytes:
    match = _BYTE.fullmatch(piece)
    return bytes([int(match[1], 16)]) if match else piece.replace(_META, " ").encode()
