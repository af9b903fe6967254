"""Tokenizers with Modalities' names and methods: encode one text to a list of ids, and decode ids to text."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

from fastpack.tokenizers.hf_classes import SPECIAL_TOKENS
from fastpack.tokenizers.hf_tokenizer import OPTIONS, HFTokenizer
from fastpack.tokenizers.sp_tokenizer import SPTokenizer

# What transformers removes from decoded text under clean_up_tokenization_spaces in tokenizer_config.json, in order.
_SPACES_BEFORE = (".", "?", "!", ",")
_CONTRACTIONS = ("n't", "'m", "'s", "'ve", "'re")


_T = TypeVar("_T", HFTokenizer, SPTokenizer)


class PreTrainedTokenizer(Generic[_T]):
    """The methods that both kinds share."""

    tokenizer: _T
    _arguments: tuple[Any, ...]

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as the arguments of the constructor."""
        return type(self), self._arguments

    @property
    def vocab_size(self) -> int:
        """Size of the vocabulary without added tokens."""
        return self.tokenizer.vocab_size

    def tokenize(self, text: str) -> list[int]:
        """Return the ids of a text, including the special tokens that the tokenizer adds.

        Parameters
        ----------
        text
            The text.

        Returns
        -------
        list of int
            The ids.

        Raises
        ------
        ValueError
            For a text that cannot be tokenised.
        """
        tokens, _ = self.tokenizer.encode_many([text])
        ids: list[int] = tokens.tolist()
        return ids

    def get_token_id(self, token: str) -> int:
        """Return the id of a token.

        Parameters
        ----------
        token
            The token as text. An unknown token gives the id of a Hugging Face tokenizer's unk token, with a warning.

        Returns
        -------
        int
            The id.

        Raises
        ------
        ValueError
            If the token is unknown and there is no such unk token.
        """
        return self.tokenizer.eod_id(token)


class PreTrainedHFTokenizer(PreTrainedTokenizer[HFTokenizer]):
    """A Hugging Face tokenizer under Modalities' name and options. It can be pickled.

    Parameters
    ----------
    pretrained_model_name_or_path
        A directory with a ``tokenizer.json`` (and, if present, ``tokenizer_config.json``), or a ``tokenizer.json``.
        Nothing is downloaded.
    truncation, padding, max_length
        As in a call of a transformers tokenizer: whether to truncate, how to pad (``True``, ``"longest"``,
        ``"max_length"``, ``"do_not_pad"``), and the length in tokens.
    special_tokens
        Roles for tokens of the vocabulary, such as ``{"pad_token": "<pad>"}``.

    Attributes
    ----------
    tokenizer
        The tokenizer behind the interface of `fastpack.tokenizers`.
    special_token_ids
        The ids of all tokens with a role.

    Raises
    ------
    ValueError, FileNotFoundError
        For wrong options or files.
    NotImplementedError
        For a special token that is not in the vocabulary.

    Examples
    --------
    >>> import tempfile
    >>> from tokenizers import Tokenizer, models, pre_tokenizers
    >>> from fastpack.modalities import PreTrainedHFTokenizer
    >>> words = Tokenizer(models.WordLevel({"<unk>": 0, "hello": 1, "world": 2}, unk_token="<unk>"))
    >>> words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     words.save(f"{folder}/tokenizer.json")
    ...     tokenizer = PreTrainedHFTokenizer(f"{folder}/tokenizer.json")
    >>> tokenizer.tokenize("hello new world")
    [1, 0, 2]
    >>> tokenizer.decode([1, 2])
    'hello world'
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
        self.tokenizer = HFTokenizer.from_config(dict(zip(OPTIONS, self._arguments, strict=True)))
        self.special_token_ids = self._special_token_ids()

    @property
    def special_tokens(self) -> dict[str, str | list[str]]:
        """Role -> token; ``additional_special_tokens`` -> list of tokens."""
        tokens = {role: self.tokenizer.tokens.get(role) for role in SPECIAL_TOKENS}
        return {
            role: [str(token) for token in token] if isinstance(token, list) else str(token)
            for role, token in tokens.items()
            if token
        }

    def decode(self, token_ids: int | Sequence[int]) -> str:
        """Return the text of ids, including special tokens.

        Parameters
        ----------
        token_ids
            One id or a sequence of ids.

        Returns
        -------
        str
            The text.
        """
        ids = [token_ids] if isinstance(token_ids, int) else list(token_ids)
        text: str = self.tokenizer.backend.decode(ids, skip_special_tokens=False)
        return _clean_up(text) if self.tokenizer.cleans_up else text

    def is_special_token_id(self, token_id: int) -> bool:
        """Return whether an id belongs to a token with a role (beginning, end, unknown, padding, additional, ...).

        Parameters
        ----------
        token_id
            The id.

        Returns
        -------
        bool
            Whether it is a special token.
        """
        return token_id in self.special_token_ids

    def _special_token_ids(self) -> set[int | None]:
        named = self.special_tokens.values()
        tokens = [token for value in named for token in (value if isinstance(value, list) else [value])]
        unk = self.special_tokens.get("unk_token")
        token_to_id = self.tokenizer.backend.token_to_id
        ids = [token_to_id(token) for token in tokens]
        return {(token_to_id(str(unk)) if unk else None) if i is None else i for i in ids}


class PreTrainedSPTokenizer(PreTrainedTokenizer[SPTokenizer]):
    """A SentencePiece tokenizer under Modalities' name. It can be pickled.

    Parameters
    ----------
    tokenizer_model_file
        Path of the ``.model`` file.

    Raises
    ------
    MissingExtra
        Without the package sentencepiece (extra ``sentencepiece``).
    FileNotFoundError, ValueError
        If the file does not exist or is not a SentencePiece model.

    Examples
    --------
    >>> import tempfile
    >>> from sentencepiece import SentencePieceTrainer
    >>> from fastpack.modalities import PreTrainedSPTokenizer
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     SentencePieceTrainer.train(
    ...         sentence_iterator=iter(["hello world"] * 9),
    ...         model_prefix=f"{folder}/m",
    ...         model_type="char",
    ...         vocab_size=11,
    ...         minloglevel=2,
    ...     )
    ...     tokenizer = PreTrainedSPTokenizer(f"{folder}/m.model")
    >>> tokenizer.decode(tokenizer.tokenize("hello world"))
    'hello world'
    """

    def __init__(self, tokenizer_model_file: str | os.PathLike[str]) -> None:
        self._arguments = (os.fspath(tokenizer_model_file),)
        self.tokenizer = SPTokenizer(*self._arguments)

    def decode(self, token_ids: int | Sequence[int]) -> str:
        """Return the text of ids.

        Parameters
        ----------
        token_ids
            One id or a sequence of ids.

        Returns
        -------
        str
            The text.
        """
        text: str = self.tokenizer.processor.Decode(token_ids if isinstance(token_ids, int) else list(token_ids))
        return text

    def is_special_token_id(self, token_id: int) -> bool:
        """Return whether an id belongs to a control piece.

        Parameters
        ----------
        token_id
            The id.

        Returns
        -------
        bool
            Whether it is a control piece.

        Raises
        ------
        IndexError
            For a number that is not an id.
        """
        return bool(self.tokenizer.processor.IsControl(token_id))


def _clean_up(text: str) -> str:
    for mark in _SPACES_BEFORE:
        text = text.replace(f" {mark}", mark)
    text = text.replace(" ' ", "'")
    for contraction in _CONTRACTIONS:
        text = text.replace(f" {contraction}", contraction)
    return text
