"""The interface of tokenizers, and the errors and array types that they share."""

from __future__ import annotations

import contextlib
import os
import re
from array import array
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from fastpack.errors import counted, spoken

Tokens: TypeAlias = npt.NDArray[np.unsignedinteger[Any]]
Lengths: TypeAlias = npt.NDArray[np.int64]

_UINT32 = next(code for code in "IL" if array(code).itemsize == 4)
END_OF_TEXT = "<|endoftext|>"
NEVER = 1 << 62  # `worker_bytes` of a tokenizer that gains nothing from more processes
_NAMED = 10  # special tokens that a message names


class Tokenizer(Protocol):
    """Encodes texts as token ids.

    worker_bytes: bytes of text that are worth the start of one more process (0.2 s).
    """

    worker_bytes: int

    @property
    def vocab_size(self) -> int:
        """Size of the vocabulary without added tokens; it decides the token size in files."""
        ...

    def eod_id(self, eod_token: str) -> int:
        """Return the id of `eod_token`; ValueError if it is not one token."""
        ...

    def token_of_id(self, token_id: int) -> str | None:
        """Return the token with this id as text; None if there is none."""
        ...

    def special_names(self) -> list[str]:
        """Return the special tokens, for messages about the end-of-document token."""
        ...

    def encode_many(self, texts: Sequence[str], eod: int | None = None) -> tuple[Tokens, Lengths]:
        """Return the ids of all texts, concatenated, uint[sum of lengths], and the number of ids per text, int64[n].

        With `eod`, this id is appended to each text that does not end with it, and counts in the length. A text without
        ids has length 0 and gets no `eod`. Raises FaultyText for a text that cannot be encoded.
        """
        ...

    def special_tokens(self, eod_token: str) -> SpecialTokens:
        """Return the special tokens that a text can contain, including `eod_token`."""
        ...

    def encode_split(self, texts: Sequence[str], eod_token: str, eod: int) -> tuple[Tokens, Lengths]:
        """Encode as `encode_many`, but with the text of special tokens (see `special_tokens`) as ordinary text.

        If the vocabulary itself contains the text of such a token as a word, it remains that token.
        """
        ...


@runtime_checkable
class Utf8Tokenizer(Protocol):
    """Encodes texts that are bytes, without a Python string per text."""

    def encode_utf8(
        self, data: npt.NDArray[np.uint8], lengths: Lengths, eod: int | None = None
    ) -> tuple[Tokens, Lengths] | None:
        """Encode as `encode_many` the texts whose valid UTF-8 bytes are concatenated in `data`.

        lengths: int64[n], in bytes, with the sum len(data). Returns None where the texts need `encode_many`.
        """
        ...


class SpecialTokens(NamedTuple):
    """Special tokens that a text can contain and that are then encoded as their id.

    literals: found in the text as written. loose: text and id of those found in the normalized text, which may have
    another spelling.
    """

    literals: tuple[str, ...] = ()
    loose: Mapping[str, int] = MappingProxyType({})


def named_tokens(tokens: Sequence[str]) -> str:
    """Return a sentence with the first special tokens of a tokenizer."""
    if not tokens:
        return "The tokenizer has no special tokens"
    more = f" and {counted(len(tokens) - _NAMED, 'more', 'more')}" if len(tokens) > _NAMED else ""
    return f"The tokenizer has the special tokens {', '.join(tokens[:_NAMED])}{more}"


class FaultyText(ValueError):
    """A text cannot be tokenised; the message has the reason."""


class EngineDeclines(ValueError):
    """An engine cannot run a tokenizer with the same ids; the message has the reason in one phrase."""


@contextlib.contextmanager
def refusals() -> Iterator[None]:
    """Turn any error of a library about a text, including a Rust panic, into FaultyText."""
    try:
        yield
    except MemoryError:  # not about the text
        raise
    except Exception as error:  # the libraries raise bare Exception
        raise FaultyText(f"the tokenizer refuses the text: {without_location(error)}") from None
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # its class cannot be imported and is not an Exception
            raise
        raise FaultyText(f"the tokenizer fails on the text: {without_location(error)}") from None


_LOCATION = re.compile(r"[\s(\[,;:]*(?:Location:\s*)?(?:\bat\s+|\bin\s+)?[\w./\\-]+\.rs(?::\d+)*[)\]]?:?")


def without_location(error: BaseException) -> str:
    """Return the text of a library's error without locations in its Rust sources."""
    return " ".join(_LOCATION.sub("", str(error)).split()) or type(error).__name__


def quoted(text: str) -> str:
    """Return a text for a message, shortened."""
    return repr(text) if len(text) <= 60 else f"{text[:60]!r}... of {len(text)} characters"


def token_size(vocab_size: int) -> int:
    """Return the bytes per token in a file, 1, 2 or 4, by Modalities' formula.

    Raises ValueError for a vocabulary of more than 2**32 or less than 1.
    """
    if vocab_size < 1:
        raise ValueError(f"a vocabulary of {vocab_size} tokens cannot be packed")
    n_bytes = -(-(vocab_size - 1).bit_length() // 8)
    if n_bytes > 4:
        raise ValueError("Currently only support token byte sizes of 1, 2, and 4.")
    return {1: 1, 2: 2}.get(n_bytes, 4)  # a vocabulary of 1 token needs 0 bytes and gets 4


def check_options(variant_key: str, config: Mapping[str, Any], required: str | None, known: Sequence[str]) -> None:
    """Raise ValueError for an unknown option of `variant_key`, or if the required one is missing."""
    for key in config:
        if key not in known:
            names = ", ".join(known) or "none"
            raise ValueError(f"tokenizer.config.{key}: {variant_key} has no such option (it has: {names})")
    if required is not None and not isinstance(config.get(required), str | os.PathLike):
        found = "nothing" if config.get(required) is None else repr(config[required])
        raise ValueError(f"{spoken(f'tokenizer.config.{required}')}: found {found}, expected a path")


def flatten(documents: Sequence[list[int]], eod: int | None) -> tuple[Tokens, Lengths]:
    """Return the ids of many documents in one uint32 array, with `eod` as in `encode_many`; modifies the lists."""
    if eod is not None:
        for ids in documents:
            if ids and ids[-1] != eod:
                ids.append(eod)
    lengths = np.fromiter(map(len, documents), np.int64, len(documents))
    # array takes a list of ints in a third of NumPy's time: 11 ns per token, 1 % of a Hugging Face tokenizer's time.
    tokens = b"".join([array(_UINT32, ids) for ids in documents])
    return np.frombuffer(tokens, np.uint32), lengths
