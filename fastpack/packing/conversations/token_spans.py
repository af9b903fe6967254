"""Which tokens the spans of a text are: `char_to_token` of the tokenizers library, for all texts of a batch at once.

Of a byte-level vocabulary, the bytes of every token are known, so the positions follow from the ids, whatever library
made them. Texts where they do not (a normalizer changed them, an added token took spaces) are encoded again with
offsets.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fastpack.packing.conversations.rendering import Span
from fastpack.tokenizers.bytes_tokenizer import BytesTokenizer
from fastpack.tokenizers.hf_loading import state_of
from fastpack.tokenizers.hf_tokenizer import HFTokenizer
from fastpack.tokenizers.interface import FaultyText, Lengths, Tokenizer, Tokens
from fastpack.tokenizers.postprocess import FasterTokenizer

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend

Mask = npt.NDArray[np.bool_]


class TokenSpans:
    """Find the tokens of spans for one tokenizer."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._offsets: Backend | None = None
        self._n_bytes: npt.NDArray[np.int64] | None = None  # of each token, -1 until it occurs; None: unknown
        self._normalizes = False
        own = tokenizer.own if isinstance(tokenizer, FasterTokenizer) else tokenizer
        if isinstance(own, BytesTokenizer):
            self._n_bytes = np.ones(257, np.int64)
        elif isinstance(own, HFTokenizer):
            self._offsets = backend = own.backend
            if _is_byte_level(backend):
                self._n_bytes = _added_bytes(backend)
                self._normalizes = backend.normalizer is not None

    def mask(
        self,
        texts: Sequence[str],
        spans: Sequence[list[Span] | None],
        tokens: Tokens,
        lengths: Lengths,
        exact: bool = True,
    ) -> Mask:
        """Return which tokens belong to the spans; None: all of a text.

        exact: as transformers, even if a span begins or ends with a space that belongs to no token. Raises FaultyText
        if the ids are not those of the tokenizer's own library.
        """
        starts = np.cumsum(lengths) - lengths
        mask = np.zeros(len(tokens), np.bool_)
        ends = None if self._n_bytes is None else np.cumsum(self._bytes_of(self._n_bytes, tokens))
        byte_starts: list[int] = [] if ends is None else np.concatenate([[0], ends])[starts].tolist()
        byte_ends: list[int] = [] if ends is None else np.concatenate([[0], ends])[starts + lengths].tolist()
        wanted: list[int] = []  # byte positions of the first and last character of each span
        places: list[tuple[int, int, int]] = []  # text, and its first and end token
        for i, (text, chosen, first, n) in enumerate(zip(texts, spans, starts.tolist(), lengths.tolist(), strict=True)):
            if chosen is None:
                mask[first : first + n] = True
            elif ends is not None and self._is_plain(text, byte_ends[i] - byte_starts[i]):
                for start, last in _byte_positions(text, chosen):
                    wanted += (byte_starts[i] + start, byte_starts[i] + last)
                    places.append((i, first, first + n))
            else:
                self._mark_by_offsets(text, chosen, mask[first : first + n], exact)
        if places:
            assert ends is not None
            found = np.searchsorted(ends, np.array(wanted), "right").tolist()
            for (_, first, end), start, last in zip(places, found[::2], found[1::2], strict=True):
                if start < end:
                    mask[start : (last + 1 if last > first or not exact else end)] = True
        return mask

    def _bytes_of(self, known: npt.NDArray[np.int64], tokens: Tokens) -> npt.NDArray[np.int64]:
        """Return the number of bytes of each token; in a byte-level vocabulary, a character stands for a byte."""
        missing = int(tokens.max(initial=0)) + 1 - len(known)
        if missing > 0:  # the ids of the vocabulary have gaps
            known = self._n_bytes = np.append(known, np.full(missing, -1))
        n_bytes = known[tokens]
        if (n_bytes < 0).any():
            assert self._offsets is not None
            for number in np.unique(tokens[n_bytes < 0]).tolist():
                known[number] = len(self._offsets.id_to_token(number) or "")
            n_bytes = known[tokens]
        return n_bytes

    def _is_plain(self, text: str, n_bytes: int) -> bool:
        """Return whether the tokens are exactly the bytes of the text, in order."""
        if text.isascii():
            return len(text) == n_bytes
        if self._normalizes and not unicodedata.is_normalized("NFC", text):
            return False
        return len(text.encode()) == n_bytes

    def _mark_by_offsets(self, text: str, spans: list[Span], mask: Mask, exact: bool) -> None:
        """Mark the tokens of one text; exact: a span whose first character is in no token ends the search."""
        assert self._offsets is not None
        encoding: Any = self._offsets.encode(text, add_special_tokens=False)
        if len(encoding) != len(mask):
            raise FaultyText("the engine and the tokenizer's own library give different numbers of tokens")
        for start, end in spans:
            if exact:
                first, last = encoding.char_to_token(start), encoding.char_to_token(end - 1)
                if first is None:
                    return
                mask[first : last + 1 if last else len(mask)] = True
            else:
                found = {encoding.char_to_token(i) for i in range(start, end)} - {None}
                mask[min(found, default=0) : max(found, default=-1) + 1] = True


def _byte_positions(text: str, spans: list[Span]) -> list[Span]:
    """Return the byte positions of the first and of the last character of each span before the end of the text."""
    found: list[Span] = []
    before = n_bytes = 0
    for start, end in spans:
        if start >= len(text):
            break
        if text.isascii():
            found.append((start, end - 1))
            continue
        n_bytes = n_bytes + len(text[before:start].encode()) if start >= before else len(text[:start].encode())
        inner = len(text[start : end - 1].encode()) if end > start else -len(text[start - 1].encode())
        found.append((n_bytes, n_bytes + inner))
        before = start
    return found


def _is_byte_level(backend: Backend) -> bool:
    """Return whether all tokens are bytes of the text, at most normalized to NFC, and offsets are those of tokens."""
    model: Any = backend.model
    normalizer = state_of(backend.normalizer)
    steps, after = (_parts(state_of(component)) for component in (backend.pre_tokenizer, backend.post_processor))
    return (
        type(model).__name__ == "BPE"
        and not model.continuing_subword_prefix
        and not model.end_of_word_suffix
        and normalizer.get("type", "NFC") == "NFC"
        and any(step["type"] == "ByteLevel" for step in steps)
        and not any(step["type"] == "ByteLevel" and step["trim_offsets"] for step in after)
    )


def _parts(component: dict[str, Any]) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = component.get("pretokenizers") or component.get("processors") or [component]
    return parts if component else []


def _added_bytes(backend: Backend) -> npt.NDArray[np.int64]:
    """Return the number of bytes of each added token by id, -1 for other tokens."""
    added = backend.get_added_tokens_decoder()
    n_bytes = np.full(1 + max(backend.get_vocab_size(with_added_tokens=True), *added), -1)
    for number, token in added.items():
        n_bytes[number] = len(token.content.encode())
    return n_bytes
