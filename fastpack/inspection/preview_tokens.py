"""Tokens as people read them: ids, texts of tokens, and the limits of documents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from fastpack.escape import escape_token
from fastpack.io import PathLike

MAX_TOKENS = 128  # of a document
_STEP = 1 << 14  # tokens searched at a time


class Decoder(Protocol):
    """A tokenizer that also decodes."""

    @property
    def vocab_size(self) -> int:
        """Return the number of tokens, including added tokens."""
        ...

    def piece(self, token: int) -> bytes | None:
        """Return the bytes of one token, which may be part of a character; None for an unknown id."""
        ...

    def text(self, ids: Sequence[int]) -> str:
        """Return the text of known tokens."""
        ...

    def encode(self, text: str) -> Sequence[int]:
        """Return the ids of a text as in packing, without the EOS token."""
        ...


@dataclass(frozen=True)
class Reader:
    """How tokens are previewed. eos: the token that ends a document; decoder: None shows ids only."""

    decoder: Decoder | None = None
    eos: int | None = None
    max_tokens: int = MAX_TOKENS

    def describe(self, tokens: npt.NDArray[Any], n_tokens: int | None, path: PathLike, start: int) -> dict[str, Any]:
        """Return {"tokens": n_tokens, "ids", "pieces", "text", "ends_with_eos"} of one document.

        tokens: integers [n_tokens], or any number if n_tokens is None (unknown); start: position of the first in
        `path`. pieces, text: None without `decoder`; ends_with_eos: None if unknown. Raises ValueError for a token that
        the tokenizer does not have.
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
        if self.decoder is not None:
            described |= {"pieces": self._pieces(ids, path, start), "text": self.decoder.text(ids)}
        return described

    def _pieces(self, ids: list[int], path: PathLike, start: int) -> list[str]:
        assert self.decoder is not None
        pieces = []
        for position, token in enumerate(ids, start):
            piece = self.decoder.piece(token)
            if piece is None:
                raise ValueError(
                    f"{path}: token {token} at position {position} is none of the {self.decoder.vocab_size:,} of the "
                    "tokenizer: the file was made with another one (or is read with a wrong dtype)"
                )
            pieces.append(escape_token(piece))
        return pieces

    def find_end(self, tokens: npt.NDArray[Any], limit: int) -> int | None:
        """Return the length of the first document, including its EOS; None if there is no EOS in `limit` tokens."""
        for first in range(0, min(len(tokens), limit), _STEP):
            found = np.flatnonzero(tokens[first : min(first + _STEP, limit)] == self.eos)
            if found.size:
                return first + int(found[0]) + 1
        return len(tokens) if len(tokens) <= limit else None
