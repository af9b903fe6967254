"""Run a Hugging Face tokenizer on gigatoken: byte-level BPE, a hundred times as fast as `tokenizers`."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fastpack.errors import MissingExtra
from fastpack.tokenizers.hf_tokenizer import HFTokenizer
from fastpack.tokenizers.interface import EngineDeclines, FaultyText, Lengths, Tokens, refusals
from fastpack.tokenizers.postprocess import FasterTokenizer, decline_options

# The result of a batch is an awkward array: 0.4 ms to construct and 0.25 s to import; a single text takes 2 us more.
FEW_TEXTS = 128
SINGLE_TEXTS = 200_000  # that a process encodes singly before it imports awkward, which also takes 90 MB of memory


class GigatokenTokenizer(FasterTokenizer):
    """Gives the ids of `own` with gigatoken.

    `own` encodes texts with characters that the two classify differently, and batches that gigatoken refuses.
    """

    worker_bytes = 128 << 20  # a process starts in 0.7 s; a running one packs 90 MB in that time

    def __init__(self, own: HFTokenizer) -> None:
        try:
            from gigatoken import gigatoken_rs
        except ImportError:
            raise MissingExtra("gigatoken", "gigatoken", "the engine gigatoken") from None
        decline_options(own.backend)
        try:
            with refusals():
                self._engine: Any = gigatoken_rs.load_hf_json(own.json)
        except FaultyText as error:
            raise EngineDeclines(str(error).partition("the text: ")[2]) from None
        if not isinstance(self._engine, gigatoken_rs.BPETokenizer):
            raise EngineDeclines("it is not a byte-level BPE")
        self._n_single = 0
        super().__init__(own, own.backend.normalizer is not None)

    def _encode(self, texts: list[str], eod: int | None) -> tuple[Tokens, Lengths]:
        if self._is_single(len(texts)):
            return self._frame.join([self._engine.encode(text) for text in texts], eod)
        layout = self._engine.encode_batch(texts, parallel=False).layout
        offsets = np.asarray(layout.offsets.data, np.int64)
        return self._frame.surround(np.asarray(layout.content.data), offsets[1:] - offsets[:-1], eod)

    def _is_single(self, n_texts: int) -> bool:
        """Return whether to encode texts singly, and count them."""
        if n_texts > FEW_TEXTS and self._n_single >= SINGLE_TEXTS:
            return False
        self._n_single += n_texts
        return True

    def encode_utf8(
        self, data: npt.NDArray[np.uint8], lengths: Lengths, eod: int | None = None
    ) -> tuple[Tokens, Lengths] | None:
        """Encode as `Utf8Tokenizer.encode_utf8`; None for texts that `own` may have to encode."""
        if self._drift.is_possible(data):
            return None
        if self._is_single(len(lengths)):
            return self._encode_singly(data, lengths, eod)
        import awkward as ak

        offsets = ak.index.Index64(np.append(0, np.cumsum(lengths)))
        flat: Any = data
        content = ak.contents.NumpyArray(flat, parameters={"__array__": "char"})
        texts = ak.Array(ak.contents.ListOffsetArray(offsets, content, parameters={"__array__": "string"}))
        try:
            with refusals():
                layout = self._engine.encode_batch(texts, parallel=False).layout
        except FaultyText:
            return None
        ends = np.asarray(layout.offsets.data, np.int64)
        return self._frame.surround(np.asarray(layout.content.data), np.diff(ends), eod)

    def _encode_singly(
        self, data: npt.NDArray[np.uint8], lengths: Lengths, eod: int | None
    ) -> tuple[Tokens, Lengths] | None:
        texts, start, encoded = data.tobytes(), 0, []
        try:
            with refusals():
                for end in np.cumsum(lengths).tolist():
                    encoded.append(self._engine.encode(texts[start:end]))
                    start = end
        except FaultyText:
            return None
        return self._frame.join(encoded, eod)
