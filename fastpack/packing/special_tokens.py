"""Handle documents whose text contains special tokens; an EOS token inside makes one document read as several."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from fastpack.tokenizers.interface import FaultyText, Lengths, Tokenizer, Tokens
from fastpack.tokenizers.postprocess import replace_texts

SpecialRule: TypeAlias = Literal["keep", "split", "skip", "error"]
RULES: tuple[SpecialRule, ...] = ("keep", "split", "skip", "error")


def count_inner(tokens: Tokens, lengths: Lengths, eos: int) -> tuple[int, int]:
    """Return the number of `eos` tokens before the last token of a document, and of such documents; none is empty."""
    if not len(lengths):
        return 0, 0
    is_eos = tokens == eos
    last = np.cumsum(lengths) - 1
    is_eos[last] = False
    n_tokens = int(np.count_nonzero(is_eos))
    if not n_tokens:
        return 0, 0
    return n_tokens, int(np.count_nonzero(np.logical_or.reduceat(is_eos, last - lengths + 1)))


class _Document(NamedTuple):
    """A document that contains a special token: its number, the token's text, and its ids as ordinary text."""

    number: int
    token: str
    ids: Tokens | None  # None if the text cannot be encoded as ordinary text
    reason: str


class SpecialTokenFilter:
    """Apply a rule other than "keep" to the documents that contain special tokens."""

    def __init__(self, tokenizer: Tokenizer, eod_token: str, eod: int, rule: SpecialRule) -> None:
        self._tokenizer, self._eod_token, self._eod, self.rule = tokenizer, eod_token, eod, rule
        literals, self._loose = tokenizer.special_tokens(eod_token)
        by_length = sorted(literals, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, by_length))) if literals else None

    def find(self, texts: list[str], tokens: Tokens, lengths: Lengths) -> list[_Document]:
        """Return the documents with special tokens in their text; tokens that the tokenizer adds do not count."""
        ends = np.cumsum(lengths)
        found: list[_Document] = []
        for number, token in self._candidates(texts, tokens, ends, lengths):
            ids = tokens[ends[number] - lengths[number] : ends[number]]
            try:
                split, _ = self._tokenizer.encode_split([texts[number]], self._eod_token, self._eod)
            except FaultyText as error:
                found.append(_Document(number, token, None, str(error)))
                continue
            if self._eod_token in texts[number] and count_inner(split, np.array([len(split)]), self._eod)[0]:
                reason = f"{token!r} cannot be encoded as ordinary text"
                found.append(_Document(number, token, None, reason))
            elif not np.array_equal(ids, split):
                found.append(_Document(number, token, split, ""))
        return found

    def _candidates(self, texts: list[str], tokens: Tokens, ends: Lengths, lengths: Lengths) -> list[tuple[int, str]]:
        found: dict[int, str] = {}
        if self._pattern is not None:
            matches = ((number, self._pattern.search(text)) for number, text in enumerate(texts))
            found = {number: match[0] for number, match in matches if match is not None}
        for token, token_id in self._loose.items():
            places = np.flatnonzero(tokens == token_id)
            is_last = places == ends[np.searchsorted(ends, places, side="right")] - 1
            numbers = np.searchsorted(ends, places[~is_last] if token_id == self._eod else places, side="right")
            for number in np.unique(numbers).tolist():
                found.setdefault(number, token)
        return sorted((number, token) for number, token in found.items() if lengths[number])

    def split(self, documents: list[_Document], tokens: Tokens, lengths: Lengths) -> tuple[Tokens, Lengths]:
        """Return tokens and lengths of a batch with special tokens as ordinary text where that is possible."""
        some = [(document.number, document.ids) for document in documents if document.ids is not None]
        if not some:
            return tokens, lengths
        ids = np.concatenate([ids for _, ids in some])
        return replace_texts(
            (tokens, lengths), [number for number, _ in some], (ids, np.array([len(i) for _, i in some]))
        )

    def skipped(self, documents: list[_Document]) -> list[tuple[int, str]]:
        """Return (number, reason) of the documents that are not packed."""
        if self.rule == "split":
            return [(document.number, document.reason) for document in documents if document.ids is None]
        return [(document.number, f"the text contains the special token {document.token!r}") for document in documents]
