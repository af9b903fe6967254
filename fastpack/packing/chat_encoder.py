"""Encode conversations as tokens and loss masks, in the main process and in workers."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import orjson

from fastpack import io as files
from fastpack.packing.audit import Audit
from fastpack.packing.conversations.chat_settings import ChatSettings
from fastpack.packing.conversations.conversation import KINDS, Conversation, Fault, read_conversation
from fastpack.packing.conversations.rendering import ChatTemplate, Span
from fastpack.packing.conversations.sandbox import TemplateFault
from fastpack.packing.conversations.token_spans import TokenSpans
from fastpack.packing.encoder import Batch, ChatCounts, Counts, Encoded, Encoder, EncoderSpec, Stop
from fastpack.tokenizers.hf_tokenizer import HFTokenizer
from fastpack.tokenizers.interface import FaultyText, Tokenizer
from fastpack.tokenizers.postprocess import FasterTokenizer


class RenderedChat(NamedTuple):
    """The text of a conversation, the characters that count in the loss (None: all), and what it was."""

    text: str
    spans: list[Span] | None
    kind: str
    n_turns: int


class ChatRenderer:
    """Render rows of JSON as the text of their conversations. Raises ValueError for templates that do not compile."""

    def __init__(self, settings: ChatSettings, tokenizer: Tokenizer) -> None:
        self._settings, variables = settings, _variables(tokenizer)
        self._template = self._for_tools = ChatTemplate(settings.template, variables)
        if settings.tool_template is not None:
            self._for_tools = ChatTemplate(settings.tool_template, variables)
        self.is_exact = self._template.marks_turns and self._for_tools.marks_turns

    def render(self, line: bytes | memoryview) -> RenderedChat:
        """Return the rendered conversation of a row. Raises Fault or TemplateFault."""
        line = bytes(line)
        if self._settings.preference is None:
            return self._render(line, self._settings)
        sides = {name: self._render(line, settings) for name, settings in self._settings.both_sides().items()}
        if not all(chat.text for chat in sides.values()):
            raise Fault("one of chosen and rejected has no text")
        return sides[self._settings.preference]

    def sample(self, line: bytes | memoryview) -> str:
        """Return the text of the conversation of a row, without the check of its spans. Raises as `render`."""
        return self._render(bytes(line), replace(self._settings, loss="all")).text

    def _render(self, line: bytes, settings: ChatSettings) -> RenderedChat:
        kind, messages, tools = _conversation(line, settings)
        template = self._template if tools is None else self._for_tools
        text, spans = template.render_spans(messages, tools, settings.loss)
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise Fault(f"the lone surrogate {ascii(error.object[error.start])[1:-1]} cannot be encoded") from None
        return RenderedChat(text, spans, kind, len(messages))


def _conversation(line: bytes, settings: ChatSettings) -> Conversation:
    """Return the conversation of a row, as the json module reads it.

    orjson takes a quarter of its time, and differs in large numbers and in what it refuses.
    """
    with contextlib.suppress(orjson.JSONDecodeError, Fault):
        found = read_conversation(orjson.loads(line), settings)
        if found.tools is None and all(
            type(value) is str or value is None for message in found.messages for value in message.values()
        ):
            return found
    return read_conversation(_parsed(line), settings)


def _parsed(line: bytes) -> Any:
    if not line.strip():
        raise Fault("an empty line, expected a JSON object")
    try:
        return json.loads(line)
    except UnicodeDecodeError as error:
        raise Fault(f"not UTF-8: byte 0x{error.object[error.start]:02x} at byte {error.start} of the line") from None
    except (ValueError, RecursionError) as error:
        raise Fault(f"truncated or damaged, not JSON: {error}") from None


def _variables(tokenizer: Tokenizer) -> Mapping[str, Any]:
    """Return the special tokens that templates see, such as bos_token."""
    own = tokenizer.own if isinstance(tokenizer, FasterTokenizer) else tokenizer
    if not isinstance(own, HFTokenizer):
        return {}
    tokens = {name: token for name, token in own.tokens.items() if token}
    return {name: [*map(str, token)] if isinstance(token, list) else str(token) for name, token in tokens.items()}


class ChatEncoder(Encoder):
    """Encode batches of rows that are conversations. The tokens are those of apply_chat_template."""

    def __init__(self, spec: EncoderSpec, tokenizer: Tokenizer | None = None) -> None:
        super().__init__(spec, tokenizer)
        assert spec.chat is not None
        self._audit = Audit(self._tokenizer, None, spec.audit)
        self._eod = None  # the template ends turns and conversations
        self._renderer = ChatRenderer(spec.chat, self._tokenizer)
        self._token_spans = TokenSpans(self._tokenizer)

    def encode(self, batch: Batch) -> Encoded:
        """Encode one batch; a faulty conversation does not affect others."""
        started = time.perf_counter()
        chats, faulty = self._render(batch)
        if batch.data is None and len(batch.rows):
            files.drop_pages(self._source, int(batch.rows[:, 0].min()), int(batch.rows.sum(axis=1).max()))
        positions = list(chats)
        texts = [chat.text for chat in chats.values()]
        tokens, lengths = self._tokenize(texts, positions, faulty)
        tokens = tokens.astype(self._dtype, copy=False)
        stop = None
        seconds = time.perf_counter() - started
        audited, wrong = self._audit.compare(texts, tokens, lengths, int(batch.rows.sum()), seconds)
        if wrong is not None:
            stop = Stop(positions[wrong], self._differs(texts[wrong]), True)
        try:
            spans = [chats[position].spans for position in positions]
            mask = self._token_spans.mask(texts, spans, tokens, lengths, self._renderer.is_exact)
        except FaultyText as error:
            mask, stop = np.zeros(len(tokens), np.bool_), Stop(positions[0], str(error), True)
        faulty += [(position, "no tokens") for position, n in zip(positions, lengths.tolist(), strict=True) if not n]
        faulty.sort()
        kept = [chats[position] for position, n in zip(positions, lengths.tolist(), strict=True) if n]
        kinds = {kind: sum(chat.kind == kind for chat in kept) for kind in KINDS}
        counts = ChatCounts(**kinds, turns=sum(chat.n_turns for chat in kept))
        return Encoded(tokens, lengths[lengths > 0], faulty, Counts(0, 0, audited), stop, mask, counts)

    def _render(self, batch: Batch) -> tuple[dict[int, RenderedChat], list[tuple[int, str]]]:
        """Return the rendered conversations by position, and (position, reason) of those that cannot be rendered."""
        lines = self._bytes_of(batch)
        chats: dict[int, RenderedChat] = {}
        faulty: list[tuple[int, str]] = []
        ends = batch.rows.sum(axis=1).tolist()
        for position, (start, end) in enumerate(zip(batch.rows[:, 0].tolist(), ends, strict=True)):
            try:
                chats[position] = self._renderer.render(lines[start:end])
            except (Fault, TemplateFault) as error:
                faulty.append((position, str(error)))
        return chats, faulty


def build_encoder(spec: EncoderSpec, tokenizer: Tokenizer | None = None) -> Encoder:
    """Return the encoder of conversations or of texts, as `spec` says."""
    return (Encoder if spec.chat is None else ChatEncoder)(spec, tokenizer)
