"""Tokenizers behind one small interface, each rebuilt from a picklable description in every worker process."""

from __future__ import annotations

import contextlib
import os
import re
from array import array
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from fastpack.errors import counted, spoken

Tokens: TypeAlias = npt.NDArray[np.unsignedinteger[Any]]
Lengths: TypeAlias = npt.NDArray[np.int64]

_UINT32 = next(code for code in "IL" if array(code).itemsize == 4)
END_OF_TEXT = "<|endoftext|>"
_NAMED = 10  # special tokens that a message names


class Tokenizer(Protocol):
    """Text in, token ids out.

    worker_bytes: so many bytes of lines are worth the start of one more process (0.2 s).
    """

    worker_bytes: int

    @property
    def vocab_size(self) -> int:
        """Size of the vocabulary, without added tokens where the tokenizer knows such (it sets the token size)."""
        ...

    def eod_id(self, eod_token: str) -> int:
        """The id of `eod_token`; ValueError when it is not one token."""
        ...

    def token_of_id(self, token_id: int) -> str | None:
        """Return the token with this id, as text; None where there is none."""
        ...

    def special_names(self) -> list[str]:
        """Its special tokens, of which one may end documents."""
        ...

    def encode_many(self, texts: Sequence[str], eod: int | None = None) -> tuple[Tokens, Lengths]:
        """The ids of all texts back to back, uint[sum of lengths], and the number of each text's ids, int64[n].

        With `eod`, that id follows each text whose last id it is not already, and counts in the length. A text that
        gives no ids gets length 0 (and no `eod`). Raises FaultyText for a text that cannot be encoded.
        """
        ...

    def special_tokens(self, eod_token: str) -> SpecialTokens:
        """The special tokens that a text can contain, `eod_token` among them."""
        ...

    def encode_split(self, texts: Sequence[str], eod_token: str, eod: int) -> tuple[Tokens, Lengths]:
        """As `encode_many`, but the text of special tokens (as of `special_tokens`) is encoded as ordinary text.

        Where the vocabulary itself holds the text of such a token as a word, it stays that token.
        """
        ...


class SpecialTokens(NamedTuple):
    """Special tokens that become their id where a text contains them.

    literals: found in a text as they are written. loose: the text and id of those found in the normalized text, which
    may have another spelling.
    """

    literals: tuple[str, ...] = ()
    loose: Mapping[str, int] = MappingProxyType({})


def named_tokens(tokens: Sequence[str]) -> str:
    """A sentence that names the special tokens of a tokenizer, the first few of many."""
    if not tokens:
        return "The tokenizer has no special tokens"
    more = f" and {counted(len(tokens) - _NAMED, 'more', 'more')}" if len(tokens) > _NAMED else ""
    return f"The tokenizer has the special tokens {', '.join(tokens[:_NAMED])}{more}"


class FaultyText(ValueError):
    """One of the texts cannot be tokenised; the message says why."""


class EngineDeclines(ValueError):
    """An engine cannot run a tokenizer so that its ids stay the same; the message says why in one phrase."""


@contextlib.contextmanager
def refusals() -> Iterator[None]:
    """Turn what a library raises over a text, a Rust panic included, into FaultyText."""
    try:
        yield
    except MemoryError:  # says nothing of the text
        raise
    except Exception as error:  # the libraries raise bare Exception
        raise FaultyText(f"the tokenizer refuses the text: {without_location(error)}") from None
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # of no module that could be imported, and no Exception
            raise
        raise FaultyText(f"the tokenizer fails on the text: {without_location(error)}") from None


_LOCATION = re.compile(r"[\s(\[,;:]*(?:Location:\s*)?(?:\bat\s+|\bin\s+)?[\w./\\-]+\.rs(?::\d+)*[)\]]?:?")


def without_location(error: BaseException) -> str:
    """The text of an error of a library, without places in its own Rust sources."""
    return " ".join(_LOCATION.sub("", str(error)).split()) or type(error).__name__


def token_size(vocab_size: int) -> int:
    """Bytes of a token on disk for a vocabulary: 1, 2 or 4, by Modalities' formula.

    Raises ValueError for a vocabulary of more than 2**32 or less than 1.
    """
    if vocab_size < 1:
        raise ValueError(f"a vocabulary of {vocab_size} tokens cannot be packed")
    n_bytes = -(-(vocab_size - 1).bit_length() // 8)
    if n_bytes > 4:
        raise ValueError("Currently only support token byte sizes of 1, 2, and 4.")
    return {1: 1, 2: 2}.get(n_bytes, 4)  # a vocabulary of 1 needs 0 bytes, and gets 4


def check_options(variant_key: str, config: Mapping[str, Any], required: str | None, known: Sequence[str]) -> None:
    """ValueError for an option `variant_key` does not know, or for its required one missing."""
    for key in config:
        if key not in known:
            names = ", ".join(known) or "none"
            raise ValueError(f"tokenizer.config.{key}: {variant_key} has no such option (it has: {names})")
    if required is not None and not isinstance(config.get(required), str | os.PathLike):
        found = "nothing" if config.get(required) is None else repr(config[required])
        raise ValueError(f"{spoken(f'tokenizer.config.{required}')}: found {found}, expected a path")


def flatten(documents: Sequence[list[int]], eod: int | None) -> tuple[Tokens, Lengths]:
    """Ids of many documents in one uint32 array, `eod` appended as `encode_many` says; the lists are consumed."""
    if eod is not None:
        for ids in documents:
            if ids and ids[-1] != eod:
                ids.append(eod)
    lengths = np.fromiter(map(len, documents), np.int64, len(documents))
    # An array takes a list of ints in a third of numpy's time: 11 ns a token, 1 % of a Hugging Face tokenizer's.
    tokens = b"".join([array(_UINT32, ids) for ids in documents])
    return np.frombuffer(tokens, np.uint32), lengths
