"""A Hugging Face tokenizer run by gigatoken: byte-level BPE, a hundred times as fast as `tokenizers`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import orjson

from fastpack.build.tokenizing.assembling import decline_options, frame_of, put_back
from fastpack.build.tokenizing.hf_tokenizer import HFTokenizer
from fastpack.build.tokenizing.interface import EngineDeclines, FaultyText, Lengths, Tokens, refusals
from fastpack.build.tokenizing.unsettled import UnsettledCharacters
from fastpack.errors import MissingExtra

# Its answer for a batch is an awkward array, which costs 0.4 ms to make and 0.3 s to import; one for a text, 1 us.
FEW_TEXTS = 128


class GigatokenTokenizer:
    """The ids of `own`, by gigatoken.

    `own` itself tokenises texts with characters that the two class differently, and batches that gigatoken refuses.
    """

    worker_bytes = 128 << 20  # a process is started in 0.7 s, in which another packs 90 MB

    def __init__(self, own: HFTokenizer) -> None:
        try:
            from gigatoken import gigatoken_rs
        except ImportError:
            raise MissingExtra("gigatoken", "gigatoken", "the engine gigatoken") from None
        self._own = own
        description = own.backend.to_str()
        decline_options(own.backend, orjson.loads(description))
        try:
            with refusals():
                self._engine: Any = gigatoken_rs.load_hf_json(description)
        except FaultyText as error:
            raise EngineDeclines(str(error)) from None
        if not isinstance(self._engine, gigatoken_rs.BPETokenizer):
            raise EngineDeclines("it is no byte-level BPE")
        self._frame = frame_of(own.backend)
        self._unsettled = UnsettledCharacters(own.backend.normalizer is not None)

    @property
    def vocab_size(self) -> int:
        return self._own.vocab_size

    def eod_id(self, eod_token: str) -> int:
        return self._own.eod_id(eod_token)

    def encode_many(self, texts: Sequence[str], eod: int | None = None) -> tuple[Tokens, Lengths]:
        """As `Tokenizer.encode_many`, on the calling thread."""
        left_out = self._unsettled.find(texts)
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

    def _encode(self, texts: list[str], eod: int | None) -> tuple[Tokens, Lengths]:
        if len(texts) <= FEW_TEXTS:
            return self._frame.join([self._engine.encode(text) for text in texts], eod)
        layout = self._engine.encode_batch(texts, parallel=False).layout
        lengths = np.diff(np.asarray(layout.offsets.data))
        return self._frame.put_round(np.asarray(layout.content.data), lengths, eod)
