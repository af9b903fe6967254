"""Post-processing for fast engines: add special tokens; fall back to the reference tokenizer for unsupported texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fastpack.tokenizers.interface import EngineDeclines, FaultyText, Lengths, Tokens, refusals
from fastpack.tokenizers.unicode_drift import UnicodeDrift

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend

    from fastpack.tokenizers.hf_tokenizer import HFTokenizer


@dataclass(frozen=True)
class Frame:
    """The ids that a tokenizer adds before and after every text, and a dtype for all of its ids."""

    before: tuple[int, ...]
    after: tuple[int, ...]
    dtype: npt.DTypeLike = np.uint32  # uint16 would need the largest id, and listing 40,000 takes 13 ms

    def surround(self, ids: Tokens, lengths: Lengths, eod: int | None) -> tuple[Tokens, Lengths]:
        """Add the ids to concatenated texts, uint[sum of lengths] with lengths int64[n]; return ids and lengths.

        `eod` is appended to each resulting text that is not empty and does not end with it.
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
        """Do as `surround` for the ids of separate texts: one copy, 0.5 us per text."""
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
        """Return for each text whether `eod` has to be appended."""
        if self.after:
            return np.full(len(lengths), self.after[-1] != eod)
        lacks = np.full(len(lengths), bool(self.before) and self.before[-1] != eod)
        filled = lengths > 0
        lacks[filled] = ids[np.cumsum(lengths)[filled] - 1] != eod
        return lacks


class FasterTokenizer:
    """Base class of engines: gives the ids of `own`, which encodes the texts that the engine does not support.

    normalizes: the tokenizer normalizes texts. Raises EngineDeclines as `frame_of`.
    """

    def __init__(self, own: HFTokenizer, normalizes: bool) -> None:
        self.own = own  # the reference for the ids
        self.eod_id, self.token_of_id, self.special_names = own.eod_id, own.token_of_id, own.special_names
        self.special_tokens, self.encode_split = own.special_tokens, own.encode_split
        self._frame = frame_of(own.backend, own.adds_special_tokens)
        self._drift = UnicodeDrift(normalizes)

    @property
    def vocab_size(self) -> int:
        return self.own.vocab_size

    def encode_many(self, texts: Sequence[str], eod: int | None = None) -> tuple[Tokens, Lengths]:
        """Encode as `Tokenizer.encode_many`, on the calling thread."""
        unsupported = self._unsupported(texts)
        taken = list(texts)
        for i in unsupported:
            taken[i] = ""
        try:
            with refusals():
                encoded = self._encode(taken, eod)
        except FaultyText:
            return self.own.encode_many(texts, eod)
        if not unsupported:
            return encoded
        return replace_texts(encoded, unsupported, self.own.encode_many([texts[i] for i in unsupported], eod))

    def _unsupported(self, texts: Sequence[str]) -> list[int]:
        """Return the positions, ascending, of texts that the engine may encode differently from `own`."""
        return self._drift.find(texts)

    def _encode(self, texts: list[str], eod: int | None) -> tuple[Tokens, Lengths]:
        """Encode all texts with the engine, which may raise anything."""
        raise NotImplementedError


def frame_of(backend: Backend, adds_special_tokens: bool = True) -> Frame:
    """Return the ids that `backend` adds to a text; EngineDeclines if they cannot be determined."""
    alone = backend.encode("a", add_special_tokens=False).ids
    framed = backend.encode("a", add_special_tokens=adds_special_tokens).ids
    places = [i for i in range(len(framed) - len(alone) + 1) if framed[i : i + len(alone)] == alone]
    if len(places) != 1:
        raise EngineDeclines("its post-processor does more than put tokens before and after a text")
    before, after = framed[: places[0]], framed[places[0] + len(alone) :]
    return Frame(tuple(before), tuple(after))


def decline_options(backend: Backend) -> None:
    """Raise EngineDeclines for options without support in faster engines: truncation, padding, dropout."""
    if backend.truncation is not None or backend.padding is not None:
        raise EngineDeclines("it truncates or pads")
    if backend.encode_special_tokens:
        raise EngineDeclines("it splits special tokens")
    if getattr(backend.model, "dropout", None):
        raise EngineDeclines("its merges are random (dropout)")


def replace_texts(
    encoded: tuple[Tokens, Lengths], places: Sequence[int], others: tuple[Tokens, Lengths]
) -> tuple[Tokens, Lengths]:
    """Return the ids of texts with those at `places` (ascending) replaced by `others`."""
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
