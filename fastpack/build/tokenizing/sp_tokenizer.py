"""SentencePiece models (`pretrained_sp_tokenizer`), through the optional package sentencepiece."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from fastpack.build.tokenizing.interface import FaultyText, Lengths, Tokens, check_options, flatten
from fastpack.errors import MissingExtra


class SPTokenizer:
    """Ids as SentencePiece's `Encode` gives them; `vocab_size` is the number of its pieces."""

    worker_bytes = 1 << 20

    def __init__(self, model_file: str | os.PathLike[str]) -> None:
        model_file = os.fspath(model_file)
        try:
            from sentencepiece import SentencePieceProcessor
        except ImportError:
            raise MissingExtra("sentencepiece", "sentencepiece", "a SentencePiece model") from None
        if not os.path.isfile(model_file):
            raise FileNotFoundError(f"tokenizer.config.tokenizer_model_file: {model_file} is not there")
        self.processor = SentencePieceProcessor()
        try:
            self.processor.Load(model_file)
        except RuntimeError as error:
            raise ValueError(f"{model_file}: not a SentencePiece model ({error})") from None

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
            raise ValueError(f"Token cannot be represented by a single token id! ({eod_token!r})")
        return piece

    def encode_many(self, texts: Sequence[str], eod: int | None = None) -> tuple[Tokens, Lengths]:
        try:
            documents = self.processor.Encode(list(texts), num_threads=1)
        except (RuntimeError, UnicodeError) as error:
            raise FaultyText(str(error)) from None
        return flatten(documents, eod)
