"""Checks of the tokens and document lengths that a packed file is written from."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


class TokenRangeError(ValueError):
    """A token does not fit the token size. token: its value; position: its place in the call's tokens, from 0."""

    def __init__(self, token: int, position: int, token_size_in_bytes: int) -> None:
        self.token, self.position, self.token_size_in_bytes = token, position, token_size_in_bytes
        super().__init__(f"token {token} at position {position} does not fit {token_size_in_bytes} unsigned byte(s)")

    def __reduce__(self) -> tuple[type[TokenRangeError], tuple[int, int, int]]:
        return type(self), (self.token, self.position, self.token_size_in_bytes)


def checked_lengths(lengths: npt.ArrayLike, n_tokens: int) -> npt.NDArray[np.int64]:
    asked = np.asarray(lengths)
    if asked.size and asked.dtype.kind not in "iu":
        raise TypeError(f"lengths of dtype {asked.dtype}, expected integers")
    checked = asked.astype(np.int64)
    if checked.ndim != 1:
        raise ValueError(f"lengths of {checked.ndim} dimensions, expected one")
    # Each is at most n_tokens, so that fewer than 2^63 / n_tokens of them cannot wrap round in their sum.
    if len(checked) and (checked.min() < 0 or checked.max() > n_tokens):
        position = int(((checked < 0) | (checked > n_tokens)).argmax())
        raise ValueError(f"length {checked[position]} of document {position}, with {n_tokens} tokens in all")
    if int(checked.sum()) != n_tokens:
        raise ValueError(f"lengths that sum to {int(checked.sum())} for {n_tokens} tokens")
    return checked


def check_tokens(flat: npt.NDArray[Any], token_size: int) -> None:
    """Raise TokenRangeError for the first token below 0 or above `token_size` bytes."""
    limit = (1 << (8 * token_size)) - 1
    # The limit is all ones: the OR of all tokens exceeds it, or is negative, just when one of them does.
    if 0 <= int(np.bitwise_or.reduce(flat)) <= limit:
        return
    position = (
        int(((flat < 0) | (flat > limit)).argmax()) if limit <= np.iinfo(flat.dtype).max else int((flat < 0).argmax())
    )
    raise TokenRangeError(int(flat[position]), position, token_size)
