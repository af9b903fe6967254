"""Encode batches of lines as tokens, in the main process and in workers."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fastpack import io as files
from fastpack.documents.json_blocks import compile_block_pattern
from fastpack.documents.json_fields import FaultyDocument, compile_pattern
from fastpack.packing.audit import Audit
from fastpack.packing.conversations.chat_settings import ChatSettings
from fastpack.packing.special_tokens import SpecialRule, SpecialTokenFilter, count_inner
from fastpack.packing.utf8_texts import Faulty, Utf8Texts, read_texts
from fastpack.tokenizers.interface import END_OF_TEXT, FaultyText, Lengths, Tokenizer, Tokens, Utf8Tokenizer, quoted
from fastpack.tokenizers.tokenizer_spec import OWN_ENGINES, TokenizerSpec
from fastpack.tokens.tokenizer_fingerprint import TokenizerFingerprint


@dataclass(frozen=True)
class EncoderSpec:
    """Everything that a process needs to encode lines.

    eos_token_id: the id of `eos_token`; token_size: in bytes; special: the rule for special tokens in texts; audit: the
    share of the documents that is compared with the reference library, None for 8 % of the time; fingerprint: of the
    tokenizer, which is recorded with the output; chat: how rows are rendered, if they are conversations.
    """

    text_pattern: str
    tokenizer: TokenizerSpec
    eos_token_id: int
    token_size: int
    eos_token: str = END_OF_TEXT
    special: SpecialRule = "keep"
    audit: float | None = None
    fingerprint: TokenizerFingerprint | None = None
    chat: ChatSettings | None = None


class Batch(NamedTuple):
    """Lines to encode.

    rows: int64[n, 2], byte offset and byte length in the file `path`, or in `data`, decompressed bytes of `path`.
    is_text: the rows are texts in `data`, as in a `TextBatch`, not lines of JSON.
    """

    path: str
    rows: npt.NDArray[np.int64]
    data: bytes | npt.NDArray[np.uint8] | None = None
    is_text: bool = False


class Counts(NamedTuple):
    """Number of EOS tokens inside documents, of documents that contain such tokens, and of audited documents."""

    eos_inside: int = 0
    documents_with_eos_inside: int = 0
    audited_documents: int = 0

    def plus(self, other: Sequence[int]) -> Counts:
        """Return the sums."""
        return Counts(*(a + b for a, b in zip(self, other, strict=True)))


class ChatCounts(NamedTuple):
    """Number of conversations of each kind, and of messages."""

    messages: int = 0
    sharegpt: int = 0
    pairs: int = 0
    turns: int = 0

    def plus(self, other: Sequence[int]) -> ChatCounts:
        """Return the sums."""
        return ChatCounts(*(a + b for a, b in zip(self, other, strict=True)))


class Stop(NamedTuple):
    """Why the job ends: position in the batch, and reason; by_engine: an engine gave wrong ids."""

    position: int
    reason: str
    by_engine: bool


class Encoded(NamedTuple):
    """Encoded documents.

    tokens: of all documents, concatenated, little-endian, in the token size of the file. lengths: int64[n], in tokens.
    faulty: (position in the batch, reason) of skipped documents. stop: why the job ends, if it ends here. mask, chats:
    of conversations, bool per token, and their counts.
    """

    tokens: Tokens
    lengths: Lengths
    faulty: list[tuple[int, str]]
    counts: Counts = Counts()
    stop: Stop | None = None
    mask: npt.NDArray[np.bool_] | None = None
    chats: ChatCounts = ChatCounts()


class Encoder:
    """Encode batches of lines; keep the last file mapped for the next batch."""

    def __init__(self, spec: EncoderSpec, tokenizer: Tokenizer | None = None) -> None:
        self._path, self._source = "", np.empty(0, np.uint8)
        self._text_of = compile_pattern(spec.text_pattern)
        self._texts_of = compile_block_pattern(spec.text_pattern)
        self._tokenizer = tokenizer if tokenizer is not None else spec.tokenizer.build()
        self._eod: int | None = spec.eos_token_id
        self._dtype = np.dtype(f"<u{spec.token_size}")
        self._engine = spec.tokenizer.engine
        self._audit = Audit(self._tokenizer, spec.eos_token_id, spec.audit)
        self._special: SpecialTokenFilter | None = None
        if spec.special != "keep":
            self._special = SpecialTokenFilter(self._tokenizer, spec.eos_token, spec.eos_token_id, spec.special)
        self._utf8_tokenizer: Utf8Tokenizer | None = None
        if self._special is None and isinstance(self._tokenizer, Utf8Tokenizer):  # the check takes 50 us
            self._utf8_tokenizer = self._tokenizer

    def encode(self, batch: Batch) -> Encoded:
        """Encode one batch; a faulty document does not affect others."""
        if not len(batch.rows):
            return Encoded(np.empty(0, self._dtype), np.empty(0, np.int64), [])
        started = time.perf_counter()
        found, positions, faulty = self._read(batch)
        if batch.data is None:
            files.drop_pages(self._source, int(batch.rows[:, 0].min()), int(batch.rows.sum(axis=1).max()))
        texts, (tokens, lengths) = self._tokenize_all(found, positions, faulty)
        seconds = time.perf_counter() - started
        audited, wrong = self._audit.compare(texts, tokens, lengths, int(batch.rows.sum()), seconds)
        stop = None if wrong is None else Stop(positions[wrong], self._differs(texts[wrong]), True)
        if self._special is not None and stop is None:
            assert isinstance(texts, list)
            tokens, lengths, stop = self._apply_rule(self._special, texts, positions, faulty, tokens, lengths)
        if not lengths.all():
            empty = np.flatnonzero(lengths == 0).tolist()
            faulty += [(positions[i], "empty text" if not texts[i] else "the text gives no tokens") for i in empty]
            positions = [position for position, n in zip(positions, lengths, strict=True) if n]
            lengths = lengths[lengths > 0]
        tokens, lengths = self._skip_too_large(tokens, lengths, positions, faulty)
        faulty.sort()
        assert self._eod is not None
        counts = Counts(*count_inner(tokens, lengths, self._eod), audited)
        return Encoded(tokens.astype(self._dtype, copy=False), lengths, faulty, counts, stop)

    def _differs(self, text: str) -> str:
        reference = OWN_ENGINES["pretrained_hf_tokenizer"]
        return f"the engine {self._engine} gives other ids than {reference} on {quoted(text)}"

    def _apply_rule(
        self,
        special: SpecialTokenFilter,
        texts: list[str],
        positions: list[int],
        faulty: list[tuple[int, str]],
        tokens: Tokens,
        lengths: Lengths,
    ) -> tuple[Tokens, Lengths, Stop | None]:
        """Split, skip or stop at documents that contain special tokens; skipped ones go to `faulty`."""
        documents = special.find(texts, tokens, lengths)
        skipped = special.skipped(documents)
        if skipped and special.rule == "error":
            number, reason = skipped[0]
            return tokens, lengths, Stop(positions[number], reason, False)
        if special.rule == "split":
            tokens, lengths = special.split(documents, tokens, lengths)
        if not skipped:
            return tokens, lengths, None
        faulty += [(positions[number], reason) for number, reason in skipped]
        kept = np.ones(len(lengths), bool)
        kept[[number for number, _ in skipped]] = False
        positions[:] = [position for position, keep in zip(positions, kept.tolist(), strict=True) if keep]
        texts[:] = [text for text, keep in zip(texts, kept.tolist(), strict=True) if keep]
        return tokens[np.repeat(kept, lengths)], lengths[kept], None

    def _read(self, batch: Batch) -> tuple[Utf8Texts | list[str], list[int], Faulty]:
        """Return the texts of a batch, their positions, and (position, reason) of faulty documents."""
        data = self._bytes_of(batch)
        return read_texts(data, batch.rows) if batch.is_text else self._read_lines(data, batch.rows)

    def _read_lines(self, lines: memoryview, rows: npt.NDArray[np.int64]) -> tuple[list[str], list[int], Faulty]:
        if self._texts_of is not None and (block := self._texts_of(lines, rows)) is not None:
            return block, list(range(len(rows))), []
        texts: list[str] = []
        positions: list[int] = []
        faulty: list[tuple[int, str]] = []
        text_of = self._text_of
        # Two lists of ints: a list of pairs costs 0.6 us per line, most of it in the garbage collector.
        for position, (start, end) in enumerate(zip(rows[:, 0].tolist(), rows.sum(axis=1).tolist(), strict=True)):
            try:
                texts.append(text_of(lines[start:end]))
            except FaultyDocument as error:
                faulty.append((position, str(error)))
            else:
                positions.append(position)
        return texts, positions, faulty

    def _bytes_of(self, batch: Batch) -> memoryview:
        if batch.data is not None:
            return memoryview(batch.data) if isinstance(batch.data, bytes) else batch.data.data
        if batch.path != self._path:
            self._path, self._source = batch.path, files.map_bytes(batch.path)
        return self._source.data

    def _tokenize_all(
        self, texts: Utf8Texts | list[str], positions: list[int], faulty: Faulty
    ) -> tuple[Sequence[str], tuple[Tokens, Lengths]]:
        """Return the texts that were encoded, and their tokens and lengths; those of bytes stay bytes if possible."""
        if isinstance(texts, Utf8Texts) and self._utf8_tokenizer is not None and self._eod is not None:
            encoded = texts.encode(self._utf8_tokenizer, self._eod)
            if encoded is not None:
                return texts, encoded
        chosen = list(texts)
        tokens, lengths = self._tokenize(chosen, positions, faulty)
        return chosen, (tokens, lengths)

    def _tokenize(
        self, texts: list[str], positions: list[int], faulty: list[tuple[int, str]]
    ) -> tuple[Tokens, Lengths]:
        """Encode all texts at once; if one is rejected, encode each separately and move rejected ones to `faulty`."""
        try:
            return self._tokenizer.encode_many(texts, self._eod)
        except FaultyText:
            pass
        done: list[tuple[Tokens, Lengths]] = []
        good: list[int] = []
        for i, text in enumerate(texts):
            try:
                done.append(self._tokenizer.encode_many([text], self._eod))
                good.append(i)
            except FaultyText as error:
                faulty.append((positions[i], str(error)))
        texts[:] = [texts[i] for i in good]
        positions[:] = [positions[i] for i in good]
        return _join(done)

    def _skip_too_large(
        self, tokens: Tokens, lengths: Lengths, positions: list[int], faulty: list[tuple[int, str]]
    ) -> tuple[Tokens, Lengths]:
        limit = np.iinfo(self._dtype).max
        if tokens.dtype.itemsize <= self._dtype.itemsize or not len(tokens) or int(tokens.max()) <= limit:
            return tokens, lengths
        places = np.flatnonzero(tokens > limit)
        documents = np.searchsorted(np.cumsum(lengths), places, side="right")
        kept = np.ones(len(lengths), bool)
        for document, first in zip(*np.unique(documents, return_index=True), strict=True):
            kept[document] = False
            token = tokens[places[first]]
            faulty.append((positions[document], f"token {token} does not fit into {self._dtype.itemsize} byte(s)"))
        return tokens[np.repeat(kept, lengths)], lengths[kept]


def _join(parts: Sequence[tuple[Tokens, Lengths]]) -> tuple[Tokens, Lengths]:
    if not parts:
        return np.empty(0, np.uint32), np.empty(0, np.int64)
    return np.concatenate([tokens for tokens, _ in parts]), np.concatenate([lengths for _, lengths in parts])
