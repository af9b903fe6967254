"""Run a Hugging Face tokenizer on tiktoken: byte-level BPE whose ranks are its ids, four times as fast as `tokenizers`.

tiktoken has no list of merges: it merges the adjacent pair whose result has the lowest id. The merges do the same if
the ids increase along the list, and if tokens that their own merges do not produce are excluded (see `_ranks`).
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import orjson

from fastpack.errors import MissingExtra
from fastpack.tokenizers.hf_tokenizer import HFTokenizer
from fastpack.tokenizers.interface import EngineDeclines, Lengths, Tokens
from fastpack.tokenizers.postprocess import FasterTokenizer, decline_options

# The pattern of tokenizers' ByteLevel without an explicit one, which is that of GPT-2.
_GPT2_PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
# A million consecutive spaces overflow the stack of its regular expressions, with a printed panic; 100,000 do not.
MAX_BLANKS = 50_000
_BLANKS = re.compile(r"\s+")


class TiktokenTokenizer(FasterTokenizer):
    """Gives the ids of `own` with tiktoken; `own` encodes the texts that tiktoken would encode differently."""

    worker_bytes = 32 << 20  # a process starts in 1.3 s, most of it for the ranks

    def __init__(self, own: HFTokenizer) -> None:
        try:
            import tiktoken
        except ImportError:
            raise MissingExtra("tiktoken", "tiktoken", "the engine tiktoken") from None
        description = orjson.loads(own.description)
        decline_options(own.backend)
        self._normalizes = _normalizes(description)
        specials, pattern, ranks = _specials(description), _pattern(description), _ranks(description)
        try:
            self._engine: Any = tiktoken.Encoding(
                "fastpack", pat_str=pattern, mergeable_ranks=ranks, special_tokens=specials
            )
        except ValueError as error:
            raise EngineDeclines(f"its pattern is refused: {error}") from None
        self._specials = set(specials)
        super().__init__(own, self._normalizes)

    def _unsupported(self, texts: Sequence[str]) -> list[int]:
        return sorted({*super()._unsupported(texts), *(i for i, text in enumerate(texts) if self._is_hard(text))})

    def _encode(self, texts: list[str], eod: int | None) -> tuple[Tokens, Lengths]:
        encode, specials = self._engine.encode_to_numpy, self._specials
        return self._frame.join([encode(text, allowed_special=specials, disallowed_special=()) for text in texts], eod)

    def _is_hard(self, text: str) -> bool:
        if self._normalizes and not text.isascii() and not unicodedata.is_normalized("NFC", text):
            return True
        if len(text) <= MAX_BLANKS:
            return False
        return max(map(len, _BLANKS.findall(text)), default=0) > MAX_BLANKS


def _normalizes(description: Mapping[str, Any]) -> bool:
    """Return whether texts are normalized to NFC; EngineDeclines for any other form."""
    normalizer = description["normalizer"]
    if normalizer is not None and normalizer["type"] != "NFC":
        raise EngineDeclines(f"its normalizer is {normalizer['type']}")
    return normalizer is not None


def _pattern(description: Mapping[str, Any]) -> str:
    match description["pre_tokenizer"]:
        case {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}:
            return _GPT2_PATTERN
        case {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": str(pattern)}, "behavior": "Isolated", "invert": False},
                {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False},
            ],
        }:
            return pattern
    raise EngineDeclines("its pre-tokenizer is not one pattern, then bytes")


def _specials(description: Mapping[str, Any]) -> dict[str, int]:
    """Return the added tokens with their ids; EngineDeclines for kinds that tiktoken does not have."""
    tokens = description["added_tokens"]
    if any(token["lstrip"] or token["rstrip"] or token["single_word"] for token in tokens):
        raise EngineDeclines("its added tokens include adjacent spaces, or match only whole words")
    if len({token["normalized"] for token in tokens}) > 1:
        raise EngineDeclines("its added tokens are found in two passes")
    contents = sorted(token["content"] for token in tokens)
    if any(longer.startswith(shorter) for shorter, longer in pairwise(contents)):
        raise EngineDeclines("one of its added tokens begins with another")
    return {token["content"]: token["id"] for token in tokens}


def _ranks(description: Mapping[str, Any]) -> dict[bytes, int]:
    """Return the bytes of each token -> its id; EngineDeclines if merging by lowest id is not merging by the list.

    While no merge has crossed the borders of a part of the text, its tokens are those that the merges produce from that
    part alone, up to the same rank. Therefore, of all pairs that merge to a token, only the last of the token's own
    merges ever becomes adjacent, and only tokens that their own merges produce occur.
    """
    model = description["model"]
    if model["type"] != "BPE" or model.get("continuing_subword_prefix") or model.get("end_of_word_suffix"):
        raise EngineDeclines("it is not a byte-level BPE")
    vocab: dict[str, int] = model["vocab"]
    bytes_of = {character: bytes([byte]) for byte, character in enumerate(byte_characters())}
    if not all(character in vocab for character in bytes_of):
        raise EngineDeclines("it is not a byte-level BPE: some byte is not a token")
    added = {token["content"] for token in description["added_tokens"]}
    merged = {token: ids for token, ids in _merged(description).items() if token not in added}
    kept = {token for token, ids in merged.items() if ids == [vocab[token]]}
    if model["ignore_merges"]:  # a whole word that is a token is encoded as that token, whatever its merges are
        if any(len(ids) == 2 for token, ids in merged.items() if token not in kept):
            raise EngineDeclines("some of its tokens are words only as a whole")
        kept = set(merged)
    joints = [vocab[joint] for joint in ("".join(pair) for pair in model["merges"]) if joint in kept]
    if any(after < before for before, after in pairwise(joints)):
        raise EngineDeclines("its ids are not in the order of its merges")
    if any(character not in bytes_of for token in kept for character in token):
        raise EngineDeclines("it is not a byte-level BPE: some token is not bytes")
    return {b"".join(bytes_of[character] for character in token): vocab[token] for token in kept}


def _merged(description: Mapping[str, Any]) -> dict[str, list[int]]:
    """Return the ids that the merges alone produce from each token."""
    from tokenizers import Tokenizer

    model = {**description["model"], "ignore_merges": False}
    bare = dict.fromkeys(("added_tokens", "normalizer", "pre_tokenizer", "post_processor", "decoder"))
    merging = Tokenizer.from_str(json.dumps({**description, **bare, "added_tokens": [], "model": model}))
    vocab = list(model["vocab"])
    return {token: encoding.ids for token, encoding in zip(vocab, merging.encode_batch_fast(vocab), strict=True)}


def byte_characters() -> list[str]:
    """Return the characters that represent the bytes 0 to 255 in a byte-level vocabulary."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    odd = iter(range(0x100, 0x200))
    return [chr(byte if byte in printable else next(odd)) for byte in range(256)]
