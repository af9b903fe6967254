"""Render conversations by a chat template as transformers 4.57 does, and find the text of the assistant's turns.

The text of `{% generation %}` blocks is what `return_assistant_tokens_mask` marks. In other templates it is the text
that a turn of the assistant adds to the text of the preceding turns with the generation prompt.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, TypeAlias

from fastpack.packing.conversations.chat_settings import Loss
from fastpack.packing.conversations.sandbox import TemplateFault, compile_source, new_environment, template_faults

Span: TypeAlias = tuple[int, int]  # characters [start, end)

_GENERATION = re.compile(r"\{%[-+]?\s*generation\s*[-+]?%\}")


class _Tracker:
    """The parts rendered so far, their number of characters, and the spans of generation blocks."""

    def __init__(self) -> None:
        self.n_characters = 0
        self.parts: list[str] = []
        self.spans: list[Span] = []

    def note(self, text: str) -> None:
        """Record a generation block that is rendered now; one that begins the text is not recorded (transformers)."""
        if self.parts or self.spans:
            self.spans.append((self.n_characters, self.n_characters + len(text)))


class ChatTemplate:
    """A compiled chat template.

    variables: what the template sees besides the conversation, such as bos_token. marks_turns: whether the template has
    generation blocks. Raises ValueError for a template that cannot be compiled, MissingExtra without Jinja2.
    """

    def __init__(self, source: str, variables: Mapping[str, Any]) -> None:
        self._tracker = _Tracker()
        environment = new_environment(["jinja2.ext.loopcontrols"])
        environment.add_extension(_generation_blocks(self._tracker))
        environment.globals["strftime_now"] = lambda format: datetime.now().strftime(format)
        self._template = compile_source(environment, source, "the chat template")
        self._parent = {**self._template.globals, "documents": None, **variables}
        self.marks_turns = _GENERATION.search(source) is not None

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
            added = (self._added_text(messages, tools, turn, text) for turn in chosen)
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

    def _added_text(self, messages: Sequence[Any], tools: Any, turn: int, text: str) -> Span:
        """Return the span that a turn adds to the turns before it and the generation prompt."""
        before = self.render(messages[:turn], tools, prompt=True)
        through = text if turn == len(messages) - 1 else self.render(messages[: turn + 1], tools)
        if not (text.startswith(through) and through.startswith(before)):
            raise TemplateFault(
                f"the template renders the messages up to number {turn + 1} otherwise when it stands alone or is "
                "prompted for, so the text of this turn of the assistant is not known: use a template with "
                "{% generation %} blocks"
            )
        return len(before), len(through)

    def _render(self, messages: Sequence[Any], tools: Any, prompt: bool) -> tuple[str, list[Span]]:
        tracker, parts, spans = self._tracker, list[str](), list[Span]()
        tracker.n_characters, tracker.parts, tracker.spans = 0, parts, spans
        template, n_characters = self._template, 0
        parent = {"messages": messages, "tools": tools, "add_generation_prompt": prompt, **self._parent}
        # `new_context` would iterate over all globals: a third of the time of a short conversation.
        context = template.environment.context_class(template.environment, parent, template.name, template.blocks)
        with template_faults():
            for part in template.root_render_func(context):
                parts.append(part)
                tracker.n_characters = n_characters = n_characters + len(part)
        return "".join(parts), spans


def _generation_blocks(tracker: _Tracker) -> Any:
    """Return the Jinja2 extension of the tag `generation`, whose blocks `tracker` notes."""
    from jinja2 import nodes
    from jinja2.ext import Extension

    class GenerationBlocks(Extension):
        tags = {"generation"}  # noqa: RUF012  # as Jinja2 declares it

        def parse(self, parser: Any) -> nodes.Node:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.CallBlock(self.call_method("_note"), [], [], body).set_lineno(line)

        def _note(self, caller: Any) -> str:
            text: str = caller()
            tracker.note(text)
            return text

    return GenerationBlocks
