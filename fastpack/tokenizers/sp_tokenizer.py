"""SentencePiece models (`pretrained_sp_tokenizer`), with the optional package sentencepiece."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fastpack.errors import MissingExtra, spoken
from fastpack.tokenizers.interface import (
    FaultyText,
    Lengths,
    SpecialTokens,
    Tokens,
    check_options,
    flatten,
    named_tokens,
)


class SPTokenizer:
    """Gives the ids of SentencePiece's `Encode`; `vocab_size` is the number of pieces."""

    worker_bytes = 1 << 20

    def __init__(self, model_file: str | os.PathLike[str]) -> None:
        model_file = os.fspath(model_file)
        try:
            from sentencepiece import SentencePieceProcessor
        except ImportError:
            raise MissingExtra("sentencepiece", "sentencepiece", "a SentencePiece model") from None
        if not os.path.isfile(model_file):
            raise FileNotFoundError(f"{spoken('tokenizer.config.tokenizer_model_file')}: {model_file} is not there")
        self.processor = SentencePieceProcessor()
        try:
            self.processor.Load(model_file)
        except RuntimeError as error:
            raise ValueError(f"{model_file}: not a SentencePiece model ({error})") from None
        self._split: tuple[str, Any] | None = None  # built when it is needed

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> SPTokenizer:
        check_options("pretrained_sp_tokenizer", config, "tokenizer_model_file", ("tokenizer_model_file",))
        return cls(config["tokenizer_model_file"])

    @property
    def vocab_size(self) -> int:
        return int(self.processor.vocab_size())

    def eod_id(self, eod_token: str) -> int:
        piece = self.processor.PieceToId(eod_token)
        if not isinstance(piece, int) or piece == self.processor.unk_id():
            known = named_tokens(self.special_names())
            raise ValueError(f"Token cannot be represented by a single token id! ({eod_token!r}) {known}.")
        return piece

    def encode_many(self, texts: Sequence[str], eod: int | None = None) -> tuple[Tokens, Lengths]:
        return _encode(self.processor, texts, eod)

    def token_of_id(self, token_id: int) -> str | None:
        return str(self.processor.IdToPiece(token_id)) if 0 <= token_id < self.vocab_size else None

    def special_names(self) -> list[str]:
        """Return the control symbols."""
        return [self.processor.IdToPiece(i) for i in range(self.vocab_size) if self.processor.IsControl(i)]

    def special_tokens(self, eod_token: str) -> SpecialTokens:
        """Return `eod_token` if it is a user-defined symbol; texts cannot contain control symbols."""
        if self.processor.IsControl(self.eod_id(eod_token)):
            return SpecialTokens()
        return SpecialTokens((eod_token,), {eod_token: self.eod_id(eod_token)})

    def encode_split(self, texts: Sequence[str], eod_token: str, eod: int) -> tuple[Tokens, Lengths]:
        """Encode with `eod_token` as a control symbol, which texts cannot contain."""
        if self._split is None or self._split[0] != eod_token:
            processor = type(self.processor)()
            processor.LoadFromSerializedProto(as_control_symbol(self.processor.serialized_model_proto(), eod_token))
            self._split = eod_token, processor
        return _encode(self._split[1], texts, eod)


def _encode(processor: Any, texts: Sequence[str], eod: int | None) -> tuple[Tokens, Lengths]:
    try:
        documents = processor.Encode(list(texts), num_threads=1)
    except (RuntimeError, UnicodeError) as error:
        raise FaultyText(str(error)) from None
    return flatten(documents, eod)


_PIECES, _PIECE, _TYPE = 1, 1, 3  # fields: of the model, its pieces; of a piece, its text and its type
_USER_DEFINED, _CONTROL = 4, 3


def as_control_symbol(model: bytes, piece: str) -> bytes:
    """Return a serialized model with the user-defined symbol `piece` as a control symbol."""
    changed = bytearray(model)
    for number, start, end in _fields(model, 0, len(model)):
        if number != _PIECES:
            continue
        places = {inner: (first, last) for inner, first, last in _fields(model, start, end)}
        first, last = places[_PIECE]
        if model[first:last] == piece.encode() and _TYPE in places and changed[places[_TYPE][0]] == _USER_DEFINED:
            changed[places[_TYPE][0]] = _CONTROL
    return bytes(changed)


def _fields(data: bytes, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield number, start and end of each field's value in a protocol buffer message."""
    while at < end:
        key, at = _varint(data, at)
        start, kind = at, key & 7
        if kind == 0:
            _, at = _varint(data, at)
        elif kind == 2:
            length, start = _varint(data, at)
            at = start + length
        else:
            at += 8 if kind == 1 else 4
        yield key >> 3, start, at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 128:
            return value, at
