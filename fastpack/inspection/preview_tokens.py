"""Tokens for a person: their ids, the pieces of text they stand for, and where documents begin and end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from fastpack.escape import escape_token
from fastpack.io import PathLike

MAX_TOKENS = 128  # of a document
_STEP = 1 << 14  # tokens looked through at a time


class ReadBack(Protocol):
    """A tokenizer the other way round."""

    @property
    def vocab_size(self) -> int:
        """How many tokens it has, added ones included."""
        ...

    def piece(self, token: int) -> bytes | None:
        """The text of one token, which may be part of a character; None where the tokenizer has no such token."""
        ...

    def text(self, ids: Sequence[int]) -> str:
        """The text of tokens, all of them the tokenizer's."""
        ...

    def encode(self, text: str) -> Sequence[int]:
        """The ids of a text, as packing makes them, without the token that ends a document."""
        ...


@dataclass(frozen=True)
class Reader:
    """How tokens are shown. eos: the token that ends a document; read_back: None shows ids only."""

    read_back: ReadBack | None = None
    eos: int | None = None
    max_tokens: int = MAX_TOKENS

    def describe(self, tokens: npt.NDArray[Any], n_tokens: int | None, path: PathLike, start: int) -> dict[str, Any]:
        """{"tokens": n_tokens, "ids", "pieces", "text", "ends_with_eos"} of one document.

        tokens: integers [n_tokens], or any number where n_tokens is None (not known); the first are shown. start: place
        of the first in `path`. pieces, text: None without `read_back`; ends_with_eos: None where that is not known.
        Raises ValueError for a token that the tokenizer does not have.
        """
        shown = tokens[: self.max_tokens]
        if shown.dtype.kind not in "iu":
            raise ValueError(f"{path}: found {shown.dtype}, expected token ids, which are integers")
        ids: list[int] = shown.tolist()
        ends = None
        if self.eos is not None and n_tokens is not None:
            ends = n_tokens > 0 and int(tokens[n_tokens - 1]) == self.eos
        described: dict[str, Any] = {
            "tokens": n_tokens,
            "ids": ids,
            "pieces": None,
            "text": None,
            "ends_with_eos": ends,
        }
        if self.read_back is not None:
            described |= {"pieces": self._pieces(ids, path, start), "text": self.read_back.text(ids)}
        return described

    def _pieces(self, ids: list[int], path: PathLike, start: int) -> list[str]:
        assert self.read_back is not None
        pieces = []
        for position, token in enumerate(ids, start):
            piece = self.read_back.piece(token)
            if piece is None:
                raise ValueError(
                    f"{path}: token {token} at position {position} is none of the {self.read_back.vocab_size:,} of the "
                    "tokenizer: the file was made with another one (or is read with a wrong dtype)"
                )
            pieces.append(escape_token(piece))
        return pieces

    def find_end(self, tokens: npt.NDArray[Any], limit: int) -> int | None:
        """How many of `tokens` the first document takes, its EOS included; None where `limit` of them hold no EOS."""
        for first in range(0, min(len(tokens), limit), _STEP):
            found = np.flatnonzero(tokens[first : min(first + _STEP, limit)] == self.eos)
            if found.size:
                return first + int(found[0]) + 1
        return len(tokens) if len(tokens) <= limit else None
