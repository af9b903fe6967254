"""What a faster engine leaves to do: the ids that a tokenizer puts round every text, and texts that are not for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fastpack.tokenizers.interface import (
    EngineDeclines,
    FaultyText,
    Lengths,
    SpecialTokens,
    Tokens,
    refusals,
)
from fastpack.tokenizers.unicode_drift import UnsettledCharacters

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend

    from fastpack.tokenizers.hf_tokenizer import HFTokenizer


@dataclass(frozen=True)
class Frame:
    """The ids before and after every text, and the type that holds every id of the tokenizer."""

    before: tuple[int, ...]
    after: tuple[int, ...]
    dtype: npt.DTypeLike

    def put_round(self, ids: Tokens, lengths: Lengths, eod: int | None) -> tuple[Tokens, Lengths]:
        """Texts' ids back to back, uint[sum of lengths], and their number, int64[n], as `Tokenizer.encode_many` gives.

        `eod` follows each framed text that is not empty and does not end with it already.
        """
        framed = lengths + (len(self.before) + len(self.after))
        if eod is not None:
            framed += self._lacks(ids, lengths, eod)
        if len(ids) == (n_ids := int(framed.sum())):
            return ids.astype(self.dtype), framed
        ends = np.cumsum(framed)
        starts = ends - framed + len(self.before)
        out = np.empty(n_ids, self.dtype)
        from_text = np.ones(n_ids, bool)

        def put(token: int, places: npt.NDArray[np.int64]) -> None:
            out[places], from_text[places] = token, False

        if eod is not None:
            put(eod, ends[framed > lengths + (len(self.before) + len(self.after))] - 1)
        for i, token in enumerate(self.before):
            put(token, starts - len(self.before) + i)
        for i, token in enumerate(self.after):
            put(token, starts + lengths + i)
        out[from_text] = ids
        return out, framed

    def join(self, texts: Sequence[Tokens], eod: int | None) -> tuple[Tokens, Lengths]:
        """As `put_round`, of the ids of each text alone: one copy of them, 0.5 us a text."""
        before, after, end = (np.array(ids, self.dtype) for ids in (self.before, self.after, [eod or 0]))
        parts: list[Tokens] = []
        lengths: list[int] = []
        for ids in texts:
            n_ids = len(before) + len(ids) + len(after)
            parts += (before, ids, after) if len(before) + len(after) else (ids,)
            if eod is not None and n_ids and (after if len(after) else ids if len(ids) else before)[-1] != eod:
                parts.append(end)
                n_ids += 1
            lengths.append(n_ids)
        if not parts:
            return np.empty(0, self.dtype), np.empty(0, np.int64)
        return np.concatenate(parts, dtype=self.dtype, casting="unsafe"), np.array(lengths)

    def _lacks(self, ids: Tokens, lengths: Lengths, eod: int) -> npt.NDArray[np.bool_]:
        """Of each text, whether `eod` has to follow it."""
        if self.after:
            return np.full(len(lengths), self.after[-1] != eod)
        lacks = np.full(len(lengths), bool(self.before) and self.before[-1] != eod)
        filled = lengths > 0
        lacks[filled] = ids[np.cumsum(lengths)[filled] - 1] != eod
        return lacks


class FasterTokenizer:
    """Base of the engines: the ids of `own`, which itself tokenises what the engine leaves out or refuses.

    normalizes: the tokenizer normalizes texts. Raises EngineDeclines where `frame_of` does.
    """

    def __init__(self, own: HFTokenizer, normalizes: bool) -> None:
        self._own = own
        self._frame = frame_of(own.backend)
        self._unsettled = UnsettledCharacters(normalizes)

    @property
    def vocab_size(self) -> int:
        return self._own.vocab_size

    def eod_id(self, eod_token: str) -> int:
        return self._own.eod_id(eod_token)

    @property
    def own(self) -> HFTokenizer:
        """The tokenizer on its own library, which the ids are to be equal to."""
        return self._own

    def token_of_id(self, token_id: int) -> str | None:
        return self._own.token_of_id(token_id)

    def special_names(self) -> list[str]:
        return self._own.special_names()

    def special_tokens(self, eod_token: str) -> SpecialTokens:
        return self._own.special_tokens(eod_token)

    def encode_split(self, texts: Sequence[str], eod_token: str, eod: int) -> tuple[Tokens, Lengths]:
        return self._own.encode_split(texts, eod_token, eod)

    def encode_many(self, texts: Sequence[str], eod: int | None = None) -> tuple[Tokens, Lengths]:
        """As `Tokenizer.encode_many`, on the calling thread."""
        left_out = self._left_out(texts)
        taken = list(texts)
        for i in left_out:
            taken[i] = ""
        try:
            with refusals():
                encoded = self._encode(taken, eod)
        except FaultyText:
            return self._own.encode_many(texts, eod)
        if not left_out:
            return encoded
        return put_back(encoded, left_out, self._own.encode_many([texts[i] for i in left_out], eod))

    def _left_out(self, texts: Sequence[str]) -> list[int]:
        """Positions, ascending, of the texts that the engine might not tokenise as `own` does."""
        return self._unsettled.find(texts)

    def _encode(self, texts: list[str], eod: int | None) -> tuple[Tokens, Lengths]:
        """As `encode_many`, all by the engine, which may raise anything."""
        raise NotImplementedError


def frame_of(backend: Backend) -> Frame:
    """What `backend` puts round a text; EngineDeclines where that cannot be told."""
    alone = backend.encode("a", add_special_tokens=False).ids
    framed = backend.encode("a").ids
    places = [i for i in range(len(framed) - len(alone) + 1) if framed[i : i + len(alone)] == alone]
    if len(places) != 1:
        raise EngineDeclines("its post-processor does more than put tokens before and after a text")
    before, after = framed[: places[0]], framed[places[0] + len(alone) :]
    last = max(backend.get_vocab(with_added_tokens=True).values())
    return Frame(tuple(before), tuple(after), np.uint16 if last < 1 << 16 else np.uint32)


def decline_options(backend: Backend, description: dict[str, Any]) -> None:
    """EngineDeclines for what no faster engine does: truncation, padding, and chance."""
    if backend.truncation is not None or backend.padding is not None:
        raise EngineDeclines("it truncates or pads")
    if backend.encode_special_tokens:
        raise EngineDeclines("it splits special tokens")
    if description["model"].get("dropout"):
        raise EngineDeclines("its merges are left to chance (dropout)")


def put_back(
    encoded: tuple[Tokens, Lengths], places: Sequence[int], others: tuple[Tokens, Lengths]
) -> tuple[Tokens, Lengths]:
    """Texts' ids with those of the texts at `places` (ascending) replaced by `others`."""
    tokens, lengths = encoded
    ends, other_ends = np.cumsum(lengths), np.cumsum(others[1])
    parts: list[Tokens] = []
    start = 0
    for i, end, n in zip(places, other_ends.tolist(), others[1].tolist(), strict=True):
        parts += [tokens[start : ends[i] - lengths[i]], others[0][end - n : end].astype(tokens.dtype)]
        start = ends[i]
    joined = lengths.copy()
    joined[list(places)] = others[1]
    return np.concatenate([*parts, tokens[start:]]), joined
