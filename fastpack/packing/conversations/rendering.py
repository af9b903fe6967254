"""Render conversations by a chat template as transformers 4.57 does, and find the text of the assistant's turns.

The text of `{% generation %}` blocks is what `return_assistant_tokens_mask` marks. In other templates it is the text
that a turn of the assistant adds to the text of the preceding turns with the generation prompt.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import accumulate
from typing import Any, TypeAlias

from fastpack.packing.conversations.chat_settings import Loss
from fastpack.packing.conversations.sandbox import TemplateFault, compile_source, new_environment, template_fault

Span: TypeAlias = tuple[int, int]  # characters [start, end)

_GENERATION = re.compile(r"\{%[-+]?\s*generation\s*[-+]?%\}")


class _Tracker:
    """What a rendering notes: its parts so far, its generation blocks, and its turns.

    blocks: the number of parts before each block, and its length. turns: the number of parts before each turn and after
    the last one. is_beyond: a prefix of the conversation could be rendered otherwise.
    """

    def __init__(self) -> None:
        self.start()

    def start(self) -> list[str]:
        """Forget the last rendering; return the list of parts."""
        self.parts: list[str] = []
        self.blocks: list[tuple[int, int]] = []
        self.turns: list[int] = []
        self.is_beyond = False
        return self.parts

    def spans(self) -> list[Span]:
        """Return the spans of the blocks; one before all parts is not recorded (transformers)."""
        spans: list[Span] = []
        before = start = 0
        for n_parts, length in self.blocks:
            start += sum(map(len, self.parts[before:n_parts]))
            before = n_parts
            if n_parts or spans:
                spans.append((start, start + length))
        return spans

    def turn_starts(self) -> list[int]:
        """Return the characters before each turn, and before the text after the last turn; none if not known."""
        if self.is_beyond or not self.turns:
            return []
        ends = [0, *accumulate(map(len, self.parts))]
        return [ends[n] for n in self.turns]


class ChatTemplate:
    """A compiled chat template.

    variables: what the template sees besides the conversation, such as bos_token. marks_turns: whether the template has
    generation blocks. Raises ValueError for a template that cannot be compiled, MissingExtra without Jinja2.
    """

    def __init__(self, source: str, variables: Mapping[str, Any]) -> None:
        self._tracker = _Tracker()
        environment = new_environment(["jinja2.ext.loopcontrols"])
        environment.add_extension(notes := _notes(self._tracker))
        environment.globals["strftime_now"] = lambda format: datetime.now().strftime(format)
        self.marks_turns = _GENERATION.search(source) is not None
        self._n_needed: int | None = None  # messages of a prefix whose text is known from that of the conversation
        self._prompt: str | None = None  # the text of the generation prompt, if it is the same after every prefix

        def mark(tree: Any) -> None:
            from fastpack.packing.conversations.turn_marks import mark_turns

            self._n_needed = mark_turns(tree, notes.identifier)

        change = None if self.marks_turns else mark
        self._template = compile_source(environment, source, "the chat template", change)
        self._parent = {**self._template.globals, "documents": None, **variables}

    def render(self, messages: Sequence[Any], tools: Any = None, *, prompt: bool = False) -> str:
        """Return the text of a conversation; prompt: with the start of a turn of the assistant."""
        return self._render(messages, tools, prompt)[0]

    def render_spans(self, messages: Sequence[Any], tools: Any, loss: Loss) -> tuple[str, list[Span] | None]:
        """Return the text of a conversation, and the spans that count in the loss; None: all of it.

        Raises TemplateFault if the template fails, or if the spans cannot be determined.
        """
        text, spans = self._render(messages, tools, False)
        if loss == "all":
            return text, None
        turns = [i for i, message in enumerate(messages) if message["role"] == "assistant"]
        if not self.marks_turns:
            chosen = turns[-1:] if loss == "last" else turns
            known = self._prefix_ends(len(messages))
            added = (self._added_text(messages, tools, turn, text, known) for turn in chosen)
            return text, [(start, end) for start, end in added if start < end]
        if loss == "last" and len(spans) > 1:
            spans = spans[self._n_blocks(messages[: turns[-1]], tools, len(spans)) :]
        return text, spans

    def _n_blocks(self, messages: Sequence[Any], tools: Any, n_all: int) -> int:
        """Return the number of generation blocks before the last turn of the assistant."""
        try:
            return min(len(self._render(messages, tools, False)[1]), n_all - 1)
        except TemplateFault:
            return n_all - 1

    def _prefix_ends(self, n_messages: int) -> dict[int, int]:
        """Return the lengths of the texts of the first n messages of the last rendering, for those n that are known."""
        starts = [] if self._n_needed is None else self._tracker.turn_starts()
        first = n_messages + 1 - len(starts)  # the turns are those of the last messages
        return {n: start for n, start in enumerate(starts, first) if n >= (self._n_needed or 0)}

    def _added_text(self, messages: Sequence[Any], tools: Any, turn: int, text: str, known: dict[int, int]) -> Span:
        """Return the span that a turn adds to the turns before it and the generation prompt.

        known: what `_prefix_ends` returned for the conversation, whose text is `text`.
        """
        if self._prompt is not None and turn in known:
            start, end, after = known[turn], known[turn + 1], text[known[len(messages)] :]
            if text.startswith(after, end) and (text[start:end] + after).startswith(self._prompt):
                return start + len(self._prompt), end + len(after)
        before = self.render(messages[:turn], tools, prompt=True)
        if self._n_needed is not None and turn >= self._n_needed and (starts := self._tracker.turn_starts()):
            self._prompt = before[starts[-1] :]
        through = text if turn == len(messages) - 1 else self.render(messages[: turn + 1], tools)
        if not (text.startswith(through) and through.startswith(before)):
            raise TemplateFault(
                f"the template renders the messages up to number {turn + 1} otherwise when it stands alone or is "
                "prompted for, so the text of this turn of the assistant is not known: use a template with "
                "{% generation %} blocks"
            )
        return len(before), len(through)

    def _render(self, messages: Sequence[Any], tools: Any, prompt: bool) -> tuple[str, list[Span]]:
        tracker, template = self._tracker, self._template
        parts = tracker.start()
        parent = {"messages": messages, "tools": tools, "add_generation_prompt": prompt, **self._parent}
        # `new_context` would iterate over all globals: a third of the time of a short conversation.
        context = template.environment.context_class(template.environment, parent, template.name, template.blocks)
        try:
            append = parts.append
            for part in template.root_render_func(context):
                append(part)
        except MemoryError:
            raise
        except Exception as error:  # any exception: the template can compute anything
            raise template_fault(error) from error
        return "".join(parts), tracker.spans() if tracker.blocks else []


def _notes(tracker: _Tracker) -> Any:
    """Return the Jinja2 extension of the tag `generation` and of the marks of turns, which `tracker` notes."""
    from jinja2 import nodes
    from jinja2.ext import Extension

    class Notes(Extension):
        tags = {"generation"}  # noqa: RUF012  # as Jinja2 declares it

        def parse(self, parser: Any) -> nodes.Node:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.CallBlock(self.call_method("_block"), [], [], body).set_lineno(line)

        def _block(self, caller: Any) -> str:
            text: str = caller()
            tracker.blocks.append((len(tracker.parts), len(text)))
            return text

        def turn(self) -> None:
            tracker.turns.append(len(tracker.parts))

        def beyond(self, value: Any) -> Any:
            tracker.is_beyond = True
            return value

    return Notes
