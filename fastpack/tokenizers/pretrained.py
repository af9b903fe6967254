"""Tokenizers under the names that Modalities gives them: one text in, a list of ids out, and back again."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from fastpack.tokenizers.hf_classes import SPECIAL_TOKENS
from fastpack.tokenizers.hf_tokenizer import HFTokenizer
from fastpack.tokenizers.sp_tokenizer import SPTokenizer

# What transformers takes out of a decoded text where tokenizer_config.json says clean_up_tokenization_spaces, in order.
_SPACES_BEFORE = (".", "?", "!", ",")
_CONTRACTIONS = ("n't", "'m", "'s", "'ve", "'re")


class PreTrainedHFTokenizer:
    """A Hugging Face tokenizer: a directory with tokenizer.json, or that file; nothing is downloaded. Pickles.

    Raises ValueError and FileNotFoundError for the options and files, NotImplementedError for a special token that is
    not in the vocabulary.
    """

    def __init__(
        self,
        pretrained_model_name_or_path: str | os.PathLike[str],
        truncation: bool | None = False,
        padding: bool | str | None = False,
        max_length: int | None = None,
        special_tokens: Mapping[str, Any] | None = None,
    ) -> None:
        path = os.fspath(pretrained_model_name_or_path)
        self.truncation, self.padding, self.max_length = truncation, padding, max_length
        self._arguments = (path, truncation, padding, max_length, special_tokens)
        self.tokenizer = HFTokenizer.from_config(
            {
                "pretrained_model_name_or_path": path,
                "truncation": truncation,
                "padding": padding,
                "max_length": max_length,
                "special_tokens": special_tokens,
            }
        )
        self.special_token_ids = self._special_token_ids()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._arguments

    @property
    def vocab_size(self) -> int:
        """Without added tokens."""
        return self.tokenizer.vocab_size

    @property
    def special_tokens(self) -> dict[str, str | list[str]]:
        """Name of the role -> token, or tokens."""
        tokens = {role: self.tokenizer.tokens.get(role) for role in SPECIAL_TOKENS}
        return {
            role: [str(token) for token in token] if isinstance(token, list) else str(token)
            for role, token in tokens.items()
            if token
        }

    def tokenize(self, text: str) -> list[int]:
        """The ids of `text`, with those that the tokenizer puts round it. ValueError for what cannot be tokenised."""
        tokens, _ = self.tokenizer.encode_many([text])
        ids: list[int] = tokens.tolist()
        return ids

    def decode(self, token_ids: int | Sequence[int]) -> str:
        """The text of ids, special tokens included."""
        ids = [token_ids] if isinstance(token_ids, int) else list(token_ids)
        text: str = self.tokenizer.backend.decode(ids, skip_special_tokens=False)
        return _clean_up(text) if self.tokenizer.cleans_up else text

    def get_token_id(self, token: str) -> int:
        """The id of one token, that of the unknown token (with a warning) if there is no such; else ValueError."""
        return self.tokenizer.eod_id(token)

    def is_special_token_id(self, token_id: int) -> bool:
        """Whether it is the id of a token with a role (beginning, end, unknown, padding, additional, ...)."""
        return token_id in self.special_token_ids

    def _special_token_ids(self) -> set[int | None]:
        named = self.special_tokens.values()
        tokens = [token for value in named for token in (value if isinstance(value, list) else [value])]
        unk = self.special_tokens.get("unk_token")
        token_to_id = self.tokenizer.backend.token_to_id
        ids = [token_to_id(token) for token in tokens]
        return {(token_to_id(str(unk)) if unk else None) if i is None else i for i in ids}


class PreTrainedSPTokenizer:
    """A SentencePiece model. Pickles. Raises MissingExtra, FileNotFoundError, ValueError for another file."""

    def __init__(self, tokenizer_model_file: str | os.PathLike[str]) -> None:
        self._model_file = os.fspath(tokenizer_model_file)
        self.tokenizer = SPTokenizer(self._model_file)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._model_file,)

    @property
    def vocab_size(self) -> int:
        """The number of pieces."""
        return self.tokenizer.vocab_size

    def tokenize(self, text: str) -> list[int]:
        """The ids of `text`. ValueError for what cannot be tokenised."""
        tokens, _ = self.tokenizer.encode_many([text])
        ids: list[int] = tokens.tolist()
        return ids

    def decode(self, token_ids: int | Sequence[int]) -> str:
        """The text of ids."""
        text: str = self.tokenizer.processor.Decode(token_ids if isinstance(token_ids, int) else list(token_ids))
        return text

    def get_token_id(self, token: str) -> int:
        """The id of one piece; ValueError if there is no such."""
        return self.tokenizer.eod_id(token)

    def is_special_token_id(self, token_id: int) -> bool:
        """Whether it is the id of a control piece. IndexError for no id."""
        return bool(self.tokenizer.processor.IsControl(token_id))


def _clean_up(text: str) -> str:
    for mark in _SPACES_BEFORE:
        text = text.replace(f" {mark}", mark)
    text = text.replace(" ' ", "'")
    for contraction in _CONTRACTIONS:
        text = text.replace(f" {contraction}", contraction)
    return text
